"""Marks: how far a writer has come, written in the same transaction as the records.

After a crash, or an unknown outcome, only the mark shows what is committed. So it is read after the
earlier writer is fenced: then no other mark can be written meanwhile.

- `GroupMark`: offsets of a group with metadata. The group's generation fences as well (KIP-447): a
  member that has lost its partitions cannot commit.
- `RecordMark`: the last record of its key in a compacted topic. A position of a shard, an entry of
  a journal.

The service reads its mark itself: it knows the format, and who else may hold it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from headrace.client.intake import GroupMember, GroupOffset
from headrace.client.once.outcome import insist
from headrace.client.transaction_writer import NOW, TransactionWriter


class Mark(Protocol):
    def add_to(self, writer: TransactionWriter, call_s: float, within_s: float) -> None:
        """Add the mark to the open transaction, after its records. Raises Fault."""


class GroupMark:
    """`offsets` is called when the records have been written: a member may have come further."""

    __slots__ = ("_member", "offsets")

    def __init__(
        self, offsets: Callable[[], Iterable[GroupOffset]], member: Callable[[], GroupMember]
    ) -> None:
        self.offsets, self._member = offsets, member

    def add_to(self, writer: TransactionWriter, call_s: float, within_s: float) -> None:
        offsets, member = list(self.offsets()), self._member()
        insist(lambda: writer.send_offsets(offsets, member, call_s), within_s)


class RecordMark:
    __slots__ = ("_key", "_partition", "_topic", "_value")

    def __init__(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        self._topic, self._partition, self._key, self._value = topic, partition, key, value

    def add_to(self, writer: TransactionWriter, call_s: float, within_s: float) -> None:
        writer.send(self._topic, self._partition, self._key, self._value, None, NOW)
