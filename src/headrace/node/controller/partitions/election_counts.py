"""Counts how often this controller has given partitions another leader; for Prometheus.

Counted from the records that it writes: a change that names a leader is an election. One after
which the leader has to recover took a replica that was not in sync: an unclean one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.wire.protocol.messages.partition_change_record import PartitionChangeRecord

RECOVERING = 1


@dataclass(slots=True)
class ElectionCounts:
    elections: int = 0
    unclean: int = 0

    def note(self, records: Iterable[Any]) -> None:
        for record in records:
            if isinstance(record, PartitionChangeRecord) and record.leader >= 0:
                self.elections += 1
                self.unclean += record.leader_recovery_state == RECOVERING
