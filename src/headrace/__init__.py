"""Headrace: an event-streaming platform in Python that speaks the Kafka protocol.

Importing this package loads nothing else. Names for users are loaded when first touched.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# public name -> the module that has it
_LAZY: dict[str, str] = {}


def __getattr__(name: str) -> Any:
    try:
        module = _LAZY[name]
    except KeyError:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}") from None
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
