"""Checks now and then whether every partition of every companion is assigned to an instance.

Static members that come back get their former partitions (KIP-345), so a topic that was registered
while they were away, or whose partitions grew, would have no owner until the next change.
"""

from __future__ import annotations

from time import monotonic

from headrace.client.admin.requests import Pending, Requests
from headrace.client.faults import Fault
from headrace.client.records import TopicPartition
from headrace.services.delay.topics import Catalog

LOOK_EVERY_S = 10.0
LOOK_SOON_S = 0.3
ANSWER_WITHIN_S = 10.0


class Coverage:
    def __init__(self, requests: Requests, group: str) -> None:
        self._requests = requests
        self._group = group
        self._asked: Pending[set[TopicPartition] | None] | None = None
        self._look_at = 0.0

    def look_soon(self) -> None:
        """Something has changed: the group needs a moment, and may need a push."""
        self._look_at = monotonic() + LOOK_SOON_S

    def lacks(self, catalog: Catalog) -> bool:
        """Returns True if the group is at rest and yet some partition has no owner. Never waits."""
        now = monotonic()
        if self._asked is None:
            if now >= self._look_at and catalog.pairs:
                self._look_at = now + LOOK_EVERY_S
                self._asked = self._requests.assignment(self._group, ANSWER_WITHIN_S)
            return False
        if not self._asked.is_done:
            return False
        try:
            taken = self._asked.result()
        except Fault:
            return False
        finally:
            self._asked = None
        if taken is None:
            self.look_soon()
            return False
        if any(
            (pair.companion, partition) not in taken
            for pair in catalog.pairs.values()
            for partition in range(pair.partitions)
        ):
            self._look_at = now + 1.0
            return True
        return False
