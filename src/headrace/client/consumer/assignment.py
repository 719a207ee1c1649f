"""The partitions that a group assigns and revokes, reported to the program.

librdkafka calls these methods inside a poll. A seek or pause of the program in `on_assigned` is
applied with the assignment itself: a partition can be neither sought nor paused before it is
assigned.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer
from confluent_kafka import TopicPartition as NativePartition

from headrace.client.records import TopicPartition

log = logging.getLogger("headrace.client")

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
        # While `on_assigned` runs: the partitions being assigned, their start offsets, and which
        # begin paused.
        self.coming: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()

    def took_seek(self, place: TopicPartition, offset: int) -> bool:
        """Take a seek inside `on_assigned`; False if this partition is not being assigned right
        now."""
        if place not in self.coming:
            return False
        self.coming[place] = offset
        return True

    def took_pause(self, place: TopicPartition) -> bool:
        """Take a pause inside `on_assigned`; False if this partition is not being assigned right
        now."""
        if place not in self.coming:
            return False
        self._paused.add(place)
        return True

    def took_resume(self, place: TopicPartition) -> bool:
        self._paused.discard(place)
        return place in self.coming

    def assigned(self, native: Consumer, places: list[NativePartition]) -> None:
        if self._on_assigned is None:
            return
        given = _ours(places)
        self.coming = starts = dict.fromkeys(given, OFFSET_INVALID)
        paused: set[TopicPartition] = set()
        self._paused = paused
        try:
            self._on_assigned(given)
        except BaseException:
            self._forget(given)  # librdkafka assigns them without the callback's seeks and pauses
            raise
        finally:
            self.coming = {}
        if paused or any(offset != OFFSET_INVALID for offset in starts.values()):
            start = [NativePartition(*place, offset) for place, offset in starts.items()]
            (native.incremental_assign if self._cooperative else native.assign)(start)
            if paused:
                native.pause([NativePartition(*place) for place in paused])

    def begin_at(
        self,
        native: Consumer,
        place: TopicPartition,
        offset: int,
        *,
        halted: set[TopicPartition],
        known: Mapping[TopicPartition, int],
    ) -> None:
        """Assign a partition again that librdkafka has stopped, because a stopped partition cannot
        be sought.

        Other stopped partitions are left out until they are sought too: otherwise librdkafka would
        look for their offsets again, and report once more, perhaps after the seek, that there are
        none. `known` holds the program's position in partitions of which librdkafka has delivered
        nothing since a seek.
        """
        start = NativePartition(*place, offset)
        if self._cooperative:
            native.incremental_unassign([NativePartition(*place)])
            native.incremental_assign([start])
            return
        where_they_are = native.position(native.assignment())
        others = []
        for one in where_they_are:
            other = TopicPartition(one.topic, one.partition)
            if other not in halted:
                others.append(NativePartition(*other, known.get(other, one.offset)))
        native.assign([*others, start])

    def revoked(self, native: Consumer, places: list[NativePartition]) -> None:
        self._gone(places, self._on_revoked)

    def lost(self, native: Consumer, places: list[NativePartition]) -> None:
        self._gone(places, self._on_lost)

    def leave(self, native: Consumer) -> None:
        """Close without waiting, for a cluster that does not answer: librdkafka would wait for the
        last commit.

        The commit is given up in the background, and the program gets no more callbacks.
        """
        self._on_revoked = self._on_lost = None
        self._forget = _nothing
        log.warning("closed while no broker answered: the last commit may not have been made")
        threading.Thread(target=native.close, name="headrace-closing", daemon=True).start()

    def _gone(self, places: list[NativePartition], tell: OnPartitions | None) -> None:
        gone = _ours(places)
        try:
            if tell is not None:
                tell(gone)  # positions are still there: it may commit
        finally:
            self._forget(gone)


def _nothing(gone: list[TopicPartition]) -> None:
    """The callback of a consumer that is closed."""


def _ours(places: list[NativePartition]) -> list[TopicPartition]:
    return [TopicPartition(p.topic, p.partition) for p in places]


def cooperative(conf: Mapping[str, Any]) -> bool:
    """Whether the group's protocol is cooperative: partitions come and go one by one, not all at
    once."""
    strategy = str(conf.get("partition.assignment.strategy", ""))
    return "cooperative" in strategy or conf.get("group.protocol") == "consumer"
