"""Crashes that are rare in the random runs, told one by one."""

from __future__ import annotations

import pytest

from headrace.services.delay.timeline.limits import DelayLimits
from headrace.wire.contract import headers as names
from tests.unit.services.delay.a_world import MINUTE_MS, World
from tests.unit.services.delay.in_memory import InMemoryPending


def a_world_with_a_repeating_message(runs: int | None = None) -> World:
    """Each minute, named `tick`; two runs are done, and the store knows."""
    world = World(InMemoryPending(), DelayLimits())
    asked = world.next_asked()
    asked.every_minutes, asked.id, asked.runs = 1, "tick", runs
    headers: list[tuple[str, bytes | None]] = [(names.CRON, b"* * * * *"), (names.ID, b"tick")]
    if runs is not None:
        headers.append((names.CRON_COUNT, b"%d" % runs))
    world.append(asked, headers)
    for _ in range(2):
        world.now_ms += MINUTE_MS
        world.run_until_idle()
    assert len(world.model.delivered) == 2
    return world


def crash_between_commit_and_store(world: World) -> None:
    world.now_ms += MINUTE_MS
    plan = world.decide()
    assert plan is not None
    assert len(plan.deliveries) == 1
    world.make_true(plan)
    world.start()


def test_a_repeating_message_goes_on_when_the_store_missed_a_commit() -> None:
    world = a_world_with_a_repeating_message()
    crash_between_commit_and_store(world)
    world.check_store()
    for _ in range(3):
        world.now_ms += MINUTE_MS
        world.run_until_idle()
    assert len(world.model.delivered) == 6


@pytest.mark.parametrize(("runs", "outcome"), [(None, names.CANCELLED), (3, names.TOO_LATE)])
def test_it_is_still_known_by_its_name(runs: int | None, outcome: str) -> None:
    """Also when that was its last run."""
    world = a_world_with_a_repeating_message(runs)
    crash_between_commit_and_store(world)
    cancel = world.next_asked()
    cancel.cancel = "tick"
    world.append(cancel, [(names.CANCEL, b"tick")])
    world.feed(10)
    plan = world.decide()
    assert plan is not None
    assert [told.outcome for told in plan.outcomes] == [outcome]
