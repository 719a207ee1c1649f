"""Looks after the in-sync replicas of all partitions that this broker leads with others.

Every tick what the leaders propose goes to the controller, one AlterPartition at a time; every half
`replica.lag.time.max.ms` those who lag are looked for, and followers here whose logs are damaged. A
node that has every partition alone pays for neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.environment import Now
from headrace.protocol.messages.alter_partition import AlterPartitionResponse

if TYPE_CHECKING:
    from headrace.broker.broker import Broker


class InSyncUpkeep:
    __slots__ = ("_broker", "_looked_ms")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._looked_ms = 0

    def tick(self, now: Now) -> None:
        broker = self._broker
        now_ms = now.monotonic_ms
        if now_ms - self._looked_ms >= broker.this.settings.lag_time_max_ms // 2:
            self._looked_ms = now_ms
            for topic in broker.topics.by_name.values():
                for replica in topic.here():
                    if replica.leading is not None:
                        replica.tick(now_ms)
                    elif replica.look_for_damage():
                        broker.replica_fetching.follow(replica)
        self.propose(now)

    def propose(self, now: Now) -> None:
        this = self._broker.this
        request = this.isr_changes.next_request(this.id, this.epoch, now.monotonic_ms)
        if request is not None:
            self._broker.controller.alter_partition(request, self._answered, now)

    def _answered(self, response: AlterPartitionResponse | None) -> None:
        self._broker.this.isr_changes.answered(response, self._broker.now.monotonic_ms)
