"""Keys that wait for a retry: nothing of theirs is let out before what failed, or too early."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.app.dispatch.blocked_keys import BlockedKeys
from tests.effort import examples


@dataclass
class Copy:
    lane: str
    origin_offset: int
    offset: int
    due_ms: int = 0


def test_the_head_goes_first_and_a_new_copy_of_it_still_goes_first() -> None:
    blocked: BlockedKeys[Copy] = BlockedKeys()
    failed, later = Copy("a", 5, 0, due_ms=100), Copy("a", 7, 1)
    blocked.arrived(later)
    blocked.arrived(failed)
    assert blocked.blocks("a") and not blocked.blocks("b")
    assert blocked.take_due(99) == []
    assert blocked.take_due(100) == [failed]
    assert blocked.take_due(100) == []  # the later one waits for it

    blocked.appending("a")
    blocked.appended("a", 2)  # it failed again: a new copy at the end of the partition
    blocked.finished(failed)
    assert blocked.take_due(10_000) == []  # until that has been read back
    again = Copy("a", 5, 2, due_ms=300)
    blocked.arrived(again)
    assert blocked.take_due(300) == [again]
    blocked.finished(again)
    assert blocked.take_due(300) == [later]
    assert not blocked.blocks("a")  # the next record waits behind it in the lane
    blocked.finished(later)
    assert blocked.count == 0 and blocked.next_due_ms() is None


def test_it_is_full_at_its_bound() -> None:
    blocked: BlockedKeys[Copy] = BlockedKeys(most=2)
    blocked.appending("a")
    assert not blocked.full
    blocked.arrived(Copy("b", 0, 0))
    assert blocked.full


@settings(max_examples=examples(40))
@given(st.data())
def test_each_key_is_handled_in_its_original_order_whatever_fails(data: st.DataObject) -> None:
    blocked: BlockedKeys[Copy] = BlockedKeys()
    log: list[Copy] = []  # the retry partition
    read = 0
    out: list[Copy] = []
    done: dict[str, list[int]] = {"a": [], "b": []}
    origin = now = 0

    def append(lane: str, origin_offset: int, due_ms: int) -> None:
        log.append(Copy(lane, origin_offset, len(log), due_ms))
        blocked.appending(lane)
        blocked.appended(lane, len(log) - 1)

    for _ in range(data.draw(st.integers(0, 80))):
        match data.draw(st.sampled_from(["fail", "read", "time", "end"])):
            case "fail":  # a source record of this key, which failed or found its key blocked
                lane = data.draw(st.sampled_from("ab"))
                if not any(copy.lane == lane for copy in out):
                    due_ms = 0 if blocked.blocks(lane) else now + data.draw(st.integers(0, 50))
                    append(lane, origin, due_ms)
                    origin += 1
            case "read" if read < len(log):
                blocked.arrived(log[read])
                read += 1
            case "time":
                now += data.draw(st.integers(0, 40))
                for copy in blocked.take_due(now):
                    assert copy.due_ms <= now
                    assert not any(other.lane == copy.lane for other in out)
                    out.append(copy)
            case "end" if out:
                copy = out.pop()
                if data.draw(st.booleans()):
                    done[copy.lane].append(copy.origin_offset)
                else:
                    append(copy.lane, copy.origin_offset, now + 10)
                blocked.finished(copy)
    while blocked.count:  # all that is left, without further failures
        for copy in out:
            done[copy.lane].append(copy.origin_offset)
            blocked.finished(copy)
        while read < len(log):
            blocked.arrived(log[read])
            read += 1
        now += 1_000
        out = blocked.take_due(now)
    for lane in "ab":
        assert done[lane] == sorted(done[lane])
    assert sorted(done["a"] + done["b"]) == list(range(origin))
