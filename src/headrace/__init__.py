"""Headrace: an event-streaming platform in Python that speaks the Kafka protocol.

Importing this package loads nothing else; its public parts are loaded when they are first touched.
"""

__version__ = "0.1.0"

PUBLIC_PARTS = ("client", "testing")


def __getattr__(name: str) -> object:
    if name not in PUBLIC_PARTS:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    from importlib import import_module

    return import_module(f"headrace.{name}")


def __dir__() -> list[str]:
    return ["__version__", *PUBLIC_PARTS]
