"""A consumer's requests about offsets: log end offsets, committed offsets, offsets by time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as NativePartition

from headrace.client.admin.unread import unread
from headrace.client.connection import ClientSettings, wait_for_topic
from headrace.client.errors import (
    NOBODY_ANSWERS,
    ClientError,
    NoSuchTopic,
    explain,
    kafka_error,
)
from headrace.client.records import TopicPartition

# For a question after a poll without records.
BRIEFLY_S = 0.2
# By then all brokers know a topic that was just created.
SHOWN_WITHIN_S = 1.0
NOT_YET = NOBODY_ANSWERS | {KafkaError.LEADER_NOT_AVAILABLE}


class Asking:
    """Asks for offsets. Waits `connection.timeout_s` for answers; raises librdkafka's own
    exceptions."""

    def __init__(self, native: Consumer, connection: ClientSettings) -> None:
        self._native = native
        self._connection = connection
        self._by_hand: list[TopicPartition] = []  # assigned by hand, and not verified yet
        self._assigned_at = 0.0

    def assigned(self, places: list[TopicPartition]) -> None:
        """Note partitions assigned by hand: librdkafka waits silently for one that does not
        exist."""
        self._by_hand, self._assigned_at = places, time.monotonic()

    def verify(self) -> None:
        """Raise, once, if partitions that were assigned by hand cannot be read."""
        if self._by_hand and time.monotonic() - self._assigned_at > SHOWN_WITHIN_S:
            asked, self._by_hand = self._by_hand, []
            if not self._are_there(asked):
                self._by_hand = asked

    def partitions_of(self, topic: str) -> int:
        """The number of partitions of the topic."""
        return wait_for_topic(self._native, self._connection, topic)

    def ends(self, place: TopicPartition) -> tuple[int, int]:
        """The first offset and the end offset."""
        asked = NativePartition(*place)
        return self._native.get_watermark_offsets(asked, self._connection.timeout_s)

    def unread(self, at: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
        """How many records readers at these offsets can still get; None: from the first on."""
        cluster = self._native.list_topics(timeout=self._connection.timeout_s)
        found = unread(self._connection, cluster, {place: (at[place],) for place in at})
        counts = {place: found.after(place, at[place]) for place in at}
        for place, count in counts.items():
            if count is None:
                raise ClientError(f"No leader of {place.topic}-{place.partition} answers.")
        return {place: count or 0 for place, count in counts.items()}

    def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None where it has none."""
        asked = [NativePartition(*place) for place in places]
        found = self._native.committed(asked, self._connection.timeout_s)
        require_no_error(found, self._connection.bootstrap)
        return {
            TopicPartition(p.topic, p.partition): p.offset if p.offset >= 0 else None for p in found
        }

    def at_time(self, places: Iterable[TopicPartition], wall_ms: int) -> dict[TopicPartition, int]:
        """The offset of the first record that is not older; the end where there is none."""
        asked = [NativePartition(*place, wall_ms) for place in places]
        found = self._native.offsets_for_times(asked, self._connection.timeout_s)
        require_no_error(found, self._connection.bootstrap)
        offsets = {TopicPartition(p.topic, p.partition): p.offset for p in found}
        return {
            place: offset if offset >= 0 else self.ends(place)[1]
            for place, offset in offsets.items()
        }

    def _are_there(self, places: Iterable[TopicPartition]) -> bool:
        """Raise if these cannot be read; False if that cannot be known yet."""
        wanted: dict[str, list[int]] = {}
        for place in places:
            wanted.setdefault(place.topic, []).append(place.partition)
        for topic, numbers in wanted.items():
            try:
                found = self._native.list_topics(topic, BRIEFLY_S).topics[topic]
                error = found.error
            except KafkaException as failure:
                error = kafka_error(failure)
            if error is not None and error.code() in NOT_YET:
                return False
            if error is not None:
                said = explain(error, self._connection.bootstrap, topic=topic)
                if isinstance(said, NoSuchTopic):
                    said.args = (f"{said} Create it, and poll again.",)
                raise said
            for number in set(numbers).difference(found.partitions):
                raise ClientError(f"There is no partition {number} of topic {topic}.")
        return True

    def sought(self, place: TopicPartition, offset: int) -> KafkaError | None:
        """Seek to this offset; returns the error if librdkafka refuses."""
        try:
            self._native.seek(NativePartition(*place, offset))
        except KafkaException as failure:
            return kafka_error(failure)
        return None


def require_no_error(places: list[NativePartition], bootstrap: str) -> None:
    for place in places:
        if place.error is not None:
            raise explain(place.error, bootstrap, topic=place.topic)
