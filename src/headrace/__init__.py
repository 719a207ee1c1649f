"""Headrace: an event-streaming platform in Python that speaks the Kafka protocol.

Importing this package loads nothing else; its public parts are loaded when first touched:
`headrace.client`, `headrace.app`, `headrace.logs`, `headrace.outbox`, `headrace.testing`, and main
names, as in `from headrace import Producer, Consumer` and `from headrace import App, Message`.
"""

TYPE_CHECKING = False  # `typing` itself would cost more than the rest of this file
if TYPE_CHECKING:
    from headrace.app import App as App
    from headrace.app import Message as Message
    from headrace.app import PartialFailure as PartialFailure
    from headrace.app import Publish as Publish
    from headrace.app import Redis as Redis
    from headrace.app import Retry as Retry
    from headrace.app import Sql as Sql
    from headrace.app import TryLater as TryLater
    from headrace.client import Admin as Admin
    from headrace.client import AsyncConsumer as AsyncConsumer
    from headrace.client import AsyncProducer as AsyncProducer
    from headrace.client import Consumer as Consumer
    from headrace.client import Producer as Producer
    from headrace.client import TopicPartition as TopicPartition
    from headrace.outbox import Outbox as Outbox

__version__ = "0.1.0"

PUBLIC_PARTS = ("app", "client", "logs", "outbox", "testing")
CLIENT_NAMES = (
    "Admin",
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "Producer",
    "TopicPartition",
)
APP_NAMES = ("App", "Message", "PartialFailure", "Publish", "Redis", "Retry", "Sql", "TryLater")
OUTBOX_NAMES = ("Outbox",)

__all__ = ["__version__", *CLIENT_NAMES, *APP_NAMES, *OUTBOX_NAMES]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in PUBLIC_PARTS:
        return import_module(f"headrace.{name}")
    if name in CLIENT_NAMES:
        return getattr(import_module("headrace.client"), name)
    if name in APP_NAMES:
        return getattr(import_module("headrace.app"), name)
    if name in OUTBOX_NAMES:
        return getattr(import_module("headrace.outbox"), name)
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")


def __dir__() -> list[str]:
    return ["__version__", *PUBLIC_PARTS, *CLIENT_NAMES, *APP_NAMES, *OUTBOX_NAMES]
