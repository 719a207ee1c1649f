"""The timeline against a plain sorted list: everything that can happen, in every order.

Records of all kinds, clocks that step both ways, limits that are hit all the time, and crashes
between any two steps: a plan decided and not committed, committed and not told to the store,
the store lost or years behind.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from headrace.services.delay.timeline.limits import DelayLimits
from headrace.services.delay.timeline.store import RocksPending, Store
from headrace.wire.contract import headers as names
from tests.effort import examples
from tests.unit.services.delay.a_world import MINUTE_MS, TOPIC, World
from tests.unit.services.delay.in_memory import InMemoryPending

# `make test` stays short; a longer look: EXAMPLES=1000 and this file alone.
EXAMPLES = int(os.environ.get("EXAMPLES", examples(60)))
YEAR_MS = 365 * 24 * 60 * MINUTE_MS
IDS = st.sampled_from(["a", "b", "ü"])
DELAYS = st.one_of(
    st.integers(0, 5),
    st.integers(0, 30 * MINUTE_MS),
    st.integers(0, 10 * YEAR_MS),
)
STEPS = st.one_of(
    st.integers(1, 5),
    st.integers(1, 10 * MINUTE_MS),
    st.integers(1, 60 * MINUTE_MS),
    st.integers(1, YEAR_MS),
)


class Timelines(RuleBasedStateMachine):
    world: World

    def a_store(self) -> InMemoryPending | RocksPending:
        return InMemoryPending()

    @initialize(
        plan=st.integers(1, 5),
        overlay=st.integers(1, 6),
        far=st.integers(1, 3),
        transaction_bytes=st.sampled_from([1, 600, 10**9]),
    )
    def begin(self, plan: int, overlay: int, far: int, transaction_bytes: int) -> None:
        limits = DelayLimits(
            transaction_records=plan,
            transaction_bytes=transaction_bytes,
            overlay_records=overlay,
            overlay_age_ms=1_000,
            far_after_ms=20 * MINUTE_MS,
            far_records=far,
            sample_ms=MINUTE_MS,
        )
        self.world = World(self.a_store(), limits)
        self.copies: list[InMemoryPending] = []

    # ---- producers ------------------------------------------------------------------------------

    @rule(delay_ms=DELAYS, id_=st.none() | IDS, partition=st.none() | st.integers(0, 9))
    def send(self, delay_ms: int, id_: str | None, partition: int | None) -> None:
        asked = self.world.next_asked()
        asked.due_ms, asked.id, asked.partition = asked.appended_ms + delay_ms, id_, partition
        headers: list[tuple[str, bytes | None]] = [(names.DELAY, b"%dms" % delay_ms)]
        if id_ is not None:
            headers.append((names.ID, id_.encode()))
        if partition is not None:
            headers.append((names.PARTITION, b"%d" % partition))
        self.world.append(asked, headers)

    @rule(before_ms=st.integers(-YEAR_MS, YEAR_MS), id_=st.none() | IDS)
    def send_for_a_moment(self, before_ms: int, id_: str | None) -> None:
        """Also long past, also out of order."""
        asked = self.world.next_asked()
        asked.due_ms, asked.id = asked.appended_ms - before_ms, id_
        headers: list[tuple[str, bytes | None]] = [(names.DELIVER_AT, b"%d" % asked.due_ms)]
        if id_ is not None:
            headers.append((names.ID, id_.encode()))
        self.world.append(asked, headers)

    @rule(count=st.integers(1, 8))
    def send_many_for_now(self, count: int) -> None:
        for _ in range(count):
            asked = self.world.next_asked()
            asked.due_ms = asked.appended_ms
            self.world.append(asked, [])

    @rule(
        every=st.sampled_from([1, 5, 30]),
        runs=st.none() | st.integers(1, 5),
        id_=st.none() | IDS,
    )
    def send_repeating(self, every: int, runs: int | None, id_: str | None) -> None:
        asked = self.world.next_asked()
        asked.every_minutes, asked.runs, asked.id = every, runs, id_
        headers: list[tuple[str, bytes | None]] = [(names.CRON, b"*/%d * * * *" % every)]
        if runs is not None:
            headers.append((names.CRON_COUNT, b"%d" % runs))
        if id_ is not None:
            headers.append((names.ID, id_.encode()))
        self.world.append(asked, headers)

    @rule(id_=IDS)
    def send_cancel(self, id_: str) -> None:
        asked = self.world.next_asked()
        asked.cancel = id_
        self.world.append(asked, [(names.CANCEL, id_.encode())])

    @rule()
    def send_nonsense(self) -> None:
        asked = self.world.next_asked()
        asked.nonsense = True
        self.world.append(asked, [(names.DELAY, b"soon")])

    @rule(count=st.integers(1, 3))
    def leave_a_gap(self, count: int) -> None:
        """Transaction markers, and records of transactions that were aborted."""
        self.world.end += count

    # ---- time -----------------------------------------------------------------------------------

    @rule(by_ms=STEPS)
    def time_passes(self, by_ms: int) -> None:
        self.world.now_ms += by_ms

    @rule()
    def time_passes_until_it_wakes(self) -> None:
        wake_ms = self.world.timeline.next_wake_ms()
        if wake_ms is not None:
            self.world.now_ms = max(self.world.now_ms, wake_ms)

    @rule(by_ms=STEPS)
    def the_clock_steps_back(self, by_ms: int) -> None:
        self.world.now_ms -= min(by_ms, self.world.now_ms // 2)

    @rule(ahead_ms=st.integers(-3 * MINUTE_MS, 3 * MINUTE_MS))
    def the_brokers_clock_differs(self, ahead_ms: int) -> None:
        self.world.broker_ahead_ms = ahead_ms

    # ---- the service ----------------------------------------------------------------------------

    @rule(most=st.integers(1, 12))
    def take(self, most: int) -> None:
        self.world.feed(most)

    @rule()
    def transact(self) -> None:
        self.world.transact()

    @rule()
    def run(self) -> None:
        self.world.run_until_idle()

    @rule(offset=st.integers(0, 50))
    def the_target_refuses(self, offset: int) -> None:
        if offset < self.world.end:
            self.world.timeline.refuse(offset, "too large")

    # ---- crashes --------------------------------------------------------------------------------

    @rule()
    def crash(self) -> None:
        self.world.start()

    @rule()
    def crash_before_the_commit(self) -> None:
        self.world.decide()
        self.world.start()

    @rule()
    def crash_after_the_commit(self) -> None:
        plan = self.world.decide()
        if plan is not None:
            self.world.make_true(plan)
        self.world.start()

    @rule()
    def lose_the_store(self) -> None:
        self.world.pending.clear()
        self.world.start()

    def teardown(self) -> None:
        """Once the clock is past everything, all of it is done, and nothing is left to do."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.now_ms = max([world.now_ms, world.model.watermark[0]]) + 11 * YEAR_MS
        latest = max([asked.due_ms for asked in world.asked.values()], default=0)
        world.now_ms = max(world.now_ms, latest)
        world.run_until_idle()
        world.now_ms += world.limits.overlay_age_ms
        world.run_until_idle()
        assert world.model.position == world.end
        left = {offset for offset in world.model.pending if not world.asked[offset].every_minutes}
        assert not left, "nothing is lost"

    @invariant()
    def memory_is_bounded(self) -> None:
        if hasattr(self, "world"):
            overlay, limits = self.world.timeline.overlay, self.world.limits
            assert overlay.must <= limits.transaction_records


