"""Damage in the folder of the metadata log: what a start cuts, passes over or refuses.

`tests/unit/node/storage/test_batch_scan.py` has the scan itself; bit flips in every file of a
whole data folder are in `tests/unit/bit_flips.py`.
"""

from __future__ import annotations

import logging
from itertools import product
from pathlib import Path

import pytest

from headrace.node.consensus.metadata_recovery import UnusableMetadata
from headrace.node.consensus.quorum_state import read_quorum_state, write_quorum_state
from headrace.node.consensus.recovery_point import read_recovery_point
from headrace.node.controller.controller_settings import ControllerSettings
from headrace.node.process.folders.real_disk import RealDisk
from tests.unit.node.consensus.quorum_of_one import QuorumOfOne
from tests.unit.node.consensus.test_metadata_log import batches, log_file

NAMES = ["orders", "visits", "clicks"]


def metadata(folder: Path) -> Path:
    return folder / "__cluster_metadata-0"


def flip(path: Path, position: int, bit: int = 3) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def killed_with_topics(folder: Path) -> QuorumOfOne:
    """Three topics, all of them flushed; the log goes on in memory of nobody."""
    quorum = QuorumOfOne(folder, ControllerSettings(snapshot_after_bytes=1 << 40))
    for name in NAMES:
        quorum.create(name)
        quorum.flush()
    return quorum


def snapshot(quorum: QuorumOfOne) -> Path:
    quorum.controller.settings.snapshot_after_bytes = 1
    quorum.controller.tick(quorum.now)
    quorum.do_background_work()
    quorum.controller.settings.snapshot_after_bytes = 1 << 40
    return metadata(quorum.folder) / quorum.log.snapshots[-1].file_name


def topics_after_start(folder: Path) -> set[str]:
    return set(QuorumOfOne(folder).controller.image.topics)


def refusal(folder: Path) -> str:
    """The sentence; nothing in the log's folder has changed."""
    before = {path.name: path.read_bytes() for path in metadata(folder).iterdir()}
    with pytest.raises(UnusableMetadata) as refused:
        QuorumOfOne(folder)
    after = {path.name: path.read_bytes() for path in metadata(folder).iterdir()}
    assert before == after
    return str(refused.value)


@pytest.mark.parametrize("where", ["payload", "base offset", "length", "epoch", "magic", "crc"])
def test_a_flipped_bit_in_what_was_flushed_is_refused_with_a_sentence(
    tmp_path: Path, where: str
) -> None:
    killed_with_topics(tmp_path)
    at = {"payload": 70, "base offset": 7, "length": 11, "epoch": 12, "magic": 16, "crc": 19}
    third = [batch.base_offset for batch in batches(tmp_path)][3]
    position = log_file(tmp_path).read_bytes().index(third.to_bytes(8, "big"))
    flip(log_file(tmp_path), position + at[where])
    said = refusal(tmp_path)
    assert f"{log_file(tmp_path)} at byte {position} (offset {third})" in said
    assert f"headrace segment check {tmp_path}" in said


