"""What is written to Kafka reads back the same: progress in a commit, records in the far topic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.delay.timeline import far_records
from headrace.services.delay.timeline.progress import IntakeProgress, from_commit, to_metadata
from headrace.services.delay.timeline.rows import row_of
from headrace.wire.contract import headers as names
from headrace.wire.contract.delay_instructions import Schedule, read_instruction

OFFSETS = st.integers(0, 2**62)


@given(st.tuples(OFFSETS, OFFSETS, OFFSETS, OFFSETS), st.text(max_size=100))
def test_progress_is_in_the_commit(numbers: tuple[int, int, int, int], by: str) -> None:
    position, due_ms, offset, far = numbers
    progress = IntakeProgress(position, (due_ms, offset), far)
    assert from_commit(position, to_metadata(progress, by)) == (progress, by, None)
    assert from_commit(position, to_metadata(progress, by, "id")) == (progress, by, "id")
    assert len(to_metadata(progress, "x" * 249, "x" * 22)) < 4_096, "Kafka's limit for metadata"


def test_a_topic_made_anew_is_not_judged_by_the_watermark_of_the_old_one() -> None:
    progress = IntakeProgress(5, (900, 3), 2)
    commit = from_commit(5, to_metadata(progress, "me", "old"))
    assert commit.progress_of("old") == progress
    assert commit.progress_of("new") == IntakeProgress()
    before_ids = from_commit(5, to_metadata(progress, "me"))  # of an earlier version
    assert before_ids.progress_of("any") == progress


@pytest.mark.parametrize(
    "metadata",
    [None, "", "hello", "headrace-delay/2 {}", "headrace-delay/1 {}", "headrace-delay/1 ["]
    + ['headrace-delay/1 {"due":"x","offset":1,"far":0,"by":"me"}'],
)
def test_a_commit_of_somebody_else_stops_the_service(metadata: str | None) -> None:
    """With the position alone it would deliver again what is done."""
    with pytest.raises(ValueError, match="not written by this version"):
        from_commit(5, metadata)


@given(
    key=st.none() | st.binary(max_size=5),
    value=st.none() | st.binary(max_size=5),
    others=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    asked=st.sampled_from(
        [
            [(names.DELAY, b"90d")],
            [(names.DELIVER_AT, b"1900000000000")],
            [(names.CRON, b"*/5 3 * * MON"), (names.CRON_ZONE, b"Asia/Tokyo")],
            [(names.CRON, b"0 0 * * *"), (names.CRON_COUNT, b"3")],
            [(names.CRON, b"0 0 * * *"), (names.CRON_UNTIL, b"1900000000000")],
        ]
    ),
    named=st.sampled_from([[], [(names.ID, "ü/#".encode())], [(names.PARTITION, b"4")]]),
)
def test_a_pending_record_survives_the_far_topic(
    key: bytes | None,
    value: bytes | None,
    others: list[tuple[str, bytes | None]],
    asked: list[tuple[str, bytes | None]],
    named: list[tuple[str, bytes | None]],
) -> None:
    record = (77, 1_800_000_000_000, key, value, others + asked + named)
    instruction = read_instruction(record)
    assert isinstance(instruction, Schedule)
    row = row_of(record, instruction)
    written = far_records.write("orders.delay", 3, row)
    assert written.value is not None, "null is a tombstone"
    assert written.key == b"orders.delay/3/77"
    assert far_records.record_id_of(written.key) == ("orders.delay", 3, 77)
    assert far_records.read(written.key, written.value, written.headers) == row


def test_a_far_record_that_is_none_is_told() -> None:
    with pytest.raises(ValueError):
        far_records.read(b"orders.delay/3/77", b"", [(names.DELIVER_AT, b"5")])
    for key in (b"hello", b"orders.delay/3/-1", b"orders.delay/3/+1", b"orders.delay/3/ 1"):
        with pytest.raises(ValueError):
            far_records.record_id_of(key)
