"""Maintains the in-sync replicas of all partitions that this broker leads and others replicate.

Every tick the proposals of the leaders go to the controller, one AlterPartition at a time; every
half `replica.lag.time.max.ms` the broker looks for followers that lag, for followers here with
damaged logs, and for leaders here that are not fit to lead. It looks at once if damage was found
(by the scrub, or by a read), or if a disk refuses appends. A node whose partitions have no other
replicas pays for neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from headrace.environment import Now
from headrace.node.metadata.image import MetadataImage
from headrace.node.replication.leadership_handover import give_up_if_unfit
from headrace.node.replication.replica import PartitionReplica
from headrace.wire.protocol.messages.alter_partition import AlterPartitionResponse

if TYPE_CHECKING:
    from headrace.node.broker.broker import Broker


# Replicas checked in one tick, 3 us each: the others wait for the next tick.
MOST_AT_ONCE = 500
# An unfit leader that waits for the answer to another proposal is checked again.
LOOKS_AGAIN_MS = 1_000


class InSyncUpkeep:
    __slots__ = ("_broker", "_looked_ms", "_round", "_damage_found", "_again_ms")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._looked_ms = 0
        self._round: Iterator[PartitionReplica] = iter(())  # those still to be checked
        self._damage_found = 0  # damaged ranges, at the last check
        self._again_ms: int | None = None

    def tick(self, now: Now) -> None:
        now_ms = now.monotonic_ms
        if self._is_due(now_ms):
            self._looked_ms = now_ms
            self._round = self._shared()
        for replica in islice(self._round, MOST_AT_ONCE):
            if replica.leading is not None:
                replica.tick(now_ms)
                if give_up_if_unfit(replica, now_ms):
                    self._again_ms = now_ms + LOOKS_AGAIN_MS
            elif replica.look_for_damage():
                self._broker.replica_fetching.follow(replica)
        self.propose(now)

    def _is_due(self, now_ms: int) -> bool:
        this = self._broker.this
        damage_found = self._broker.partitions.open_files.findings.damaged_ranges
        if (
            damage_found == self._damage_found
            and not this.looks_soon
            and (self._again_ms is None or now_ms < self._again_ms)
            and now_ms - self._looked_ms < this.settings.lag_time_max_ms // 2
        ):
            return False
        self._damage_found, this.looks_soon, self._again_ms = damage_found, False, None
        return True

    def brokers_changed(self, before: MetadataImage, image: MetadataImage) -> None:
        """Followers on a broker that serves again may join the ISR: not all of them will fetch
        again."""
        for broker_id, broker in image.brokers.items():
            was = before.brokers.get(broker_id)
            if broker.alive and was is not broker and not (was is not None and was.alive):
                self._looked_ms = self._broker.now.monotonic_ms
                self._round = self._shared()
                return

    def _shared(self) -> Iterator[PartitionReplica]:
        """Yields all replicas of partitions that other brokers replicate too; topics may come and
        go meanwhile."""
        for topic in list(self._broker.topics.by_name.values()):
            for replica in list(topic.here()):
                if replica.leading is not None or replica.following is not None:
                    yield replica

    def propose(self, now: Now) -> None:
        this = self._broker.this
        request = this.isr_changes.next_request(this.id, this.epoch, now.monotonic_ms)
        if request is not None:
            self._broker.controller.alter_partition(request, self._answered, now)

    def _answered(self, response: AlterPartitionResponse | None) -> None:
        now = self._broker.now
        self._broker.this.isr_changes.answered(response, now.monotonic_ms)
        self.propose(now)  # the rest of many, without waiting for a tick
