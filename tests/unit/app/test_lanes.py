"""Which record may run now: lanes against a plain model of what must not overtake what."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.app.dispatch.lanes import Lanes, OrderBy, Run
from tests.effort import examples


@dataclass
class Queued:
    lane: str
    number: int
    came: int = 0


def test_one_key_waits_and_the_others_go_on() -> None:
    lanes: Lanes[Queued] = Lanes("key")
    lanes.add([Queued("a", 1), Queued("b", 2), Queued("a", 3), Queued("c", 4)])
    first = lanes.take(1)
    assert first is not None and first.records[0].number == 1
    other = lanes.take(1)
    assert other is not None and other.records[0].number == 2
    lanes.hold(first, first.records)
    last = lanes.take(1)
    assert last is not None and last.records[0].number == 4
    assert lanes.take(1) is None
    lanes.release("a")
    again = lanes.take(5)
    assert again is not None and [record.number for record in again.records] == [1, 3]


def test_of_the_keys_that_may_run_the_one_whose_record_came_first_is_next() -> None:
    """So that what is finished stays together, and a key with much to do does not run ahead."""
    lanes: Lanes[Queued] = Lanes("key")
    lanes.add(
        [
            Queued("a", 1),
            Queued("a", 2),
            Queued("b", 3),
            Queued("a", 4),
            Queued("c", 5),
            Queued("b", 6),
        ]
    )
    order = []
    while (run := lanes.take(1)) is not None:
        order += [record.number for record in run.records]
        lanes.done(run)
    assert order == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("order_by", ["key", None])
def test_what_waited_elsewhere_goes_before_all_others(order_by: OrderBy) -> None:
    lanes: Lanes[Queued] = Lanes(order_by)
    lanes.add([Queued("a", 3), Queued("b", 4)])
    lanes.add_first([Queued("c", 1), Queued("d", 2)])
    taken = [run.records[0].number for run in iter(lambda: lanes.take(1), None)]
    assert taken == [1, 2, 3, 4]


def test_lanes_that_are_dropped_leave_the_others_as_they_were() -> None:
    lanes: Lanes[Queued] = Lanes("key")
    lanes.add([Queued("a", 1), Queued("b", 2), Queued("c", 3), Queued("b", 4)])
    lanes.drop(lambda record: record.lane == "a")
    assert (lanes.waiting, lanes.ready) == (3, 2)
    taken = [run.records for run in iter(lambda: lanes.take(5), None)]
    assert [[record.number for record in records] for records in taken] == [[2, 4], [3]]


def test_a_held_lane_with_nothing_in_it_stays_held_when_others_are_dropped() -> None:
    """A dead letter of its last record is being written: the next record waits for that."""
    lanes: Lanes[Queued] = Lanes("key")
    lanes.add([Queued("a", 1), Queued("b", 2)])
    run = lanes.take(1)
    assert run is not None
    lanes.hold(run, [])
    lanes.drop(lambda record: record.lane == "b")
    lanes.add([Queued("a", 3)])
    assert lanes.take(1) is None
    lanes.release("a")
    after = lanes.take(1)
    assert after is not None and [record.number for record in after.records] == [3]


def test_without_order_a_run_is_whatever_comes_next() -> None:
    lanes: Lanes[Queued] = Lanes(None)
    lanes.add([Queued("a", 1), Queued("a", 2), Queued("a", 3)])
    assert [j.number for j in (lanes.take(2) or Run([], None)).records] == [1, 2]
    assert [j.number for j in (lanes.take(2) or Run([], None)).records] == [3]
    assert lanes.take(1) is None


def test_what_waits_behind_a_failure_can_be_taken_elsewhere() -> None:
    lanes: Lanes[Queued] = Lanes("key")
    lanes.add([Queued("a", 1), Queued("a", 2), Queued("b", 3)])
    run = lanes.take(1)
    assert run is not None
    assert [record.number for record in lanes.empty(run)] == [2]
    lanes.done(run)
    assert lanes.waiting == 1


@settings(max_examples=examples(40))
@given(st.data(), st.sampled_from(["key", "partition", None]))
def test_nothing_overtakes_within_its_lane_and_nothing_is_lost(
    data: st.DataObject, order_by: OrderBy
) -> None:
    lanes: Lanes[Queued] = Lanes(order_by)
    out: list[Run[Queued]] = []
    held: list[str] = []
    added, handled = 0, []
    for _ in range(data.draw(st.integers(0, 60))):
        match data.draw(st.sampled_from(["add", "take", "done", "hold", "release"])):
            case "add":
                names = data.draw(st.lists(st.sampled_from("abc"), max_size=4))
                lanes.add([Queued(name, added + i) for i, name in enumerate(names)])
                added += len(names)
            case "take":
                run = lanes.take(data.draw(st.integers(1, 3)))
                if run is not None:
                    if order_by:
                        assert len({record.lane for record in run.records}) == 1
                        assert run.records[0].lane not in [r.records[0].lane for r in out] + held
                    out.append(run)
            case "done" if out:
                run = out.pop(data.draw(st.integers(0, len(out) - 1)))
                handled += run.records
                lanes.done(run)
            case "hold" if out:
                run = out.pop(data.draw(st.integers(0, len(out) - 1)))
                keep = data.draw(st.integers(0, len(run.records) - 1))
                handled += run.records[:keep]
                lanes.hold(run, run.records[keep:])
                if order_by:
                    held.append(run.records[0].lane)
            case "release" if held:
                lanes.release(held.pop())
    for run in out:
        handled += run.records
        lanes.done(run)
    for name in held:
        lanes.release(name)
    while (run := lanes.take(10)) is not None:
        handled += run.records
        lanes.done(run)
    assert sorted(record.number for record in handled) == list(range(added))
    assert lanes.waiting == 0
    if order_by:
        for name in "abc":
            numbers = [record.number for record in handled if record.lane == name]
            assert numbers == sorted(numbers)
