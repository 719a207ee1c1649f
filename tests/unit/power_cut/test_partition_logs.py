"""A power cut at any moment: what was flushed is there, whole and in order, and the log goes on."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from tests.unit.power_cut.lossy_disk import LossyDisk
from tests.unit.storage.a_log import NOW, ALog

# `make soak` asks for more by POWER_CUTS.
SEEDS = int(os.environ.get("POWER_CUTS", "12"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_flushed_records_survive_and_the_log_goes_on(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    disk = LossyDisk()
    log = ALog(tmp_path / "before", disk=disk, segment_bytes=3000, index_interval_bytes=200)
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
    for cut in range(4):
        after = tmp_path / f"after-{cut}"
        disk.power_cut(str(tmp_path / "before"), str(after), random)
        again = ALog.__new__(ALog)
        again.__dict__.update(log.__dict__)
        again.folder = f"{after}/orders-0"
        again.unwritten, again.wants_flush = type(log.unwritten)(), []
        again.open(clean=False, recovery_point=checkpointed)
        found = again.values()
        assert [entry for entry in found if entry[0] < flushed] == expected
        offsets = [offset for offset, _ in found]
        assert offsets == sorted(set(offsets)), "in order, each once; a hole is said in the log"
        assert not again.log.segments.damage(), "what was not flushed is cut, not kept"
        end = offsets[-1] + 1 if offsets else 0
        assert again.append_values(b"on") >= end
        assert again.values()[-1][1] == b"on"
