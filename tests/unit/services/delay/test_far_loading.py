"""The far topic read into a store that was lost: portion by portion, and whatever lies in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.services.delay.timeline import far_records
from headrace.services.delay.timeline.limits import DelayLimits
from headrace.services.delay.timeline.pending import Pending
from headrace.services.delay.timeline.progress import IntakeProgress
from headrace.services.delay.timeline.rows import Row, row_of
from headrace.services.delay.timeline.store import Store
from headrace.services.delay.timeline.timeline import Timeline, resume
from headrace.services.delay.timeline.transaction_plan import FarRecord
from headrace.wire.contract import headers as names
from headrace.wire.contract.delay_instructions import Schedule, read_instruction
from tests.effort import examples
from tests.unit.services.delay.in_memory import InMemoryPending

NOW_MS = 1_800_000_000_000
TOPIC, PARTITION, TOPIC_ID = "orders.delay", 3, "here"
END = 1_000  # of what the far topic holds, and of the intake


@pytest.fixture(params=["memory", "disk"])
def pending(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pending]:
    if request.param == "memory":
        yield InMemoryPending()
        return
    store = Store(tmp_path)
    yield store.partition(TOPIC, PARTITION, "one")
    store.close()


def a_timeline(pending: Pending, **limits: int) -> Timeline:
    """As it begins when its store is lost and the intake is empty."""
    return Timeline(
        TOPIC,
        PARTITION,
        IntakeProgress(END, (-1, -1), END),
        pending,
        read_from=END,
        ready_at=END,
        limits=DelayLimits(**limits),
        topic_id=TOPIC_ID,
    )


def far(offset: int, delay_ms: int, *, id_: str | None = None) -> Row:
    asked: list[tuple[str, bytes | None]] = [(names.DELAY, b"%d" % delay_ms)]
    if id_ is not None:
        asked.append((names.ID, id_.encode()))
    record = offset, NOW_MS, b"key", b"body %d" % offset, asked
    schedule = read_instruction(record)
    assert isinstance(schedule, Schedule)
    return row_of(record, schedule)


def written(row: Row, topic_id: str = TOPIC_ID) -> FarRecord:
    return far_records.write(TOPIC, PARTITION, row, topic_id)


def gone(offset: int) -> FarRecord:
    return far_records.tombstone(TOPIC, PARTITION, offset)


def load(timeline: Timeline, *records: FarRecord) -> list[str | None]:
    faults = [timeline.load_far(each.key, each.value, each.headers) for each in records]
    timeline.far_loaded()
    return faults


def stored(timeline: Timeline) -> list[int]:
    rows, complete = timeline.pending.scan((-1, -1), 2**62, 10**6)
    assert complete and timeline.pending.count == len(rows)
    return [row[1] for row in rows]


def test_a_garbled_record_is_set_aside_and_the_others_arrive(pending: Pending) -> None:
    timeline = a_timeline(pending)
    key = far_records.key_of(TOPIC, PARTITION, 7)
    garbled = FarRecord(key, b"what was it?", [("own", b"1"), (names.FAR_KEY, b"k")])
    faults = load(timeline, written(far(5, 10)), garbled, written(far(9, 20)))
    assert [fault is not None for fault in faults] == [False, True, False]
    assert stored(timeline) == [5, 9]

    plan = timeline.plan(NOW_MS + 20)
    assert plan is not None
    assert [each[5] for each in plan.deliveries] == [5, 9]
    [rejection] = plan.rejections
    assert rejection.record[0] == 7 and rejection.record[2:4] == (b"k", b"what was it?")
    assert "does not say when" in rejection.reason
    assert gone(7) in plan.far, "the next loss of the store does not find it again"
    timeline.committed(plan)
    assert timeline.next_wake_ms() is None, "it is told once"


def test_it_is_told_even_if_nothing_else_is_to_be_done(pending: Pending) -> None:
    timeline = a_timeline(pending)
    load(timeline, FarRecord(far_records.key_of(TOPIC, PARTITION, 7), b"", []))
    assert timeline.next_wake_ms() == 0
    plan = timeline.plan(NOW_MS)
    assert plan is not None and len(plan.rejections) == 1


def test_a_garbled_record_that_left_is_not_told(pending: Pending) -> None:
    timeline = a_timeline(pending)
    load(timeline, FarRecord(far_records.key_of(TOPIC, PARTITION, 7), b"", []), gone(7))
    assert timeline.plan(NOW_MS) is None


def test_what_waited_in_a_deleted_topic_of_the_same_name_is_not_delivered(pending: Pending) -> None:
    timeline = a_timeline(pending)
    load(timeline, written(far(4, 10), topic_id="was deleted"), written(far(5, 10)))
    plan = timeline.plan(NOW_MS + 10)
    assert plan is not None
    assert [each[5] for each in plan.deliveries] == [5]
    assert not plan.rejections
    assert gone(4) in plan.far


def test_a_record_from_before_topics_were_named_is_loaded(pending: Pending) -> None:
    timeline = a_timeline(pending)
    load(timeline, written(far(4, 10), topic_id=""))
    assert stored(timeline) == [4]


def test_memory_holds_a_portion_however_many_there_are(pending: Pending) -> None:
    timeline = a_timeline(pending, overlay_records=10)
    for offset in range(500):
        record = written(far(offset, offset, id_=f"id-{offset}"))
        timeline.load_far(record.key, record.value, record.headers)
        assert len(timeline.overlay.rows) <= 10
    for offset in range(0, 500, 2):
        timeline.load_far(gone(offset).key, None, [])
        assert len(timeline.overlay.dropped) <= 10
    timeline.far_loaded()
    assert stored(timeline) == list(range(1, 500, 2))
    assert pending.find_id("id-4") is None
    assert pending.find_id("id-5") == (NOW_MS + 5, 5)
    assert pending.find_loaded(5) is None, "what helped to load is gone"


def test_large_records_fill_a_portion_by_their_size(pending: Pending) -> None:
    timeline = a_timeline(pending, overlay_bytes=1_000)
    for offset in range(50):
        record = written(far(offset, offset))
        timeline.load_far(record.key, record.value, record.headers)
        assert timeline.overlay.weight <= 1_500


@settings(max_examples=examples(100), deadline=None)
@given(
    overlay=st.integers(1, 4),
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.none() | st.integers(0, 3), st.none() | st.just("a")),
        max_size=30,
    ),
)
def test_of_each_place_the_last_record_counts(
    overlay: int, steps: list[tuple[int, int | None, str | None]]
) -> None:
    """Whatever was put, replaced and removed in whatever order: as a dictionary would have it."""
    timeline = a_timeline(InMemoryPending(), overlay_records=overlay)
    expected: dict[int, int] = {}
    records = []
    for offset, delay_ms, id_ in steps:
        if delay_ms is None:
            expected.pop(offset, None)
            records.append(gone(offset))
        else:
            expected[offset] = delay_ms
            records.append(written(far(offset, delay_ms, id_=id_)))
    load(timeline, *records)
    assert stored(timeline) == sorted(expected, key=lambda offset: (expected[offset], offset))
    named = timeline.pending.find_id("a")
    assert named is None or named[1] in expected, "an id names nothing that has left"


def test_a_group_that_was_forgotten_still_has_its_far_messages(pending: Pending) -> None:
    """Offsets expire when no instance has run for a week; what the intake lacks was moved."""
    assert resume(pending, IntakeProgress(), log_start=0).far is False, "a new topic has none"
    resumed = resume(pending, IntakeProgress(), log_start=6)
    assert resumed.far and resumed.read_from == 6
    timeline = Timeline(
        TOPIC, PARTITION, IntakeProgress(), pending,
        read_from=6, ready_at=6, limits=DelayLimits(), topic_id=TOPIC_ID,
    )  # fmt: skip
    load(timeline, written(far(5, 10)), written(far(6, 10)))
    assert stored(timeline) == [5], "of the others the intake tells"
