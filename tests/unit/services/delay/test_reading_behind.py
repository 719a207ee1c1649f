"""While there is more to read, nothing is delivered that an unread record could be due before."""

from __future__ import annotations

from headrace.services.delay.partitions.owned import FRESH_MS, PATIENCE_S, Owned
from headrace.services.delay.timeline.limits import DelayLimits
from headrace.services.delay.timeline.progress import IntakeProgress
from headrace.services.delay.timeline.timeline import Timeline
from headrace.wire.contract import headers as names
from headrace.wire.contract.delay_instructions import RecordFields
from tests.unit.services.delay.in_memory import InMemoryPending

NOW_MS = 1_800_000_000_000


def an_owned(**limits: int) -> Owned:
    timeline = Timeline(
        "orders.delay", 0, IntakeProgress(), InMemoryPending(), read_from=0, ready_at=0,
        limits=DelayLimits(**limits),
    )  # fmt: skip
    return Owned(("orders.delay", 0), asked=False, timeline=timeline)


def test_at_the_end_the_clock_decides() -> None:
    assert an_owned().due_until(NOW_MS) == NOW_MS


def test_behind_the_end_the_last_record_read_decides() -> None:
    owned = an_owned()
    owned.hear_of_end(10)
    owned.read_to_ms = NOW_MS - 7_000
    assert owned.due_until(NOW_MS) == NOW_MS - 7_000
    owned.read_to_ms = NOW_MS + 50  # the broker's clock is ahead of ours: still never early
    assert owned.due_until(NOW_MS) == NOW_MS


def test_who_has_read_nothing_lately_is_not_sure_to_be_at_the_end() -> None:
    owned = an_owned()
    owned.read_to_ms = NOW_MS - FRESH_MS
    assert not owned.may_lag(NOW_MS)
    assert owned.may_lag(NOW_MS + 1)
    owned.hear_of_end(10)
    assert not owned.may_lag(NOW_MS + 1)  # no question: it does
    owned.hear_of_end(7)  # an older answer
    assert owned.end == 10


def test_records_that_never_come_hold_up_nothing_for_ever() -> None:
    owned = an_owned()
    owned.hear_of_end(10)
    owned.read_to_ms = NOW_MS - 7_000
    owned.told_s -= PATIENCE_S + 1
    assert owned.due_until(NOW_MS) == NOW_MS


def record(offset: int, appended_ms: int, due_ms: int) -> RecordFields:
    return offset, appended_ms, None, b"x", [(names.DELIVER_AT, b"%d" % due_ms)]


def test_a_full_partition_makes_room_without_delivering_ahead_of_what_is_unread() -> None:
    owned = an_owned(overlay_records=2)
    timeline = owned.timeline
    assert timeline is not None
    appended_ms = NOW_MS - 7_000
    timeline.take([record(at, appended_ms, NOW_MS - 5 + at) for at in range(2)], NOW_MS)
    owned.read_to_ms = appended_ms
    owned.hear_of_end(3)
    assert not timeline.wants_more()
    plan = timeline.plan(owned.due_until(NOW_MS))
    assert plan is not None
    assert plan.deliveries == []
    timeline.committed(plan)
    assert timeline.wants_more()
    timeline.take([record(2, appended_ms, NOW_MS - 6)], NOW_MS)  # unread until now, and due first
    plan = timeline.plan(owned.due_until(NOW_MS))
    assert plan is not None
    assert [delivery.due_ms for delivery in plan.deliveries] == [
        NOW_MS - 6, NOW_MS - 5, NOW_MS - 4,
    ]  # fmt: skip


def test_a_record_that_waits_for_a_clock_that_was_stepped_back_gets_it() -> None:
    owned = an_owned()
    timeline = owned.timeline
    assert timeline is not None
    timeline.take([record(0, NOW_MS, NOW_MS + 60_000)], NOW_MS)
    plan = timeline.plan(NOW_MS + 60_000)
    assert plan is not None
    timeline.committed(plan)  # the watermark is a minute ahead; then the clock is set back
    timeline.take([record(1, NOW_MS, NOW_MS + 30_000)], NOW_MS)
    owned.read_to_ms = NOW_MS
    owned.hear_of_end(9)
    assert not timeline.wants_more()
    assert timeline.plan(owned.due_until(NOW_MS + 29_000)) is None
    plan = timeline.plan(owned.due_until(NOW_MS + 30_000))
    assert plan is not None
    assert len(plan.deliveries) == 1


def test_a_clock_that_is_set_back_before_the_delivery_holds_it() -> None:
    """The transaction waits for a target, say; the record was due when it was taken."""
    owned = an_owned()
    timeline = owned.timeline
    assert timeline is not None
    timeline.take([record(0, NOW_MS, NOW_MS + 60_000)], NOW_MS)
    plan = timeline.plan(NOW_MS + 60_000)
    assert plan is not None
    timeline.committed(plan)
    timeline.take([record(1, NOW_MS, NOW_MS + 30_000)], NOW_MS + 61_000)
    assert timeline.plan(NOW_MS, clock_ms=NOW_MS) is None, "an hour back: it would be early"
    assert timeline.held_until_ms == timeline.next_wake_ms() == NOW_MS + 30_000
    behind_ms = NOW_MS - 5_000  # more is unread: that does not hold what is late already
    plan = timeline.plan(behind_ms, clock_ms=NOW_MS + 30_000)
    assert plan is not None and len(plan.deliveries) == 1
    assert timeline.held_until_ms is None
