"""A compacted log for stories: writes keys, compacts in this process, reads as a consumer does."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from headrace.node.storage.compaction.compaction import CleanedGroup, CleaningJob, clean, job_for
from headrace.node.storage.compaction.compaction_plan import Cleanable, measure
from headrace.wire.protocol.record_batch import Record, build, headers_in, walk
from tests.unit.node.storage.a_log import NOW, ALog

DAY = 24 * 3600 * 1000
PLENTY = 1 << 20


class ACompactedLog(ALog):
    def __init__(self, folder: Any, **settings: Any) -> None:
        settings.setdefault("cleanup_policy", frozenset({"compact"}))
        super().__init__(folder, **settings)
        self.cleaned_to: int | None = None
        self.removed: list[str] = []

    def put(self, *records: tuple[bytes, bytes | None], timestamp: int = NOW, **how: Any) -> int:
        """One batch of keys and values."""
        data = build(
            [Record(k, v, timestamp=timestamp + n) for n, (k, v) in enumerate(records)], **how
        )
        return self.append(data, wall_ms=timestamp)[0]

    def roll(self) -> None:
        self.log.roll(wall_ms=NOW)

    def cleanable(self, wall_ms: int = NOW) -> Cleanable:
        log = self.log
        return measure(
            log.segments.items,
            log.settings,
            cleaned_to=self.cleaned_to,
            start_offset=log.start_offset,
            end_offset=log.end_offset,
            last_stable_offset=log.producers.last_stable_offset(log.end_offset),
            wall_ms=wall_ms,
        )

    def job(self, wall_ms: int = NOW, memory: int = PLENTY) -> CleaningJob:
        self.end_turn()
        return job_for(self.log, self.cleanable(wall_ms), wall_ms=wall_ms, memory=memory)

    def compact(self, wall_ms: int = NOW, memory: int = PLENTY) -> list[CleanedGroup]:
        """One round, as the cleaner's process and the loop do it."""
        job = CleaningJob(**json.loads(json.dumps(asdict(self.job(wall_ms, memory)))))
        groups: list[CleanedGroup] = []
        cleaned_to = clean(self.open_files.disk, job, lambda length: None, groups.append)
        for group in groups:
            self.swap_in(group)
        self.cleaned_to = cleaned_to
        return groups

    def swap_in(self, group: CleanedGroup) -> bool:
        items = self.log.segments.items
        old = [segment for segment in items if segment.base_offset in group.sources]
        removed = self.log.swap_in(old, wall_ms=NOW)
        self.removed += removed or []
        return removed is not None

    def batches(self) -> list[tuple[Any, list[Record]]]:
        """Header and records of every batch, read from the log's start on."""
        found, offset = [], self.log.start_offset
        while True:
            part = self.log.read(offset, 10_000, up_to=self.log.end_offset, at_least_one=True)
            if part is None:
                return found
            data = part.file.read(part.length, part.position)
            for position, header in headers_in(data):
                records = walk(data[position : position + header.size], 1 << 24)
                found.append((header, list(records)))
            offset = found[-1][0].last_offset + 1

    def records(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of all that is no marker."""
        return [
            (record.offset, record.key, record.value)
            for header, records in self.batches()
            if not header.is_control
            for record in records
        ]
