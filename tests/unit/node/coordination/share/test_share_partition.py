"""One share partition by hand: each rule of its docstring as a story."""

from __future__ import annotations

import pytest

from headrace.node.coordination.share.runs import DeliveryState
from headrace.node.coordination.share.share_partition import (
    UNCHANGED,
    Acknowledgement,
    AcknowledgeType,
    AcquiredRange,
    LogBatch,
    ShareLimits,
    SharePartition,
    StateBatch,
    StateUpdate,
)
from headrace.wire.protocol.errors import ErrorCode, KafkaError

AVAILABLE, ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
REJECT, RENEW, GAP = AcknowledgeType.REJECT, AcknowledgeType.RENEW, AcknowledgeType.GAP
MANY = 500


def acquire(part: SharePartition, member: str, *batches: tuple[int, int], now_ms: int = 0, **other):
    read_to = other.pop("read_to", batches[-1][1])
    most = other.pop("most", MANY)
    found = [LogBatch(*batch) for batch in batches]
    return part.acquire(member, found, read_to, most, now_ms, **other)


def acknowledge(part: SharePartition, member: str, first: int, last: int, *types, now_ms: int = 1):
    return part.acknowledge(member, [Acknowledgement(first, last, types)], now_ms)


def settle(part: SharePartition, update: StateUpdate | None, *, succeeded: bool = True) -> None:
    assert update is not None
    part.written(update, succeeded=succeeded)


def states(part: SharePartition) -> list[tuple[int, int, DeliveryState, int]]:
    return [(run.first, run.last, run.state, run.deliveries) for run in part.runs()]


def test_records_are_handed_out_accepted_and_done():
    part = SharePartition(0, ShareLimits())
    assert acquire(part, "a", (0, 9)) == [AcquiredRange(0, 9, 1)]
    assert part.next_fetch_offset == 10
    update = acknowledge(part, "a", 0, 9, ACCEPT)
    assert update == StateUpdate([StateBatch(0, 9, ACKNOWLEDGED, 1)], 10, 0, waits=True)
    assert part.start_offset == 0, "not before it is written"
    settle(part, update)
    assert (part.start_offset, part.end_offset, part.runs()) == (10, 10, [])


def test_the_start_offset_stops_at_the_first_record_that_is_open():
    part = SharePartition(0, ShareLimits())
    acquire(part, "a", (0, 4))
    acquire(part, "b", (5, 9))
    update = acknowledge(part, "b", 5, 9, ACCEPT)
    assert (update.start_offset, update.finished) == (0, 5)
    settle(part, update)
    assert part.start_offset == 0
    settle(part, acknowledge(part, "a", 0, 4, ACCEPT, ACCEPT, REJECT, ACCEPT, ACCEPT))
    assert part.start_offset == 10


def test_while_a_write_is_under_way_another_does_not_move_the_start_offset():
    part = SharePartition(0, ShareLimits())
    acquire(part, "a", (0, 9))
    first, second = (acknowledge(part, "a", at, at + 4, ACCEPT) for at in (0, 5))
    assert (first.start_offset, second.start_offset) == (5, UNCHANGED)
    settle(part, second)
    settle(part, first, succeeded=False)
    assert part.start_offset == 0, "offsets 0 to 4 are not acknowledged"
    settle(part, acknowledge(part, "a", 0, 4, ACCEPT))
    assert part.start_offset == 10


@pytest.mark.parametrize(
    ("member", "now_ms", "why"),
    [("b", 1, "another member"), ("a", 30_000, "its lock is over, expired or not")],
)
def test_only_the_holder_may_acknowledge(member, now_ms, why):
    part = SharePartition(0, ShareLimits())
    acquire(part, "a", (0, 9))
    with pytest.raises(KafkaError) as refused:
        acknowledge(part, member, 0, 9, ACCEPT, now_ms=now_ms)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE, why
    assert states(part) == [(0, 9, ACQUIRED, 1)]


def test_one_bad_range_refuses_all():
    part = SharePartition(0, ShareLimits())
    acquire(part, "a", (0, 4))
    acquire(part, "b", (5, 9))
    both = [Acknowledgement(0, 4, [ACCEPT]), Acknowledgement(5, 9, [ACCEPT])]
    with pytest.raises(KafkaError):
        part.acknowledge("a", both, 1)
    settle(part, acknowledge(part, "a", 0, 4, ACCEPT))
    assert part.start_offset == 5


@pytest.mark.parametrize(
    "wrong",
    [
        [Acknowledgement(3, 2, [ACCEPT])],
        [Acknowledgement(0, 2, [ACCEPT, ACCEPT])],
        [Acknowledgement(0, 2, [])],
        [Acknowledgement(0, 2, [9])],
        [Acknowledgement(0, 2, [ACCEPT]), Acknowledgement(1, 4, [ACCEPT])],
        [Acknowledgement(8, 10, [ACCEPT])],
    ],
)
def test_acknowledgements_that_make_no_sense(wrong):
    part = SharePartition(0, ShareLimits())
    acquire(part, "a", (0, 9))
    with pytest.raises(KafkaError) as refused:
        part.acknowledge("a", wrong, 1)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_record_is_archived_when_its_attempts_are_used_up():
    part = SharePartition(0, ShareLimits(deliveries=2))
    for attempt in (1, 2):
        assert acquire(part, "a", (0, 0)) == [AcquiredRange(0, 0, attempt)]
        settle(part, acknowledge(part, "a", 0, 0, RELEASE))
    assert part.start_offset == 1


