"""The topic that is shipped to: it must be there, and a sentence says how to make it if not."""

from __future__ import annotations

from headrace.client.connection import Connection
from headrace.client.errors import NoSuchTopic
from headrace.client.topics import Topics


def must_be_there(connection: Connection, topic: str) -> None:
    if topic not in Topics(connection).cluster.topics:
        raise NoSuchTopic(
            f"There is no topic {topic} at {connection.bootstrap}: make it with `headrace topics "
            f"create {topic} --partitions 3`, or name another one with --topic."
        )
