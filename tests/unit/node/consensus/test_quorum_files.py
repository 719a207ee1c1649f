"""The machine's log on real storage: epochs, truncation, snapshots, and what a power cut leaves."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from headrace.environment import Now
from headrace.node.consensus.batches import control_batch, metadata_batch
from headrace.node.consensus.metadata_recovery import prepare_log
from headrace.node.consensus.quorum.messages import OffsetAndEpoch, ReplicaKey
from headrace.node.consensus.quorum.quorum_log import Election
from headrace.node.consensus.quorum.voter_history import VoterHistory
from headrace.node.consensus.quorum_files import QuorumFiles, QuorumStateFile
from headrace.node.consensus.snapshots import SnapshotId, snapshot_batches
from headrace.node.consensus.voters import Voter, voters_record
from headrace.node.simulator.disk import VirtualDisk
from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.durability.unwritten import Unwritten
from headrace.node.storage.log_settings import LogSettings
from headrace.node.storage.partition_log import PartitionLog
from headrace.wire.protocol.errors import KafkaError, MalformedMessage
from headrace.wire.protocol.messages.no_op_record import NoOpRecord

FOLDER = "__cluster_metadata-0"
NOW = Now(1_000, 1_700_000_000_000)
ANNA, BEN = Voter(1, b"a" * 16), Voter(2, b"b" * 16)


class PowerCut(Exception):
    """The node does nothing more."""


class OnDisk:
    """A member's files, opened as a start opens them."""

    def __init__(self, disk: VirtualDisk) -> None:
        self.disk = disk
        disk.make_folder(FOLDER)
        opening = prepare_log(disk, FOLDER, clean=False, wall_ms=NOW.wall_ms)
        self.log = PartitionLog.open(
            OpenFiles(disk),
            FOLDER,
            LogSettings(retention_ms=-1),
            now_wall_ms=NOW.wall_ms,
            start_offset=opening.start_offset,
            recovery_point=opening.recovery_point,
            unwritten=Unwritten(),
            wants_flush=[],
        )
        self.files = QuorumFiles(disk, FOLDER, self.log)

    def append(self, epoch: int, count: int = 1) -> None:
        for _ in range(count):
            batch = metadata_batch(
                [NoOpRecord()],
                base_offset=self.files.end_offset,
                epoch=epoch,
                wall_ms=NOW.wall_ms,
                metadata_version=30,
            )
            self.files.append(batch, wall_ms=NOW.wall_ms)

    def flush(self) -> None:
        flush = self.log.flush_target(everything=True)
        assert flush is not None
        flush.run(self.disk)
        assert self.files.flushed(flush)

    def after_power_cut(self, seed: int) -> OnDisk:
        return OnDisk(self.disk.power_cut(Random(seed), NOW))

    def give(self, snapshot_id: SnapshotId, content: bytes) -> None:
        for at in range(0, len(content), 100):
            self.files.write_snapshot(snapshot_id, at, content[at : at + 100])


def new() -> OnDisk:
    return OnDisk(VirtualDisk(NOW))


def snapshot(voters: tuple[Voter, ...] = (ANNA,)) -> bytes:
    pieces = snapshot_batches(
        [NoOpRecord()],
        epoch=3,
        last_contained_ms=NOW.wall_ms,
        wall_ms=NOW.wall_ms,
        metadata_version=30,
        kraft_version=1,
        voters=voters,
    )
    return b"".join(pieces)


def test_epochs_are_known_by_their_ends() -> None:
    here = new()
    assert here.files.last_epoch == 0 and here.files.end_of_epoch(7) == OffsetAndEpoch(0, 0)
    here.append(1, 3)
    here.append(4, 2)
    assert here.files.last_epoch == 4
    assert here.files.end_of_epoch(1) == OffsetAndEpoch(3, 1)
    assert here.files.end_of_epoch(3) == OffsetAndEpoch(3, 1)
    assert here.files.end_of_epoch(9) == OffsetAndEpoch(5, 4)
    assert here.files.end_of_epoch(0) == OffsetAndEpoch(0, 0)


