"""Fixtures of the tests that need real processes or servers beside the broker."""

from tests.services.servers import postgres, redis_server

__all__ = ["postgres", "redis_server"]
