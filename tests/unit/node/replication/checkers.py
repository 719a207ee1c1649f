"""What must hold whatever happens: found at once where it can be, else at the end."""

from __future__ import annotations

from typing import Any

from headrace.node.replication.replica import Replica
from headrace.wire.protocol.record_batch import headers_in, walk

Partition = int
CARELESS = b"careless"  # how the values begin of a producer for which repeated messages count twice


class Violation(AssertionError):
    """A promise is broken; the text names which."""


class Checkers:
    def __init__(self) -> None:
        self.committed: dict[tuple[Partition, int], bytes] = {}  # by offset, from all replicas
        self.acknowledged: dict[bytes, tuple[Partition, int]] = {}
        self.leaders: dict[tuple[Partition, int], int] = {}  # by epoch

    def leads(self, index: Partition, epoch: int, broker_id: int) -> None:
        known = self.leaders.setdefault((index, epoch), broker_id)
        if known != broker_id:
            raise Violation(f"two leaders in epoch {epoch} of {index}: {known} and {broker_id}")

    def shown(self, index: Partition, start: int, records: bytes, end: int, who: str) -> None:
        """A replica shows these to readers: offset by offset all replicas show the same."""
        for offset, value in values_in(records):
            if not start <= offset < end:
                continue
            known = self.committed.setdefault((index, offset), value)
            if known != value:
                raise Violation(
                    f"one offset with two values: {index}/{offset} is {known!r} and, at {who}, "
                    f"{value!r}"
                )

    def acknowledge(self, index: Partition, offset: int, values: list[bytes]) -> None:
        for delta, value in enumerate(values):
            known = self.acknowledged.setdefault(value, (index, offset + delta))
            if known != (index, offset + delta):
                raise Violation(f"acknowledged at two offsets: {value!r}")

    def told_latest(self, who: str, before: int, now: int) -> None:
        if now < before:
            raise Violation(f"high watermark went back for {who}: from {before} to {now}")

    def at_the_end(self, replicas: list[Replica[Any]]) -> None:
        """All replicas of one partition, of which all is served again."""
        index = replicas[0].index
        contents = [dict(content(replica)) for replica in replicas]
        for value, (partition, offset) in self.acknowledged.items():
            if partition != index:
                continue
            for replica, found in zip(replicas, contents, strict=True):
                if found.get(offset) != value:
                    raise Violation(
                        f"lost acknowledged write: {value!r} at {index}/{offset} of broker "
                        f"{replica.broker.id}, which has {found.get(offset)!r}"
                    )
        for replica, found in zip(replicas, contents, strict=True):
            if found != contents[0]:
                raise Violation(f"log divergence: {index} at broker {replica.broker.id}")
            values = [value for value in found.values() if not value.startswith(CARELESS)]
            if len(values) != len(set(values)):
                raise Violation(f"duplicate: {index} at broker {replica.broker.id}")


def content(replica: Replica[Any]) -> list[tuple[int, bytes]]:
    records = raw(replica, replica.log.start_offset, replica.log.end_offset)
    return list(values_in(records))


def raw(replica: Replica[Any], start: int, end: int) -> bytes:
    if start >= end:
        return b""
    found = replica.log.read(start, 1 << 30, up_to=end, at_least_one=True)
    return b"" if found is None else found.file.read(found.length, found.position)


def values_in(records: bytes) -> list[tuple[int, bytes]]:
    found = []
    for position, header in headers_in(records):
        batch = records[position : position + header.size]
        for delta, record in enumerate(walk(batch, 1 << 20)):
            assert record.value is not None
            found.append((header.base_offset + delta, record.value))
    return found
