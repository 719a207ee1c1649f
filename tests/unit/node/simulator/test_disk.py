"""The disk in memory: as the machine's own while the power is on, and honest when it is cut."""

from __future__ import annotations

from pathlib import Path
from random import Random

from headrace.environment import Disk, Now
from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.simulator.disk import PAGE, Names, VirtualDisk


def new_disk() -> VirtualDisk:
    disk = VirtualDisk(Now(0, 0))
    disk.make_folder("/data")
    disk.flush_folder("/")
    return disk


def cuts(disk: VirtualDisk, names: Names = Names.IN_ORDER) -> list[VirtualDisk]:
    return [disk.power_cut(Random(seed), Now(0, 0), names) for seed in range(200)]


def left_in(disk: VirtualDisk) -> dict[str, bytes]:
    return {name: disk.read_file(f"/data/{name}") for name in disk.list("/data")}


def test_while_the_power_is_on_it_does_what_a_real_disk_does(tmp_path: Path) -> None:
    virtual = new_disk()
    for seed in range(30):
        real_folder = tmp_path / str(seed)
        real_folder.mkdir()
        virtual.make_folder(f"/data/{seed}")
        seen = [
            script(disk, folder, Random(seed))
            for disk, folder in ((RealDisk(), str(real_folder)), (virtual, f"/data/{seed}"))
        ]
        assert seen[0] == seen[1]


def script(disk: Disk, folder: str, random: Random) -> list[object]:
    """What somebody sees who does whatever the seed says with three files."""
    seen: list[object] = []
    for _ in range(40):
        path, other = (f"{folder}/{random.choice('abc')}" for _ in range(2))
        data = random.randbytes(random.randrange(1, 900))
        position, size = random.randrange(1500), random.randrange(1500)
        match random.randrange(7):
            case 0:
                disk.open(path, create=True).append(data)
            case 1:
                disk.open(path, create=True).write_at(data, position)
            case 2:
                disk.open(path, create=True).resize(size)
            case 3:
                disk.write_file(path, [data, data], flush=bool(size % 2))
            case 4:
                disk.remove(path)
            case 5 if disk.exists(path):
                disk.rename(path, other)
            case 6 if disk.exists(path):
                file = disk.open(path)
                file.append_all([data, data])
                seen.append((file.size, disk.size(path), file.read(size, position)))
        seen.append([(name, disk.read_file(f"{folder}/{name}")) for name in disk.list(folder)])
    return seen


def test_flushed_bytes_under_a_flushed_name_survive_every_cut() -> None:
    disk = new_disk()
    file = disk.open("/data/log", create=True)
    file.append(b"safe" * 1000)
    file.flush()
    disk.flush_folder("/data")
    file.append(b"not safe" * 1000)
    assert all(left_in(cut)["log"].startswith(b"safe" * 1000) for cut in cuts(disk))


def test_unflushed_pages_are_kept_lost_or_torn_in_any_order() -> None:
    disk = new_disk()
    file = disk.open("/data/log", create=True)
    disk.flush_folder("/data")
    for letter in b"abc":
        file.append(bytes([letter]) * PAGE)
    states = {left_in(cut)["log"] for cut in cuts(disk)}
    a, b, c, lost = b"a" * PAGE, b"b" * PAGE, b"c" * PAGE, bytes(PAGE)
    assert {b"", a, a + b, a + b + c, lost + b + c, a + lost + c} <= states
    torn = [state for state in states if b"a" in state and not state.startswith((a, a[:1] + lost))]
    assert any(0 < state.count(b"a") < PAGE for state in torn)


def test_a_page_that_was_written_twice_may_be_as_the_first_write_left_it() -> None:
    disk = new_disk()
    file = disk.open("/data/point", create=True)
    disk.flush_folder("/data")
    for text in (b"10", b"20", b"30"):
        file.write_at(text, 0)
    states = {left_in(cut)["point"] for cut in cuts(disk)}
    assert {b"", b"10", b"20", b"30"} <= states


def test_the_name_of_a_flushed_file_is_lost_until_its_folder_is_flushed() -> None:
    disk = new_disk()
    file = disk.open("/data/log", create=True)
    file.append(b"safe")
    file.flush()
    assert {tuple(left_in(cut)) for cut in cuts(disk)} == {(), ("log",)}
    disk.flush_folder("/data")
    assert {tuple(left_in(cut)) for cut in cuts(disk)} == {("log",)}


def test_a_lost_rename_leaves_the_old_file_and_never_both_or_none() -> None:
    disk = new_disk()
    disk.write_file("/data/checkpoint", [b"old"])
    disk.write_file("/data/new", [b"new"])
    disk.rename("/data/new", "/data/checkpoint")
    for names in Names:
        found = [left_in(cut) for cut in cuts(disk, names)]
        assert {"checkpoint": b"old", "new": b"new"} in found
        assert {"checkpoint": b"new"} in found
        assert all(state in found[:2] or state["checkpoint"] in (b"old", b"new") for state in found)


def test_names_come_back_in_order_or_in_any_order() -> None:
    disk = new_disk()
    for name in "abc":
        disk.open(f"/data/{name}", create=True)
    in_order = {"".join(left_in(cut)) for cut in cuts(disk)}
    assert in_order == {"", "a", "ab", "abc"}
    assert "c" in {"".join(left_in(cut)) for cut in cuts(disk, Names.IN_ANY_ORDER)}


def test_the_same_seed_leaves_the_same_disk_and_the_old_one_goes_on() -> None:
    disk = new_disk()
    file = disk.open("/data/log", create=True)
    file.append(b"x" * 5000)
    one, two = (disk.power_cut(Random(3), Now(0, 0)) for _ in range(2))
    assert left_in(one) == left_in(two)
    file.append(b"y")
    assert left_in(disk)["log"] == b"x" * 5000 + b"y"


def test_somebody_can_cut_the_power_before_every_change() -> None:
    disk = new_disk()
    seen: list[list[str]] = []
    disk.before_change = lambda: seen.append(disk.list("/data"))
    disk.write_file("/data/a", [b"1"])
    disk.remove("/data/a")
    # Made, written, flushed, renamed, the folder flushed; then removed.
    assert seen == [[], ["a.tmp"], ["a.tmp"], ["a.tmp"], ["a"], ["a"]]