def test_only_what_was_flushed_counts_and_survives() -> None:
    here = new()
    here.append(1, 3)
    assert here.files.flushed_offset == 0
    here.flush()
    assert here.files.flushed_offset == 3
    here.append(1, 3)
    ends = set()
    for seed in range(30):
        there = here.after_power_cut(seed)
        assert 3 <= there.files.end_offset <= 6
        ends.add(there.files.end_offset)
    assert len(ends) > 1, "some cuts keep more than was flushed"


def test_a_truncation_is_durable_with_the_next_flush_and_harmless_before() -> None:
    here = new()
    here.append(1, 6)
    here.flush()
    here.files.truncate(2, wall_ms=NOW.wall_ms)
    here.append(5, 2)
    assert here.files.flushed_offset == 2
    for seed in range(30):
        there = here.after_power_cut(seed).files
        assert there.end_of_epoch(1).offset >= 2, "what both histories share is never lost"
        assert there.last_epoch in (1, 5)
    here.flush()
    for seed in range(10):
        there = here.after_power_cut(seed).files
        assert (there.end_offset, there.last_epoch) == (4, 5)


def test_a_flush_that_began_before_a_truncation_proves_nothing() -> None:
    here = new()
    here.append(1, 6)
    slow = here.log.flush_target(everything=True)
    assert slow is not None
    here.files.truncate(2, wall_ms=NOW.wall_ms)
    here.append(5, 4)
    slow.run(here.disk)
    assert not here.files.flushed(slow) and here.files.flushed_offset <= 2


def test_a_log_that_begins_with_zeros_and_was_not_flushed_begins_anew() -> None:
    """It was truncated to nothing and written again, and only a later page reached the disk."""
    here = new()
    here.append(1, 2)
    path = f"{FOLDER}/{0:020d}.log"
    torn = bytes(100) + here.disk.read_file(path)
    here.disk.write_file(path, [torn])
    there = OnDisk(here.disk)
    assert there.files.end_offset == 0
    assert torn in [here.disk.read_file(f"{FOLDER}/{n}") for n in here.disk.list(FOLDER)], "kept"


def test_a_read_gives_whole_batches() -> None:
    here = new()
    here.append(1, 5)
    whole = here.files.read(0, 1 << 20)
    one = len(whole) // 5
    assert here.files.read(0, 10) == whole[:one], "at least one"
    assert here.files.read(1, 2 * one + 5) == whole[one : 3 * one]
    assert here.files.read(5, 100) == b""


def test_a_leaders_snapshot_takes_the_place_of_the_log() -> None:
    here = new()
    here.append(1, 4)
    here.flush()
    snapshot_id, content = SnapshotId(40, 3), snapshot((ANNA, BEN))
    here.give(snapshot_id, content)
    installed = here.files.install_snapshot(snapshot_id, wall_ms=NOW.wall_ms)
    assert installed.voters == (ANNA, BEN)
    for there in (here, here.after_power_cut(1), here.after_power_cut(2)):
        files = there.files
        assert (files.start_offset, files.end_offset, files.last_epoch) == (40, 40, 3)
        assert files.latest_snapshot() == files.earliest_snapshot() == snapshot_id
        assert files.snapshot_size(snapshot_id) == len(content)
        assert files.read_snapshot(snapshot_id, 10, 20) == content[10:30]
        assert files.load_voters(VoterHistory()).latest == (ANNA, BEN)
    here.append(6)
    assert here.files.end_of_epoch(5) == OffsetAndEpoch(40, 3)


