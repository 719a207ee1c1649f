"""Batches that were refused because their transaction did not know the partition, by sequence."""

from __future__ import annotations

from headrace.node.coordination.transaction.machine import Producer
from headrace.node.coordination.transaction.transaction import Partition
from headrace.node.storage.append_rules import RecordsRefused
from headrace.wire.protocol.errors import ErrorCode

MOST_REFUSED = 10_000


class RefusedSequences:
    """Batches of older clients that wrote before their transaction knew the partition.

    Such a client sends several batches before it gets the answer to the first. If the first is
    refused, the next one must not be appended in its place when the partition has become known, or
    the order is lost: a partition that knows nothing of the producer would accept any sequence.
    Kept in memory only, as by Apache Kafka; the oldest entries are forgotten.
    """

    __slots__ = ("_lowest",)

    def __init__(self) -> None:
        # partition and producer id -> epoch, lowest sequence
        self._lowest: dict[tuple[Partition, int], tuple[int, int]] = {}

    def note(self, partition: Partition, producer: Producer, sequence: int) -> None:
        key = partition, producer.id
        epoch, lowest = self._lowest.get(key, (producer.epoch, sequence))
        if epoch <= producer.epoch:
            first = min(lowest, sequence) if epoch == producer.epoch else sequence
            self._lowest[key] = producer.epoch, first
            if len(self._lowest) > MOST_REFUSED:
                del self._lowest[next(iter(self._lowest))]

    def require_not_behind(self, partition: Partition, producer: Producer, sequence: int) -> None:
        if not self._lowest:
            return
        key = partition, producer.id
        epoch, lowest = self._lowest.get(key, (-1, 0))
        if epoch == producer.epoch and sequence > lowest:
            raise RecordsRefused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer.id} sent sequence {sequence}, {lowest} was refused before it",
            )
        self._lowest.pop(key, None)
