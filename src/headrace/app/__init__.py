"""The SDK for applications: handlers with retries, dead letters, order and once-only effects.

`from headrace import App, Message, Retry`. Names are loaded when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.app.app import App as App
    from headrace.app.decoding import Codec as Codec
    from headrace.app.decoding import Undecodable as Undecodable
    from headrace.app.message import Message as Message
    from headrace.app.message import PartialFailure as PartialFailure
    from headrace.app.message import Publish as Publish
    from headrace.app.observation.observer import Observer as Observer
    from headrace.app.once.in_redis import Redis as Redis
    from headrace.app.once.in_sql import Sql as Sql
    from headrace.app.once.memory import Once as Once
    from headrace.app.once.memory import OnceAttempt as OnceAttempt
    from headrace.app.retry import AttemptTimedOut as AttemptTimedOut
    from headrace.app.retry import Retry as Retry
    from headrace.app.retry import TryLater as TryLater
    from headrace.app.subscription import Subscription as Subscription

# Names that need an extra package, and the extra that installs it.
EXTRAS = {"Redis": "redis", "Sql": "sql"}
# The module of each public name.
PUBLIC = {
    "App": "app",
    "Codec": "decoding",
    "Undecodable": "decoding",
    "Message": "message",
    "PartialFailure": "message",
    "Publish": "message",
    "Observer": "observation.observer",
    "Once": "once.memory",
    "OnceAttempt": "once.memory",
    "Redis": "once.in_redis",
    "Sql": "once.in_sql",
    "AttemptTimedOut": "retry",
    "Retry": "retry",
    "TryLater": "retry",
    "Subscription": "subscription",
}

__all__ = list(PUBLIC)


def __getattr__(name: str) -> object:
    if name not in PUBLIC:
        raise AttributeError(f"module 'headrace.app' has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"headrace.app.{PUBLIC[name]}"), name)
    except ModuleNotFoundError as missing:
        if name not in EXTRAS:
            raise
        from headrace.installation import how_to_add

        sentence = how_to_add(f"{name} needs", missing.name, EXTRAS[name])
        raise ModuleNotFoundError(sentence, name=missing.name) from None


def __dir__() -> list[str]:
    return sorted([*globals(), *PUBLIC])