def test_a_crash_at_any_moment_of_an_installation_leaves_the_old_log_or_the_snapshot() -> None:
    snapshot_id, content = SnapshotId(40, 3), snapshot()
    seen = set()
    for stop in range(60):
        here = new()
        here.append(1, 50)  # longer than the snapshot, and of an epoch that lost
        here.flush()
        here.give(snapshot_id, content)
        here.disk.changes = 0

        def cut(disk: VirtualDisk = here.disk, stop: int = stop) -> None:
            if disk.changes == stop:
                raise PowerCut

        here.disk.before_change = cut
        with suppress(PowerCut):
            here.files.install_snapshot(snapshot_id, wall_ms=NOW.wall_ms)
        here.disk.before_change = None
        there = here.after_power_cut(stop).files
        seen.add((there.start_offset, there.end_offset, there.last_epoch))
    assert seen == {(0, 50, 1), (40, 40, 3)}


def test_a_damaged_snapshot_changes_nothing() -> None:
    here = new()
    here.append(1, 4)
    damaged = bytearray(snapshot())
    damaged[70] ^= 1
    here.give(SnapshotId(40, 3), bytes(damaged))
    with pytest.raises(MalformedMessage):
        here.files.install_snapshot(SnapshotId(40, 3), wall_ms=NOW.wall_ms)
    assert here.files.latest_snapshot() is None and here.files.end_offset == 4
    assert not [name for name in here.disk.list(FOLDER) if name.endswith(".part")]


def test_a_download_that_was_not_finished_is_forgotten() -> None:
    here = new()
    here.files.write_snapshot(SnapshotId(40, 3), 0, b"a piece")
    here.disk.flush_folder(FOLDER)
    there = here.after_power_cut(1)
    assert there.files.latest_snapshot() is None
    assert not [name for name in there.disk.list(FOLDER) if "checkpoint" in name and "4" in name]


def test_voters_are_read_from_the_log() -> None:
    here = new()
    here.append(1, 2)
    record = control_batch([voters_record((ANNA, BEN))], base_offset=2, epoch=1, wall_ms=0)
    here.files.append(record, wall_ms=NOW.wall_ms)
    history = here.files.load_voters(VoterHistory((ANNA,), kraft_version=1))
    assert history.latest == (ANNA, BEN) and history.latest_offset == 2


def test_a_vote_survives_a_power_cut() -> None:
    disk = VirtualDisk(NOW)
    disk.make_folder(FOLDER)
    disk.flush_folder("")
    state = QuorumStateFile(disk, FOLDER)
    assert state.read() is None
    for election in (
        Election(3, -1, ReplicaKey(2, b"b" * 16)),
        Election(3, 2),
        Election(4, -1, ReplicaKey(1, b"a" * 16)),
    ):
        state.write(election)
        for seed in range(5):
            later = disk.power_cut(Random(seed), NOW)
            assert QuorumStateFile(later, FOLDER).read() == election


def test_a_removal_survives_a_power_cut_and_can_be_forgotten() -> None:
    disk = VirtualDisk(NOW)
    disk.make_folder(FOLDER)
    disk.flush_folder("")
    assert not QuorumStateFile(disk, FOLDER).read_removal()
    for removed in (True, False):
        QuorumStateFile(disk, FOLDER).write_removal(removed=removed)
        for seed in range(5):
            later = disk.power_cut(Random(seed), NOW)
            assert QuorumStateFile(later, FOLDER).read_removal() == removed


def test_a_full_disk_refuses_records_and_an_unreadable_one_ends_the_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a log that it can neither write nor read it would fetch no more, and name the leaders
    of before for ever."""
    here = new()
    here.append(1)
    here.disk.is_full = True
    with pytest.raises(KafkaError):
        here.append(1)
    here.disk.is_full = False
    here.append(1)
    assert here.files.end_offset == 2
    here.disk.broken.add(FOLDER)
    # As when a part of it was written: what is left has to be read from the file.
    monkeypatch.setattr(PartitionLog, "take_back", lambda log, pieces: False)
    with pytest.raises(OSError, match="the metadata log cannot be read"):
        here.append(1)
