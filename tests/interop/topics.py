"""Topics for tests, made through librdkafka's admin client."""

from __future__ import annotations

import itertools

from confluent_kafka.admin import AdminClient, NewTopic

_numbers = itertools.count(1)


def create_topic(
    bootstrap: str, name: str, *, partitions: int = 1, config: dict[str, str] | None = None
) -> str:
    """A new topic with a name of its own that begins with `name`."""
    # Records of the tests carry made-up times; retention by time would remove them.
    settings = {"retention.ms": "-1"} | (config or {})
    unique = f"{name}-{next(_numbers)}"
    topic = NewTopic(unique, num_partitions=partitions, replication_factor=1, config=settings)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([topic]).values():
        created.result(120)
    return unique
