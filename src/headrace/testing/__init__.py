"""The real broker inside a test: `with Broker() as broker: ... broker.bootstrap`."""

from headrace.testing.broker import Broker

__all__ = ["Broker"]