class TimelinesInMemory(Timelines):
    @rule()
    def copy_the_store(self) -> None:
        assert isinstance(self.world.pending, InMemoryPending)
        self.copies.append(self.world.pending.copy())

    @precondition(lambda self: getattr(self, "copies", None))
    @rule(data=st.data())
    def the_store_falls_back(self, data: st.DataObject) -> None:
        """As after a power cut, or when the partition was elsewhere for a while."""
        self.world.pending = data.draw(st.sampled_from(self.copies)).copy()
        self.world.start()


class TimelinesOnDisk(Timelines):
    def a_store(self) -> RocksPending:
        self.folder = Path(tempfile.mkdtemp())
        self.store = Store(self.folder)
        return self.store.partition(TOPIC, 3, "identity")

    @rule()
    def restart_the_process(self) -> None:
        self.store.close()
        self.store = Store(self.folder)
        self.world.pending = self.store.partition(TOPIC, 3, "identity")
        self.world.start()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            if hasattr(self, "store"):
                self.store.close()
                shutil.rmtree(self.folder)


TestInMemory = TimelinesInMemory.TestCase
TestInMemory.settings = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)
TestOnDisk = TimelinesOnDisk.TestCase
TestOnDisk.settings = settings(
    max_examples=max(5, EXAMPLES // 5), stateful_step_count=40, deadline=None
)
