"""Ten years of a small shop in seconds: each message once, at its time, and nothing is kept."""

from __future__ import annotations

from headrace.services.delay.timeline.limits import DelayLimits
from headrace.wire.contract import headers as names
from headrace.wire.contract.durations import LONGEST_DELAY_MS
from tests.unit.services.delay.a_world import START_MS, World
from tests.unit.services.delay.in_memory import InMemoryPending

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MONTHS = 122


def test_ten_years_of_a_small_shop() -> None:
    world = World(InMemoryPending(), DelayLimits())
    late_ms = 0
    for month in range(MONTHS):
        world.now_ms = START_MS + month * 30 * DAY_MS
        for delay_ms in (0, 30 * 60_000, 14 * DAY_MS, 365 * DAY_MS, LONGEST_DELAY_MS):
            asked = world.next_asked()
            asked.due_ms = asked.appended_ms + delay_ms
            world.append(asked, [(names.DELAY, b"%d" % delay_ms)])
        if month % 12 == 3:
            world.start()  # a restart
        if month % 12 == 7:
            world.pending.clear()  # and a new disk
            world.start()
        late_ms = max(late_ms, sleep_until(world, START_MS + (month + 1) * 30 * DAY_MS))
        assert len(world.intake) <= 5, "the intake keeps what is new and no more"

    assert late_ms == 0
    sleep_until(world, world.now_ms + LONGEST_DELAY_MS)
    assert len(world.model.delivered) == MONTHS * 5
    assert not world.model.pending
    assert not world.far
    assert not world.intake


def sleep_until(world: World, until_ms: int) -> int:
    """As the service does, from one wake to the next; how late the latest delivery was."""
    late_ms = 0
    while True:
        known = set(world.model.delivered)
        world.run_until_idle()
        for due_ms, _ in set(world.model.delivered) - known:
            late_ms = max(late_ms, world.now_ms - due_ms)
        wake_ms = world.timeline.next_wake_ms()
        if wake_ms is None or wake_ms > until_ms:
            world.now_ms = until_ms
            return late_ms
        world.now_ms = wake_ms