def test_an_expired_lock_gives_the_records_back_and_counts():
    part = SharePartition(0, ShareLimits(lock_ms=100))
    acquire(part, "a", (0, 4), now_ms=10)
    assert part.next_expiry_ms == 110
    assert part.expire(109) is None
    assert part.expire(110).batches == [StateBatch(0, 4, AVAILABLE, 1)]
    assert part.next_expiry_ms is None
    assert acquire(part, "b", (0, 4), now_ms=120) == [AcquiredRange(0, 4, 2)]


def test_a_renewed_lock_lasts_longer_and_nothing_is_written():
    part = SharePartition(0, ShareLimits(lock_ms=100))
    acquire(part, "a", (0, 1))
    assert acknowledge(part, "a", 0, 0, RENEW, now_ms=50) is None
    assert part.expire(100).batches == [StateBatch(1, 1, AVAILABLE, 1)]
    assert part.next_expiry_ms == 150
    settle(part, acknowledge(part, "a", 0, 0, ACCEPT, now_ms=149))
    assert part.start_offset == 1


def test_a_lock_does_not_expire_while_its_acknowledgement_is_written():
    part = SharePartition(0, ShareLimits(lock_ms=100))
    acquire(part, "a", (0, 0))
    update = acknowledge(part, "a", 0, 0, ACCEPT)
    assert part.expire(100) is None
    assert acquire(part, "b", (0, 0), now_ms=100) == []
    settle(part, update, succeeded=False)
    assert part.next_expiry_ms == 100
    assert part.expire(101).batches == [StateBatch(0, 0, AVAILABLE, 1)]


def test_a_member_that_leaves_has_not_used_up_an_attempt():
    part = SharePartition(0, ShareLimits())
    acquire(part, "a", (0, 4))
    acquire(part, "b", (5, 9))
    assert part.release_all("a").batches == [StateBatch(0, 4, AVAILABLE, 0)]
    assert part.release_all("a") is None
    assert acquire(part, "b", (0, 4)) == [AcquiredRange(0, 4, 1)]


def test_offsets_without_records_are_passed():
    part = SharePartition(0, ShareLimits())
    assert acquire(part, "a", (3, 5), (8, 9), read_to=12) == [
        AcquiredRange(3, 5, 1),
        AcquiredRange(8, 9, 1),
    ]
    assert (part.start_offset, part.end_offset) == (3, 13)
    settle(part, acknowledge(part, "a", 3, 5, ACCEPT, GAP, ACCEPT))
    settle(part, acknowledge(part, "a", 8, 9, ACCEPT))
    assert part.start_offset == 13


def test_batches_are_whole_unless_the_count_is_to_be_exact():
    part = SharePartition(0, ShareLimits())
    assert acquire(part, "a", (0, 9), (10, 19), (20, 29), most=11) == [
        AcquiredRange(0, 9, 1),
        AcquiredRange(10, 19, 1),
    ]
    assert acquire(part, "a", (20, 29), most=3, exactly=True) == [AcquiredRange(20, 22, 1)]
    assert acquire(part, "b", (20, 29), most=3, exactly=True) == [AcquiredRange(23, 25, 1)]


def test_no_more_records_are_in_flight_than_allowed():
    part = SharePartition(0, ShareLimits(in_flight=12))
    assert acquire(part, "a", (0, 9), (10, 19)) == [
        AcquiredRange(0, 9, 1),
        AcquiredRange(10, 11, 1),
    ]
    assert not part.has_room
    assert acquire(part, "b", (10, 19)) == []
    settle(part, acknowledge(part, "a", 0, 3, RELEASE))
    assert part.has_room and part.next_fetch_offset == 0
    assert acquire(part, "b", (0, 9), (10, 19)) == [AcquiredRange(0, 3, 2)]


def test_records_that_failed_often_come_in_ever_smaller_portions():
    part = SharePartition(0, ShareLimits(deliveries=5))  # careful from the fourth attempt on
    sizes = []
    for _ in range(4):
        found = acquire(part, "a", (0, 15), (16, 17))
        sizes.append(sum(last - first + 1 for first, last, _ in found))
        settle(part, acknowledge(part, "a", found[0].first, found[0].last, RELEASE))
        part.release_all("a")
    assert sizes[:3] == [18, 18, 18]
    assert sizes[3] == 8, "the half, and no others with them"
    assert acquire(part, "b", (0, 15)) == [AcquiredRange(0, 0, 5)], (
        "the last attempt is for one alone"
    )


def test_the_state_that_was_kept_is_found_again():
    kept = [StateBatch(5, 9, ACKNOWLEDGED, 1), StateBatch(12, 13, AVAILABLE, 2)]
    part = SharePartition(5, ShareLimits(), kept)
    assert (part.start_offset, part.end_offset) == (10, 14)
    assert acquire(part, "a", (8, 20)) == [
        AcquiredRange(10, 11, 1),
        AcquiredRange(12, 13, 3),
        AcquiredRange(14, 20, 1),
    ]


def test_deleted_records_are_done_also_for_who_holds_them():
    part = SharePartition(0, ShareLimits())
    acquire(part, "a", (0, 9))
    update = acknowledge(part, "a", 0, 5, ACCEPT)
    part.log_starts_at(8)
    settle(part, update)
    assert states(part) == [(8, 9, ACQUIRED, 1)]
    settle(part, acknowledge(part, "a", 0, 9, ACCEPT))
    part.log_starts_at(20)
    assert (part.start_offset, part.end_offset) == (20, 20)
