"""The power is cut at each moment of a replica's move to another data folder: nothing is lost."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from headrace.environment import Now
from headrace.node.simulator.disk import Names, VirtualDisk
from headrace.wire.protocol.messages import alter_replica_log_dirs
from tests.unit.node.broker.rig import START_MS, Randomness, Rig, values_in

RECORDS = 12
LOOKS = 12
LOOK_MS = 50


def start(disk: VirtualDisk, drawn: int = 0) -> Any:
    """With the folders /one and /two; `drawn`: ids of one start must not come again in another."""
    randomness = Randomness()
    randomness.drawn = drawn
    settings = {"log_dirs": "/one,/two", "headrace_durability": "disk"}
    return Rig(Path("/one"), disk=disk, now=disk.now, randomness=randomness, **settings)


def values(rig: Any) -> list[str]:
    answer = rig.fetch("orders")
    assert answer.error_code == 0, answer.error_code
    return [value.decode() for value in values_in(answer.records)]


def move(rig: Any, path: str) -> None:
    topics = [alter_replica_log_dirs.AlterReplicaLogDirTopic("orders", [0])]
    asked = alter_replica_log_dirs.AlterReplicaLogDir(path, topics)
    request = alter_replica_log_dirs.AlterReplicaLogDirsRequest([asked])
    [result] = rig.ask(alter_replica_log_dirs, request).results
    assert result.partitions[0].error_code == 0


def look(rig: Any, times: int) -> None:
    for _ in range(times):
        rig.advance(LOOK_MS)


@pytest.mark.parametrize("names", list(Names), ids=lambda names: names.value)
def test_nothing_is_lost_at_any_moment(names: Names) -> None:
    disk = VirtualDisk(Now(1_000, START_MS))
    for folder in ("/one", "/two"):
        disk.make_folder(folder)
    disk.flush_folder("/")
    rig = start(disk)
    rig.create("orders")
    rig.advance(1_000)
    for number in range(RECORDS):
        assert rig.produce("orders", f"record {number}").error_code == 0
    wanted = values(rig)
    cuts: list[VirtualDisk] = []

    def cut() -> None:
        now = Now(disk.now.monotonic_ms, disk.now.wall_ms)
        cuts.append(disk.power_cut(Random(len(cuts)), now, names))

    disk.before_change = cut
    move(rig, "/two")
    look(rig, LOOKS)
    rig.advance(1_000)  # the metadata are told
    disk.before_change = None
    assert rig.node.partitions.folders.holder("orders", 0).path == "/two"
    assert len(cuts) > 20
    places = set()
    for number, left in enumerate(cuts):
        again = start(left, drawn=1_000)
        assert values(again) == wanted, f"cut {number}"
        places.add(again.node.partitions.folders.holder("orders", 0).path)
        look(again, LOOKS)
        assert values(again) == wanted, f"cut {number}, behind the move"
        assert again.produce("orders", "more").base_offset == RECORDS
    assert places == {"/one", "/two"}
