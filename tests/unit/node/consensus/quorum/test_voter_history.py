"""Voters by the offset of the record that named them, and what truncation undoes."""

from __future__ import annotations

from typing import Any

from headrace.node.consensus.batches import batches_in, control_batch
from headrace.node.consensus.quorum.messages import ReplicaKey
from headrace.node.consensus.quorum.voter_history import VoterHistory
from headrace.node.consensus.snapshots import Snapshot
from headrace.node.consensus.voters import Voter, kraft_version_record, voters_record

ANNA, BEN, CLEO = (Voter(n, bytes([n]) * 16) for n in (1, 2, 3))


def note(history: VoterHistory, offset: int, *messages: Any) -> None:
    data = control_batch(messages, base_offset=offset, epoch=1, wall_ms=0)
    for batch in batches_in(memoryview(data)):
        history.note(batch)


def test_a_record_counts_at_once_and_is_undone_by_truncation() -> None:
    history = VoterHistory((ANNA, BEN), kraft_version=1)
    note(history, 5, voters_record((ANNA, BEN, CLEO)))
    assert list(history.latest) == [ANNA, BEN, CLEO] and history.latest_offset == 5
    history.truncate(6)
    assert history.latest_offset == 5
    history.truncate(5)
    assert history.latest == (ANNA, BEN) and history.latest_offset == -1


def test_a_raised_kraft_version_is_undone_with_its_voters() -> None:
    history = VoterHistory((ANNA,), kraft_version=0)
    note(history, 7, kraft_version_record(1), voters_record((ANNA,)))
    assert history.kraft_version == 1
    history.truncate(7)
    assert history.kraft_version == 0


def test_a_snapshot_names_the_voters_before_its_end() -> None:
    history = VoterHistory((ANNA,), kraft_version=1)
    note(history, 5, voters_record((ANNA, BEN)))
    note(history, 9, voters_record((ANNA, BEN, CLEO)))
    assert history.before(9).voters == (ANNA, BEN)
    assert history.before(5).voters == (ANNA,)
    history.forget_before(9)
    history.truncate(9)
    assert history.latest == (ANNA, BEN), "what counted at offset 9 is still known"


def test_a_leaders_snapshot_replaces_everything() -> None:
    history = VoterHistory((ANNA,), kraft_version=1)
    note(history, 5, voters_record((ANNA, BEN)))
    history.begin_with(20, Snapshot(kraft_version=1, voters=(BEN, CLEO)))
    assert history.latest == (BEN, CLEO) and history.latest_offset == 19


def test_configured_voters_outlive_a_snapshot_that_names_none() -> None:
    history = VoterHistory((ANNA, BEN))
    history.begin_with(20, Snapshot())
    assert history.latest == (ANNA, BEN)


def test_a_voter_is_its_disk_too_unless_voters_are_configured() -> None:
    known = VoterHistory((ANNA,), kraft_version=1)
    assert known.is_voter(ReplicaKey(1, ANNA.directory_id))
    assert not known.is_voter(ReplicaKey(1, b"x" * 16))
    assert not known.is_voter(ReplicaKey(1)), "an old request names no directory"
    assert VoterHistory((Voter(1),)).is_voter(ReplicaKey(1, b"x" * 16))
