"""Questions about offsets that a consumer puts to the cluster: ends, what is committed, times."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as NativePartition

from headrace.client.connection import Connection
from headrace.client.errors import explain
from headrace.client.records import TopicPartition


class Asking:
    """Answers wait for `connection.timeout_s`; librdkafka's own exceptions come through."""

    def __init__(self, native: Consumer, connection: Connection) -> None:
        self._native = native
        self._connection = connection

    def ends(self, place: TopicPartition) -> tuple[int, int]:
        """The first offset, and the one after the last."""
        asked = NativePartition(*place)
        return self._native.get_watermark_offsets(asked, self._connection.timeout_s)

    def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's offsets; None where it has none."""
        asked = [NativePartition(*place) for place in places]
        found = self._native.committed(asked, self._connection.timeout_s)
        require_no_error(found, self._connection.bootstrap)
        return {
            TopicPartition(p.topic, p.partition): p.offset if p.offset >= 0 else None for p in found
        }

    def at_time(self, places: Iterable[TopicPartition], wall_ms: int) -> dict[TopicPartition, int]:
        """The first record that is not older; the end where there is none."""
        asked = [NativePartition(*place, wall_ms) for place in places]
        found = self._native.offsets_for_times(asked, self._connection.timeout_s)
        require_no_error(found, self._connection.bootstrap)
        offsets = {TopicPartition(p.topic, p.partition): p.offset for p in found}
        return {
            place: offset if offset >= 0 else self.ends(place)[1]
            for place, offset in offsets.items()
        }


def require_no_error(places: list[NativePartition], bootstrap: str) -> None:
    for place in places:
        if place.error is not None:
            raise explain(place.error, bootstrap, topic=place.topic)
