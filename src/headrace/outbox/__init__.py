"""`headrace.Outbox`: an application writes a message in its own database transaction.

`writer.py` has the class, `handles.py` the kinds of database connections that it takes. The relay
that sends the rows is `headrace.services.outbox`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.outbox.writer import Outbox as Outbox
    from headrace.services.outbox.schema import OutboxError as OutboxError

PUBLIC = {"Outbox": "headrace.outbox.writer", "OutboxError": "headrace.services.outbox.schema"}

__all__ = list(PUBLIC)


def __getattr__(name: str) -> object:
    if name not in PUBLIC:
        raise AttributeError(f"module 'headrace.outbox' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(PUBLIC[name]), name)
