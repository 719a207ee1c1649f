"""The registry of delayed topics: the compacted topic that producers and the service read.

Producers ask before their first delayed record for a topic. Otherwise the cluster might create
`orders.delay` by the first write, and the records in it would wait for ever, because only
registered companions are served. `delayed_topics.py` writes the registry.
"""

from __future__ import annotations

import logging
import time

from headrace.client.connection import ClientSettings, reach
from headrace.client.errors import ClientError, NoSuchTopic
from headrace.client.lookup.record_reader import RecordReader
from headrace.wire.contract import delay_topics
from headrace.wire.contract.delay_topics import Registration
from headrace.wire.contract.own_records import OwnRecords

log = logging.getLogger(__name__)

# How long a producer trusts that a companion is still registered, like its partition counts.
BELIEVED_S = 300.0


class NotDelayed(ClientError):
    """The topic takes no delayed messages."""


def not_delayed(topic: str) -> NotDelayed:
    return NotDelayed(
        f"Topic {topic} takes no delayed messages. "
        f"Enable them once with `headrace delay enable {topic}`."
    )


def no_topic_to_delay(topic: str, connection: ClientSettings) -> NoSuchTopic:
    hidden = ", or this user may not see it" if connection.is_secured else ""
    return NoSuchTopic(
        f"There is no topic {topic}{hidden}. "
        f"Create it with `headrace topics create {topic} --delayed`."
    )


def unknown_registry(topic: str) -> NotDelayed:
    """For a user with a login who cannot see the registry: the topic may be registered all the
    same."""
    return NotDelayed(
        f"Cannot tell whether {topic} takes delayed messages: there is no delayed topic yet, or "
        f"this user may not see {delay_topics.REGISTRY}. Senders of delayed messages need the "
        f"right to read it: `headrace acls add -p USER -o read --topic {delay_topics.REGISTRY}`."
    )


def registrations(connection: ClientSettings) -> list[Registration]:
    """Every registered pair, by name; none if there is no registry yet, or this user may not read
    it.

    A record that cannot be read changes nothing, as in the service.
    """
    if delay_topics.REGISTRY not in reach(connection.admin(), connection).topics:
        return []
    reader = RecordReader(connection, delay_topics.REGISTRY)
    own = OwnRecords(delay_topics.REGISTRY, log)
    found: dict[bytes | None, Registration] = {}
    try:
        for record in reader.records():
            if record.value is None:
                found.pop(record.key, None)
                continue
            entry = own.read(
                delay_topics.read_registration,
                record.key,
                record.value,
                partition=record.partition,
                offset=record.offset,
            )
            if entry is not None:
                found[record.key] = entry
    finally:
        reader.close()
    return sorted(found.values(), key=lambda pair: pair.target)


class KnownCompanions:
    """The producer's view of the registry: read once per topic, trusted for some minutes."""

    def __init__(self, connection: ClientSettings) -> None:
        self._connection = connection
        self._known: dict[str, float] = {}  # target -> when it was found registered

    def knows(self, topic: str) -> bool:
        """Whether `require` needs no request."""
        seen_at = self._known.get(topic)
        return seen_at is not None and time.monotonic() - seen_at <= BELIEVED_S

    def require(self, topic: str) -> None:
        """Raise `NotDelayed` unless the topic is registered."""
        if self.knows(topic):
            return
        registered = {pair.target for pair in registrations(self._connection)}
        if topic not in registered:
            seen = reach(self._connection.admin(), self._connection).topics
            if self._connection.is_secured and delay_topics.REGISTRY not in seen:
                raise unknown_registry(topic)
            if topic not in seen:
                raise no_topic_to_delay(topic, self._connection)
            raise not_delayed(topic)
        self._known.update(dict.fromkeys(registered, time.monotonic()))
