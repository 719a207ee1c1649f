"""The state of transactions while compaction walks through a log, batch by batch.

Records of aborted transactions are removed. A marker may be removed when no record of its
transaction was seen before it, that is, when all its records are removed already. An entry of the
index of aborted transactions is kept as long as a part of the transaction is. As in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.node.storage.segments.transaction_index import Aborted
from headrace.wire.protocol.control_records import ControlKind


class CleanedTransactions:
    __slots__ = ("_to_come", "_open_aborted", "_with_records", "_open_committed")

    def __init__(self, aborted: Iterable[Aborted], *, from_offset: int) -> None:
        """`aborted`: the aborted transactions that a walk from `from_offset` on may meet. It must
        not contain others, or later transactions of their producers would count as aborted."""
        met = {entry for entry in aborted if entry.last_offset >= from_offset}
        self._to_come = sorted(met, key=lambda entry: entry.first_offset, reverse=True)
        self._open_aborted: dict[int, Aborted] = {}  # by producer id
        self._with_records: set[int] = set()  # producers of open aborted ones that were seen
        self._open_committed: set[int] = set()

    def _begin_up_to(self, offset: int) -> None:
        while self._to_come and self._to_come[-1].first_offset <= offset:
            entry = self._to_come.pop()
            self._open_aborted.setdefault(entry.producer_id, entry)

    def saw_records(self, producer_id: int, last_offset: int) -> bool:
        """A transactional batch; True if it belongs to an aborted transaction."""
        self._begin_up_to(last_offset)
        if producer_id in self._open_aborted:
            self._with_records.add(producer_id)
            return True
        self._open_committed.add(producer_id)
        return False

    def saw_marker(
        self, producer_id: int, last_offset: int, kind: int | None
    ) -> tuple[bool, Aborted | None]:
        """A control batch (`kind` None: one that was emptied); whether nothing is left of its
        transaction, and the entry that the new index must have."""
        self._begin_up_to(last_offset)
        if kind is None:
            return True, None
        if kind == ControlKind.ABORT:
            entry = self._open_aborted.pop(producer_id, None)
            if entry is not None and producer_id in self._with_records:
                self._with_records.discard(producer_id)
                return False, entry
            return True, None
        if kind == ControlKind.COMMIT:
            seen = producer_id in self._open_committed
            self._open_committed.discard(producer_id)
            return not seen, None
        return False, None