def test_a_log_that_lost_flushed_batches_at_its_end_is_refused(tmp_path: Path) -> None:
    quorum = killed_with_topics(tmp_path)
    last = batches(tmp_path)[-1]
    file = log_file(tmp_path)
    file.write_bytes(file.read_bytes()[: -len(file.read_bytes()) // 4])
    said = refusal(tmp_path)
    assert "flushed" in said and last.last_offset + 1 == quorum.storage.recovery_point


def test_what_was_not_flushed_is_cut_and_kept_beside_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quorum = killed_with_topics(tmp_path)
    flushed = log_file(tmp_path).stat().st_size
    quorum.create("unflushed-1")
    quorum.create("unflushed-2")
    flip(log_file(tmp_path), flushed + 65)
    tail = log_file(tmp_path).read_bytes()[flushed:]
    assert topics_after_start(tmp_path) == set(NAMES)
    (kept,) = metadata(tmp_path).glob("*.cut-at-*")
    assert kept.read_bytes() == tail
    (said,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert str(kept) in said and f"{len(tail)} bytes" in said and "had not been flushed" in said


def test_zeros_behind_the_log_are_cut_without_a_copy(tmp_path: Path) -> None:
    killed_with_topics(tmp_path)
    with log_file(tmp_path).open("ab") as file:
        file.write(bytes(5_000))
    assert topics_after_start(tmp_path) == set(NAMES)
    assert not list(metadata(tmp_path).glob("*.cut-at-*"))


def test_without_a_recovery_point_only_damage_at_the_very_end_is_torn(tmp_path: Path) -> None:
    """A folder of Apache Kafka's, or of a version that did not write the file."""
    killed_with_topics(tmp_path)
    (metadata(tmp_path) / "recovery-point").unlink()
    whole = log_file(tmp_path).read_bytes()
    flip(log_file(tmp_path), len(whole) // 2)
    assert "flushed" in refusal(tmp_path)
    log_file(tmp_path).write_bytes(whole[:-5])
    assert topics_after_start(tmp_path) == {"orders", "visits"}


def test_a_torn_line_of_the_recovery_point_leaves_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed_with_topics(tmp_path)
    path = metadata(tmp_path) / "recovery-point"
    first = read_recovery_point(RealDisk(), str(metadata(tmp_path)))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20] + bytes(20))
    older = read_recovery_point(RealDisk(), str(metadata(tmp_path)))
    assert older is not None and first is not None and older < first
    assert "is torn" in caplog.text
    assert topics_after_start(tmp_path) == set(NAMES)


def test_a_damaged_recovery_point_is_said_and_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed_with_topics(tmp_path)
    flip(metadata(tmp_path) / "recovery-point", 18)
    assert topics_after_start(tmp_path) == set(NAMES)
    assert "recovery-point fails its checksum" in caplog.text
    quorum = QuorumOfOne(tmp_path)
    written = read_recovery_point(RealDisk(), str(metadata(tmp_path)))
    assert written == quorum.storage.recovery_point


def test_damage_that_the_newest_snapshot_covers_costs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quorum = killed_with_topics(tmp_path)
    snapshot(quorum)
    quorum.create("later")
    quorum.flush()
    flip(log_file(tmp_path), 100)
    old = log_file(tmp_path).read_bytes()
    assert topics_after_start(tmp_path) == {*NAMES, "later"}
    (kept,) = metadata(tmp_path).glob("*.damaged-*")
    assert kept.read_bytes() == old
    assert "A snapshot covers it, nothing is lost" in caplog.text
    assert topics_after_start(tmp_path) == {*NAMES, "later"}, "and the next start finds it whole"


def test_a_damaged_snapshot_is_passed_over_while_the_log_has_what_it_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newest = snapshot(killed_with_topics(tmp_path))
    flip(newest, 90)
    assert topics_after_start(tmp_path) == set(NAMES)
    assert f"{newest} is damaged: byte 0" in caplog.text


def test_a_damaged_snapshot_and_a_damaged_log_are_refused(tmp_path: Path) -> None:
    newest = snapshot(killed_with_topics(tmp_path))
    flip(newest, 90)
    flip(log_file(tmp_path), 100)
    assert "is damaged" in refusal(tmp_path)


def test_a_damaged_snapshot_does_not_stop_later_ones_from_taking_its_place(tmp_path: Path) -> None:
    settings = ControllerSettings(snapshot_after_bytes=1 << 40, retention_bytes=1)
    first = QuorumOfOne(tmp_path, ControllerSettings(snapshot_after_bytes=1 << 40))
    first.create("orders")
    first.flush()
    flip(snapshot(first), 90)
    quorum = QuorumOfOne(tmp_path, settings)
    for name in ("visits", "clicks"):
        quorum.create(name)
        quorum.flush()
        snapshot(quorum)
    assert topics_after_start(tmp_path) == set(NAMES)


def test_first_voters_that_are_damaged_before_the_first_start_are_refused(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    log_file(tmp_path).unlink()
    for name in ("quorum-state", "recovery-point"):
        (metadata(tmp_path) / name).unlink()
    flip(metadata(tmp_path) / quorum.log.snapshots[0].file_name, 80)
    with pytest.raises(UnusableMetadata, match="names the voters is damaged"):
        QuorumOfOne(tmp_path)


def test_a_segment_that_is_missing_in_the_middle_is_refused(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path, segment_bytes=600)
    for number in range(12):
        quorum.create(f"topic-{number}")
        quorum.flush()
    logs = sorted(metadata(tmp_path).glob("*.log"))
    assert len(logs) > 3
    logs[2].unlink()
    assert "the segment begins at offset" in refusal(tmp_path)


def test_an_epoch_that_no_voter_was_in_is_damage(tmp_path: Path) -> None:
    killed_with_topics(tmp_path)
    disk = RealDisk()
    state = read_quorum_state(disk, str(metadata(tmp_path)))
    assert state is not None
    state.leader_epoch = 0
    write_quorum_state(disk, str(metadata(tmp_path)), state)
    assert "the leader epoch of the batch is 1, and quorum-state knows none above 0" in refusal(
        tmp_path
    )


def test_a_flip_anywhere_in_the_log_never_loses_a_topic(tmp_path: Path) -> None:
    """The claim itself: whatever bit it is, all topics are there or the start is refused."""
    quorum = killed_with_topics(tmp_path)
    whole = log_file(tmp_path).read_bytes()
    verdicts: dict[str, int] = {"started": 0, "refused": 0}
    for position in range(0, len(whole), 7):
        log_file(tmp_path).write_bytes(whole)
        flip(log_file(tmp_path), position, position % 8)
        try:
            quorum.open()
        except UnusableMetadata:
            verdicts["refused"] += 1
        else:
            verdicts["started"] += 1
            assert set(quorum.log.image.topics) == set(NAMES)
    assert verdicts["refused"] > 200


def test_whatever_a_power_cut_leaves_of_unflushed_batches_the_flushed_topics_are_there(
    tmp_path: Path,
) -> None:
    """Each unflushed batch reached the disk, or not, or half, in every combination; the recovery
    point is the last that was written, or an older one, or the file is gone."""
    quorum = QuorumOfOne(tmp_path, ControllerSettings(snapshot_after_bytes=1 << 40))
    older = (metadata(tmp_path) / "recovery-point").read_bytes()
    for name in NAMES:
        quorum.create(name)
        quorum.flush()
    flushed = log_file(tmp_path).read_bytes()
    pieces = []
    for number in range(3):
        before = log_file(tmp_path).stat().st_size
        quorum.create(f"unflushed-{number}")
        pieces.append(log_file(tmp_path).read_bytes()[before:])
    newest = (metadata(tmp_path) / "recovery-point").read_bytes()
    assert newest != older
    states = 0
    for point in (newest, older):
        for fates in product(("whole", "lost", "torn"), repeat=len(pieces)):
            (metadata(tmp_path) / "recovery-point").write_bytes(point)
            tail = b"".join(map(left_of, pieces, fates))
            for end in (tail, tail.rstrip(b"\0")):  # the size of the file is on the disk, or not
                log_file(tmp_path).write_bytes(flushed + end)
                quorum.open()
                assert set(NAMES) <= set(quorum.log.image.topics)
                states += 1
    assert states == 108


def left_of(piece: bytes, fate: str) -> bytes:
    kept = {"whole": len(piece), "lost": 0, "torn": len(piece) // 2}[fate]
    return piece[:kept] + bytes(len(piece) - kept)
