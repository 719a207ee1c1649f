"""A wall clock that is set back: what waits in memory does not wait longer for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.app.a_group_of_one import World

HOUR_MS = 3_600_000


@pytest.mark.parametrize("order_by", [None, "key", "partition"])
def test_a_retry_waits_as_long_as_it_was_meant_to(order_by: Any) -> None:
    world = World(1, order_by=order_by)
    world.tick()
    world.send(world.partitions[0], b"a")
    world.poll(0)
    world.take()
    [slot] = world.slots
    world.step(slot, None)  # the attempt begins
    world.step(slot, OSError("not yet"))  # again in 500 ms
    world.now_ms -= HOUR_MS
    world.pass_ms(499)
    assert world.dispatcher.take() is None
    world.pass_ms(500)
    assert world.dispatcher.take() is not None


def test_a_batch_waits_as_long_as_it_was_meant_to() -> None:
    world = World(1, order_by=None, batch=3, batch_wait_ms=1_000)
    world.tick()
    world.send(world.partitions[0], b"a")
    world.poll(0)
    assert world.dispatcher.take() is None
    world.now_ms -= HOUR_MS
    world.pass_ms(999)
    assert world.dispatcher.take() is None
    world.pass_ms(1_000)
    assert world.dispatcher.take() is not None
