"""Pending rows in plain Python: what `store.RocksPending` must be like, in a few lines."""

from __future__ import annotations

import copy
from bisect import bisect_right

from headrace.services.delay.timeline.pending import Changes, Sample
from headrace.services.delay.timeline.progress import BEFORE_ALL, DueKey
from headrace.services.delay.timeline.rows import Row, weight_of


class InMemoryPending:
    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.rows: dict[DueKey, Row] = {}
        self.ids: dict[str, DueKey] = {}
        self.long: dict[int, DueKey] = {}
        self.loaded: dict[int, DueKey] = {}
        self.position = 0
        self.watermark: DueKey = BEFORE_ALL
        self.far = 0
        self.count = 0
        self.samples: list[Sample] = []

    def scan(
        self, after: DueKey, until_ms: int, limit: int, limit_bytes: int = 2**63
    ) -> tuple[list[Row], bool]:
        keys = sorted(self.rows)
        found: list[Row] = []
        for key in keys[bisect_right(keys, after) :]:
            if key[0] > until_ms:
                break
            if len(found) == limit or limit_bytes < 0:
                return found, False
            limit_bytes -= weight_of(self.rows[key][2])
            found.append(self.rows[key])
        return found, True

    def first_after(self, after: DueKey) -> DueKey | None:
        return min((key for key in self.rows if key > after), default=None)

    def get(self, key: DueKey) -> Row | None:
        return self.rows.get(key)

    def find_id(self, id: str) -> DueKey | None:
        return self.ids.get(id)

    def find_loaded(self, offset: int) -> DueKey | None:
        return self.loaded.get(offset)

    def long_rows(self, from_offset: int, below_offset: int, limit: int) -> list[DueKey]:
        offsets = sorted(o for o in self.long if from_offset <= o < below_offset)
        return [self.long[offset] for offset in offsets[:limit]]

    def apply(self, changes: Changes) -> None:
        assert changes.watermark >= self.watermark
        self.rows = {key: row for key, row in self.rows.items() if key > changes.watermark}
        for key in changes.deletes:
            self.rows.pop(key, None)
            self.long.pop(key[1], None)
        self.rows.update({(row[0], row[1]): row for row in changes.puts})
        self.long.update({key[1]: key for key in changes.long})
        self.loaded = self.loaded | _keys(changes.puts) if changes.loading else {}
        self.long = {offset: key for offset, key in self.long.items() if offset >= changes.far}
        for id_, named in changes.ids.items():
            if named is None:
                self.ids.pop(id_, None)
            else:
                self.ids[id_] = named
        self.position, self.watermark = changes.position, changes.watermark
        self.far, self.samples = changes.far, list(changes.samples)
        self.count += changes.count_by

    def copy(self) -> InMemoryPending:
        return copy.deepcopy(self)


def _keys(rows: list[Row]) -> dict[int, DueKey]:
    return {row[1]: (row[0], row[1]) for row in rows}
