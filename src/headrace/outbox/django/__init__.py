"""The outbox in Django: `send` writes a message in the transaction of `transaction.atomic()`.

    INSTALLED_APPS = [..., "headrace.outbox.django"]        # then `manage.py migrate`

    with transaction.atomic():
        Account.objects.filter(name="ada").update(balance=F("balance") - 100)   # locks it
        send("transfers", {"account": "ada", "amount": 100}, key="ada")

Outside of `atomic` it is refused. The relay is `headrace outbox relay DATABASE_URL`. Settings:
`HEADRACE_OUTBOX`, a dictionary with arguments of `headrace.Outbox` such as `largest_bytes`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from headrace.outbox.writer import Outbox


def send(topic: str, value: Any = None, *, using: str = "default", **options: Any) -> None:
    """`using` names the database; the other options are those of `Outbox.send`."""
    from django.db import connections

    _outbox(using).send(connections[using], topic, value, **options)


def cancel(topic: str, id: str, *, key: bytes | str | None = None, using: str = "default") -> None:
    """Cancel the delayed message `id`, as `Outbox.cancel`, in the database `using`."""
    from django.db import connections

    _outbox(using).cancel(connections[using], topic, id, key=key)


@cache
def _outbox(using: str) -> Outbox:
    """One per database: each has its own number of shards."""
    from django.conf import settings

    return Outbox(**getattr(settings, "HEADRACE_OUTBOX", {}))
