"""Stretches of offsets against plain sets, and what a kill leaves in a folder."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.records import Record
from headrace.services.backlog.parked import Owner, ParkingRun, Stretches
from headrace.services.backlog.parked_files import ParkedFiles, _Sent, _without

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8)


@given(SPANS)
def test_stretches_hold_what_was_added(spans: list[tuple[int, int]]) -> None:
    stretches = Stretches()
    for first, end in spans:
        stretches.add(0, first, end)
    held = {offset for first, end in spans for offset in range(first, end)}
    assert {offset for offset in range(40) if stretches.holds(0, offset)} == held
    found = stretches.by_partition.get(0, [])
    assert all(one[1] < other[0] for one, other in itertools.pairwise(found))


@given(st.tuples(st.integers(0, 30), st.integers(0, 30)), SPANS)
def test_an_earlier_parking_has_what_no_later_one_took(
    own: tuple[int, int], later: list[tuple[int, int]]
) -> None:
    run = ParkingRun("one", {0: own}, moved=True, at_ms=1)
    left = _without(run, Stretches.of([{0: span} for span in later]))
    taken = {offset for first, end in later for offset in range(first, end)}
    expected = set(range(*own)) - taken
    assert {offset for offset in range(40) if left.holds(0, offset)} == expected


@given(st.lists(st.lists(st.integers(0, 30), max_size=6), max_size=6))
def test_what_was_brought_back_is_known_after_a_start(batches: list[list[int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "brought-back.jsonl"
        sent = _Sent(path)
        for batch in batches:
            if batch:
                sent.add([(0, offset) for offset in batch])
                with path.open("ab") as file:
                    file.write(b"\n[0, 3")  # a kill in the middle of a line
        again = _Sent(path)
        held = {offset for batch in batches for offset in batch}
        for known in (sent, again):
            assert {offset for offset in range(40) if known.holds(0, offset)} == held


def test_a_parking_that_is_killed_while_it_writes_leaves_no_file_that_is_read(
    tmp_path: Path,
) -> None:
    owner = Owner("billing", "orders", "id")
    store = ParkedFiles(tmp_path, owner)
    store.prepare()
    store.begin(ParkingRun("killed", {0: (0, 5)}, moved=False, at_ms=1))
    store.put([Record("orders", 0, offset, 1, "create", b"k", b"v", []) for offset in range(5)])
    again = ParkedFiles(tmp_path, owner)
    assert [run.moved for run in again.runs()] == [False]
    assert list(again.waiting({0: 0})) == [] and again.spans() == []
