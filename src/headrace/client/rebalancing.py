"""What a group gives to a consumer and takes away, told to the program.

librdkafka calls in here inside a poll. Offsets that the program seeks to in `on_assigned` are
handed over with the assignment itself: a partition cannot be sought before it is assigned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer
from confluent_kafka import TopicPartition as NativePartition

from headrace.client.records import TopicPartition

OnPartitions = Callable[[list[TopicPartition]], None]


class Rebalancing:
    def __init__(
        self,
        on_assigned: OnPartitions | None,
        on_revoked: OnPartitions | None,
        on_lost: OnPartitions | None,
        *,
        forget: OnPartitions,
        cooperative: bool,
    ) -> None:
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._on_lost = on_lost or on_revoked  # as in Java
        self._forget = forget
        self._cooperative = cooperative
        self._seeks: dict[TopicPartition, int] | None = None  # while partitions are assigned

    def took_seek(self, place: TopicPartition, offset: int) -> bool:
        """Whether this partition is being assigned right now, and will begin at this offset."""
        if self._seeks is None or place not in self._seeks:
            return False
        self._seeks[place] = offset
        return True

    def assigned(self, native: Consumer, places: list[NativePartition]) -> None:
        if self._on_assigned is None:
            return
        given = _ours(places)
        seeks = self._seeks = dict.fromkeys(given, OFFSET_INVALID)
        try:
            self._on_assigned(given)
        finally:
            self._seeks = None
        if any(offset != OFFSET_INVALID for offset in seeks.values()):
            start = [NativePartition(*place, offset) for place, offset in seeks.items()]
            (native.incremental_assign if self._cooperative else native.assign)(start)

    def revoked(self, native: Consumer, places: list[NativePartition]) -> None:
        self._gone(places, self._on_revoked)

    def lost(self, native: Consumer, places: list[NativePartition]) -> None:
        self._gone(places, self._on_lost)

    def _gone(self, places: list[NativePartition], tell: OnPartitions | None) -> None:
        gone = _ours(places)
        try:
            if tell is not None:
                tell(gone)  # positions are still there: it may commit
        finally:
            self._forget(gone)


def _ours(places: list[NativePartition]) -> list[TopicPartition]:
    return [TopicPartition(p.topic, p.partition) for p in places]


def cooperative(conf: Mapping[str, Any]) -> bool:
    """Whether partitions come and go one by one, or all at once."""
    strategy = str(conf.get("partition.assignment.strategy", ""))
    return "cooperative" in strategy or conf.get("group.protocol") == "consumer"
