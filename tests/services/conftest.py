"""Fixtures of the tests that need real processes or servers beside the broker."""

from tests.services.servers import mariadb, postgres, redis_server

__all__ = ["mariadb", "postgres", "redis_server"]
