"""A power cut at any moment: what was flushed is there, whole and in order, and the log goes on."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest

from headrace.environment import Now
from headrace.node.simulator.disk import VirtualDisk
from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.durability.unwritten import Unwritten
from tests.unit.node.storage.a_log import NOW, ALog

# `make soak` asks for more by POWER_CUTS.
SEEDS = int(os.environ.get("POWER_CUTS", "12"))


def new_disk() -> VirtualDisk:
    disk = VirtualDisk(Now(0, NOW))
    disk.make_folder("/data")
    disk.flush_folder("/")
    return disk


def after_power_cut(log: ALog, random: Random) -> ALog:
    """The same log on what is left of its disk; to be opened."""
    again = ALog.__new__(ALog)
    again.folder, again.settings = log.folder, log.settings
    disk: Any = log.open_files.disk
    again.open_files = OpenFiles(disk.power_cut(random, Now(0, NOW)))
    again.unwritten, again.wants_flush = Unwritten(), []
    return again


@pytest.mark.parametrize("seed", range(SEEDS))
def test_flushed_records_survive_and_the_log_goes_on(seed: int) -> None:
    random = Random(seed)
    log = ALog("/data", disk=new_disk(), segment_bytes=3000, index_interval_bytes=200)
    for step in range(random.randrange(5, 40)):
        log.append_values(b"%04d" % step * random.randrange(1, 120))
        log.end_turn()
        if random.random() < 0.3:
            log.flush(everything=random.random() < 0.7)
        if random.random() < 0.1:
            log.log.roll(wall_ms=NOW)
    flushed = log.log.recovery_point
    expected = [entry for entry in log.values() if entry[0] < flushed]
    checkpointed = random.choice((0, flushed // 2, flushed))
    for _ in range(4):
        again = after_power_cut(log, random)
        again.open(clean=False, recovery_point=checkpointed)
        found = again.values()
        assert [entry for entry in found if entry[0] < flushed] == expected
        offsets = [offset for offset, _ in found]
        assert offsets == sorted(set(offsets)), "in order, each once; a hole is said in the log"
        assert not again.log.segments.damage(), "what was not flushed is cut, not kept"
        end = offsets[-1] + 1 if offsets else 0
        assert again.append_values(b"on") >= end
        assert again.values()[-1][1] == b"on"


def test_a_node_that_was_killed_had_not_flushed_the_names_of_its_files() -> None:
    """Seed 11: the next node flushed bytes under a name that the power cut took away."""
    log = ALog("/data", disk=new_disk())
    log.append_values(b"first")
    log.kill()
    log.append_values(b"second")
    log.flush()
    for seed in range(20):
        again = after_power_cut(log, Random(seed))
        again.open(clean=False, recovery_point=log.log.recovery_point)
        assert again.values() == [(0, b"first"), (1, b"second")]


def test_deleted_records_vouch_for_nothing_that_is_left() -> None:
    """Seed 7: DeleteRecords moved the recovery point into a batch that was never flushed, and what
    the power cut tore of that batch counted as damage to flushed bytes."""
    log = ALog("/data", disk=new_disk())
    log.append_values(b"a" * 900, b"b" * 900, b"c" * 900)
    log.end_turn()
    log.log.delete_records_before(1)
    assert log.log.recovery_point == 0
    assert log.wants_flush == [log.log]
    log.flush()
    assert log.log.recovery_point == 3
