"""The topics of web tracking; creates the missing ones."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.wire.contract.tracking import KINDS


def make_topics(
    connection: ClientSettings, *, partitions: int, settings: Mapping[str, str] | None = None
) -> list[str]:
    """Creates the missing topics and returns their names; the others stay as they are."""
    topics = Topics(connection)
    there = {topic.name for topic in topics.all()}
    missing = [kind.topic for kind in KINDS.values() if kind.topic not in there]
    for name in missing:
        topics.create(name, partitions=partitions, settings=settings)
    return missing
