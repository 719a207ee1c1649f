"""Entries of the journal: what is written is read again, and what is none is passed over."""

from __future__ import annotations

import pytest

from headrace.services.replay.journal import (
    MOVED,
    CopyEntry,
    GroupEntry,
    Journal,
    parsed,
    written,
)
from headrace.wire.contract.own_records import FAULTS

COPY = CopyEntry(
    "n/1", "orders", "ID", "again", {"selection": {}}, {0: 3, 1: 9}, {0: 5, 1: 9}, "me", 7, 8
)
MOVE = GroupEntry("a/b", MOVED, [("t", 0, None), ("t", 1, 5)], [("t", 0, 1)], "me", 9, "why")


def test_entries_are_read_as_they_were_written() -> None:
    for entry in (COPY, MOVE):
        assert parsed(entry.key, written(entry)) == entry
    assert COPY.left == 2


@pytest.mark.parametrize("key", [None, b"", b"copy/x", b"group/1/x", b"\xff", b"other/x"])
@pytest.mark.parametrize("value", [None, b"", b"[]", b"{}", b"7", b'{"topic": 5}', b"\xff"])
def test_what_somebody_else_wrote_is_no_entry(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(FAULTS):
        parsed(key, value)


def test_the_last_move_of_a_group_is_the_one_to_undo() -> None:
    later = GroupEntry("a/b", MOVED, [], [], "me", 10)
    other = GroupEntry("c", MOVED, [], [], "me", 11)
    assert Journal(moves=[MOVE, later, other]).last_move("a/b") is later
    assert Journal(moves=[MOVE]).last_move("c") is None
