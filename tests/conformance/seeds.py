"""Records put into the logs of the coordinators, as if a broker had written them.

For what requests would take too long to bring about: epochs that are used up, offsets and ids that
were left alone for days, logs that take a while to load. Who calls itself the admin client may
write to the coordinators' topics; both brokers believe it from their next start on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from headrace.node.coordination.group import records as group_records
from headrace.node.coordination.records import Encoded, Record
from headrace.node.coordination.transaction import transaction as transactions
from headrace.node.coordination.transaction.states import TransactionState
from headrace.node.coordination.transaction.transaction import NO_ID, Partition, Transaction
from headrace.wire.protocol.java_hash import partition_for_group
from headrace.wire.protocol.messages import produce
from headrace.wire.protocol.messages.offset_commit_value import OffsetCommitValue
from headrace.wire.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.protocol.record_batch import build_pairs
from tests.conformance.stage import Stage, Topic
from tests.conformance.wire import Connection

GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
PARTITIONS = 50  # of each
ADMIN = "__admin_client"
BY_NAME = 12  # the last Produce that names its topics
TOGETHER = 5_000  # records of a batch, well below a megabyte
FLEXIBLE = 1


def now_ms() -> int:
    return int(time.time() * 1000)


@dataclass(slots=True)
class Seeds:
    stage: Stage
    _records: dict[tuple[str, int], list[Encoded]] = field(default_factory=dict)

    def transaction(
        self,
        name: str,
        producer_id: int,
        epoch: int,
        *,
        state: TransactionState = TransactionState.EMPTY,
        partitions: Iterable[Partition] = (),
        timeout_ms: int = 60_000,
        age_ms: int = 0,
        next_id: int = NO_ID,
    ) -> None:
        """What is known of a transactional id, as of so long ago."""
        then = now_ms() - age_ms
        began = -1 if state is TransactionState.EMPTY else then
        found = Transaction(
            name, producer_id, epoch, timeout_ms, state, frozenset(partitions), began, then, 2
        )
        found.previous_producer_id, found.next_producer_id = producer_id, next_id
        encoded = transactions.CODEC.encode(transactions.to_record(found, FLEXIBLE))
        self._of(TRANSACTIONS, name).append(encoded)

    def group(self, name: str, *kept: Record) -> None:
        encode = group_records.CODEC.encode
        self._of(GROUPS, name).extend(encode(record) for record in kept)

    def offset(
        self, group: str, topic: Topic, offset: int, *, partition: int = 0, age_ms: int = 0
    ) -> None:
        value = OffsetCommitValue(offset, -1, "", now_ms() - age_ms, -1, topic.id)
        self.group(group, group_records.committed_offset(group, topic.name, partition, value))

    def _of(self, topic: str, name: str) -> list[Encoded]:
        place = topic, partition_for_group(name, PARTITIONS)
        return self._records.setdefault(place, [])

    def write(self) -> None:
        with closing(Connection(self.stage.node.port, client_id=ADMIN)) as connection:
            for (topic, index), pairs in self._records.items():
                for at in range(0, len(pairs), TOGETHER):
                    batch = build_pairs(pairs[at : at + TOGETHER], 0, -1, now_ms(), 0, None)
                    data = TopicProduceData(topic, bytes(16), [PartitionProduceData(index, batch)])
                    request = ProduceRequest(None, -1, 30_000, [data])
                    answer: Any = connection.ask(produce, BY_NAME, request)
                    result = answer.responses[0].partition_responses[0]
                    assert result.error_code == 0, result
