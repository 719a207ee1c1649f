"""The log in memory: what a crash keeps, and what a flush proves."""

from __future__ import annotations

import random

from headrace.node.consensus.batches import metadata_batch
from headrace.node.simulator.memory_log import MemoryLog
from headrace.wire.protocol.messages.no_op_record import NoOpRecord


def append(log: MemoryLog, epoch: int, count: int = 1) -> None:
    for _ in range(count):
        batch = metadata_batch(
            [NoOpRecord()],
            base_offset=log.end_offset,
            epoch=epoch,
            wall_ms=0,
            metadata_version=30,
        )
        log.append(batch, wall_ms=0)


def flush(log: MemoryLog) -> None:
    log.end_flush(log.begin_flush())


def crashed_ends(make: type[MemoryLog] = MemoryLog, *, seeds: int = 40) -> set[tuple[int, int]]:
    """Where a log of 3 flushed and 4 unflushed batches may end."""
    ends = set()
    for seed in range(seeds):
        log = make()
        append(log, 1, 3)
        flush(log)
        append(log, 1, 4)
        assert log.crash(random.Random(seed))
        ends.add((log.end_offset, log.flushed_offset))
    return ends


def test_a_crash_keeps_what_was_flushed_and_a_part_of_the_rest() -> None:
    assert crashed_ends() == {(end, end) for end in range(3, 8)}


def test_a_truncation_that_did_not_reach_the_disk_is_undone_by_a_crash() -> None:
    tails = set()
    for seed in range(40):
        log = MemoryLog()
        append(log, 1, 4)
        flush(log)
        log.truncate(2, wall_ms=0)
        append(log, 2, 1)
        log.crash(random.Random(seed))
        tails.add(tuple(batch.epoch for batch in log.batches))
    assert tails == {(1, 1, 1, 1), (1, 1), (1, 1, 2)}


def test_a_flush_does_not_prove_what_was_appended_after_a_truncation() -> None:
    log = MemoryLog()
    append(log, 1, 4)
    slow = log.begin_flush()
    log.truncate(2, wall_ms=0)
    append(log, 2, 3)
    log.end_flush(slow)
    assert log.flushed_offset == 2
    flush(log)
    assert log.flushed_offset == 5
    assert not log.crash(random.Random(1)) and log.end_offset == 5
