"""While there is more to read, nothing is delivered that an unread record could be due before."""

from __future__ import annotations

from headrace.services.delay.limits import Limits
from headrace.services.delay.owned import Owned
from headrace.services.delay.progress import Progress
from headrace.services.delay.timeline import Timeline
from tests.unit.services.delay.in_memory import InMemoryPending

NOW_MS = 1_800_000_000_000


def an_owned(**limits: int) -> Owned:
    timeline = Timeline(
        "orders.delay", 0, Progress(), InMemoryPending(), read_from=0, ready_at=0,
        limits=Limits(**limits),
    )  # fmt: skip
    return Owned(("orders.delay", 0), asked=False, timeline=timeline)


def test_at_the_end_the_clock_decides() -> None:
    assert an_owned().due_until(NOW_MS) == NOW_MS


def test_behind_the_end_the_last_record_read_decides() -> None:
    owned = an_owned()
    owned.read_to_ms = NOW_MS - 7_000
    assert owned.due_until(NOW_MS) == NOW_MS - 7_000
    owned.read_to_ms = NOW_MS + 50  # the broker's clock is ahead of ours: still never early
    assert owned.due_until(NOW_MS) == NOW_MS


def test_a_partition_whose_intake_waits_for_a_settlement_does_not_wait_for_its_intake() -> None:
    owned = an_owned()
    owned.read_to_ms = NOW_MS - 7_000
    assert owned.timeline is not None
    owned.timeline.wants_more = lambda: False  # type: ignore[method-assign]
    assert owned.due_until(NOW_MS) == NOW_MS
