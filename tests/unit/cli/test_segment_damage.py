"""`headrace segment check` and `repair` on damaged data folders that a node wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer

from headrace.cli.failure import Failure
from headrace.cli.node.segment import check, repair
from headrace.node.consensus.metadata_recovery import UnusableMetadata
from headrace.node.process.folders.real_disk import FolderLock
from headrace.operations.files.damage.bit_search import mended
from headrace.wire.protocol.record_batch import Record, build
from tests.unit.node.broker.folders.failing_folder import TwoFolders
from tests.unit.node.broker.rig import Rig

METADATA = "__cluster_metadata-0"
FIRST_LOG = "00000000000000000000.log"
SECOND = "00000000000000000052"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics and three segments of a partition, after a clean stop."""
    folder = tmp_path_factory.mktemp("stopped") / "data"
    rig = Rig(folder)
    rig.create("orders", segment_bytes=1 << 20)
    rig.create("visits")
    for _ in range(120):
        rig.produce("orders", "x" * 20_000)
    rig.produce("visits", "a visit")
    rig.stop()
    return folder


@pytest.fixture
def data(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "data"))


def flip(path: Path, position: int, bit: int = 3) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


def checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What `check --json` says; its exit code must say the same."""
    code = 0
    try:
        check(folder, as_json=True)
    except typer.Exit as end:
        code = end.exit_code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == (1 if found["damaged"] else 0)
    return found


def repaired(
    folder: Path, capsys: pytest.CaptureFixture[str], *ways: str, dry: bool = False
) -> str:
    repair(folder, list(ways), dry_run=dry, as_json=False)
    return capsys.readouterr().out


def topics_of(folder: Path) -> set[str]:
    rig = Rig(folder)
    topics = set(rig.node.controller.image.topics)
    rig.stop()
    return topics


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_whole_folder_has_no_damage_after_a_clean_stop_and_after_a_kill(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = checked(data, capsys)
    assert found["findings"] == [] and found["clean_stop"] and found["logs"] == 3
    (data / ".kafka_cleanshutdown").unlink()
    found = checked(data, capsys)
    assert found["findings"] == [] and not found["clean_stop"]


EVERY_KIND = [
    (f"{METADATA}/{FIRST_LOG}", 900, "CRC"),
    (f"{METADATA}/00000000000000000000-0000000000.checkpoint", 120, "CRC"),
    (f"{METADATA}/quorum-state", 15, "leaderEpoch"),
    (f"{METADATA}/recovery-point", 15, "checksum"),
    (f"orders-0/{FIRST_LOG}", 30_000, "CRC"),
    (f"orders-0/{SECOND}.log", 2 * 20_072 + 3, "offset"),
    (f"orders-0/{SECOND}.index", 101, "1 of 51 entries"),
    (f"orders-0/{SECOND}.timeindex", 5, "1 of 1 entries"),
    (f"orders-0/{SECOND}.snapshot", 5, "checksum"),
    ("orders-0/leader-epoch-checkpoint", 4, "leader epoch 0"),
    ("orders-0/partition.metadata", 13, "topic_id"),
    ("meta.properties", 40, "checksum"),
    ("bootstrap.checkpoint", 100, "CRC"),
    ("recovery-point-offset-checkpoint", 3, "entries"),
]


@pytest.mark.parametrize(("name", "position", "said"), EVERY_KIND)
def test_one_flipped_bit_is_found_and_named(
    data: Path, capsys: pytest.CaptureFixture[str], name: str, position: int, said: str
) -> None:
    flip(data / name, position)
    before = files_of(data)
    (finding,) = checked(data, capsys)["findings"]
    assert finding["file"] == name and said in finding["what"] and finding["ways"]
    assert files_of(data) == before, "a check changes nothing"


def test_all_ways_together_mend_everything_and_keep_what_was_there(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = files_of(data)
    for name, position, _ in EVERY_KIND:
        flip(data / name, position)
    damaged = files_of(data)
    assert checked(data, capsys)["damaged"] == len(EVERY_KIND)
    every = ("flip-bits", "rebuild", "set-aside", "new-epoch", "identity")
    would = repaired(data, capsys, *every, dry=True)
    assert would.count("would flip one bit") == 5 and files_of(data) == damaged
    said = repaired(data, capsys, "flip-bits", "rebuild")
    said += repaired(data, capsys, "set-aside", "new-epoch", "identity")
    assert checked(data, capsys)["findings"] == []
    for name in (f"{METADATA}/{FIRST_LOG}", f"orders-0/{FIRST_LOG}", f"orders-0/{SECOND}.log"):
        assert (data / name).read_bytes() == whole[name], "to the bit"
    kept = {p.read_bytes() for p in data.rglob("set-aside/*/**/*") if p.is_file()}
    assert {damaged[name] for name, _, _ in EVERY_KIND} <= kept, said
    assert topics_of(data) == {"orders", "visits"}


@pytest.mark.parametrize("epoch", [(1 << 31) - 2, (1 << 31) - 1, 1 << 31])
def test_a_folder_whose_epochs_are_used_up_gets_a_later_epoch_and_starts(
    data: Path, capsys: pytest.CaptureFixture[str], epoch: int
) -> None:
    state = data / METADATA / "quorum-state"
    fields = json.loads(state.read_bytes())
    before = fields["leaderEpoch"]
    state.write_text(json.dumps(fields | {"leaderEpoch": epoch}))
    with pytest.raises(UnusableMetadata, match="segment repair"):
        Rig(data)
    found = checked(data, capsys)
    assert [finding["ways"] for finding in found["findings"]] == [["new-epoch"]]
    assert str(epoch) in found["start_refused"]
    repaired(data, capsys, "new-epoch")
    written = json.loads(state.read_bytes())
    assert before < written["leaderEpoch"] < before + 2_000 and written["votedId"] == -1
    assert checked(data, capsys)["findings"] == []
    assert topics_of(data) == {"orders", "visits"}


def test_a_deleted_quorum_state_is_found(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = data / METADATA / "quorum-state"
    state.unlink()
    found = checked(data, capsys)
    assert [finding["file"] for finding in found["findings"]] == [f"{METADATA}/quorum-state"]
    assert found["start_refused"] is None
    assert topics_of(data) == {"orders", "visits"}, "a start goes on in a later epoch"
    assert checked(data, capsys)["findings"] == []


def test_a_torn_end_after_a_kill_is_no_damage(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    for name in (METADATA, "visits-0"):
        with (data / name / FIRST_LOG).open("ab") as file:
            file.write(b"\x01" * 30)
    found = checked(data, capsys)
    assert found["damaged"] == 0 and found["start_refused"] is None
    assert [finding["kind"] for finding in found["findings"]] == ["unfinished"] * 2


def test_the_metadata_log_is_cut_only_by_name_and_says_what_is_lost(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = data / METADATA / FIRST_LOG
    position = log.read_bytes().index(b"visits")
    flip(log, position, 0)
    flip(log, position + 1, 0)
    found = checked(data, capsys)
    assert "had been flushed" in found["start_refused"]
    with pytest.raises(typer.Exit):  # two bits: no flip mends it
        repaired(data, capsys, "flip-bits")
    capsys.readouterr()
    said = repaired(data, capsys, "cut-metadata")
    assert "the metadata log ends at offset" in said and "kept in" in said
    assert checked(data, capsys)["start_refused"] is None
    assert topics_of(data) == {"orders"}


def test_without_a_way_the_ways_are_shown_and_nothing_is_done(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(data / METADATA / FIRST_LOG, 900)
    before = files_of(data)
    with pytest.raises(typer.Exit):
        repair(data, [], dry_run=False, as_json=False)
    said = capsys.readouterr().out
    assert said.index("flip-bits") < said.index("cut-metadata") and "what it loses".upper() in said
    assert files_of(data) == before


def test_a_folder_in_use_is_not_repaired_and_other_folders_are_named_as_such(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = FolderLock(str(data))
    with pytest.raises(Failure, match="stop it before"):
        repair(data, [], dry_run=False, as_json=False)
    check(data, as_json=False)
    assert "may look damaged" in capsys.readouterr().err
    lock.release()
    with pytest.raises(Failure, match="is not a data folder"):
        check(tmp_path, as_json=False)
    with pytest.raises(Failure, match="no way named 'magic'"):
        repair(data, ["magic"], dry_run=False, as_json=False)


def test_a_lost_identity_is_written_from_the_voters(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "meta.properties").unlink()
    assert checked(data, capsys)["start_refused"].endswith("meta.properties is missing")
    assert "(a new one)" in repaired(data, capsys, "identity")
    assert topics_of(data) == {"orders", "visits"}


def test_every_single_bit_of_a_batch_can_be_found_again() -> None:
    batch = build([Record(b"key", b"value" * 5, timestamp=7)], base_offset=40, leader_epoch=3)
    outside = range(12 * 8, 16 * 8)  # the leader epoch: nothing tells what it must be
    for bit in set(range(len(batch) * 8)) - set(outside):
        damaged = bytearray(batch)
        damaged[bit // 8] ^= 1 << bit % 8
        assert mended(bytes(damaged), base_offset=40) == batch
    twice = bytearray(batch)
    twice[70] ^= 9
    assert mended(bytes(twice), base_offset=40) is None


def test_unflushed_damage_that_a_start_would_cut_much_behind_is_named_before_that(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One bit in the middle, and the checkpoint vouches for nothing."""
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").write_bytes(b"0\n0\n")
    flip(data / "orders-0" / FIRST_LOG, 30_000)
    [finding] = checked(data, capsys)["findings"]
    assert finding["kind"] == "damaged" and "with all that follows" in finding["advice"]
    repaired(data, capsys, "flip-bits")
    assert checked(data, capsys)["findings"] == []


def test_a_second_data_folder_is_checked_without_the_metadata(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = TwoFolders(tmp_path)
    rig.create("orders", 2)
    rig.stop()
    found = checked(rig.two, capsys)
    assert [each["kind"] for each in found["findings"]] == ["note"]
    assert "it is in another data folder of this node" in found["findings"][0]["what"]
