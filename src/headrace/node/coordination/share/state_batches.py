"""The stored delivery states of a share partition: runs of offsets, in order, disjoint.

A later batch is merged into those before. If both have an offset, the one with more deliveries
counts, and with equal deliveries the later state (Kafka 4.3's rule): a write that is repeated after
others changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple


class KeptBatch(NamedTuple):
    """Both offsets inclusive; `state` and `deliveries` by the numbers of the records."""

    first: int
    last: int
    state: int
    deliveries: int

    @property
    def rank(self) -> tuple[int, int]:
        return self.deliveries, self.state


_last_of = itemgetter(1)


def lay_over(kept: list[KeptBatch], batches: Iterable[KeptBatch], start_offset: int) -> None:
    """Changes `kept`; offsets before `start_offset` are left out of it (-1: none)."""
    for batch in batches:
        if batch.last >= batch.first and batch.last >= start_offset:
            _lay(kept, batch)
    if start_offset >= 0:
        _drop_before(kept, start_offset)


def _lay(kept: list[KeptBatch], new: KeptBatch) -> None:
    at = bisect_left(kept, new.first, key=_last_of)
    end = at
    pieces: list[KeptBatch] = []
    position = new.first
    while end < len(kept) and kept[end].first <= new.last:
        old = kept[end]
        end += 1
        if old.first < new.first:
            pieces.append(old._replace(last=new.first - 1))
        elif position < old.first:
            pieces.append(new._replace(first=position, last=old.first - 1))
        first, last = max(old.first, new.first), min(old.last, new.last)
        winner = new if new.rank >= old.rank else old
        pieces.append(winner._replace(first=first, last=last))
        position = last + 1
        if old.last > new.last:
            pieces.append(old._replace(first=new.last + 1))
    if position <= new.last:
        pieces.append(new._replace(first=position))
    # The neighbours on either side may have the same state as the pieces.
    before = kept[max(at - 1, 0) : at]
    after = kept[end : end + 1]
    kept[at - len(before) : end + len(after)] = _merged([*before, *pieces, *after])


def _merged(batches: list[KeptBatch]) -> list[KeptBatch]:
    merged: list[KeptBatch] = []
    for batch in batches:
        last = merged[-1] if merged else None
        if last is not None and last.last + 1 == batch.first and last.rank == batch.rank:
            merged[-1] = last._replace(last=batch.last)
        else:
            merged.append(batch)
    return merged


def _drop_before(kept: list[KeptBatch], offset: int) -> None:
    at = bisect_left(kept, offset, key=_last_of)
    del kept[:at]
    if kept and kept[0].first < offset:
        kept[0] = kept[0]._replace(first=offset)
