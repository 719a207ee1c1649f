"""A share session: which requests are sent, and what becomes of acknowledgements."""

from __future__ import annotations

from headrace.client.share.acquired_records import ShareRecord
from headrace.client.share.share_session import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    UNANSWERED,
    Mark,
    QueuePartition,
    RefusedAcknowledgement,
    ShareSession,
    halved,
    joined,
)
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import share_acknowledge, share_fetch
from headrace.wire.protocol.record_batch import Record, build

JOBS = bytes(15) + b"\x09"
PLACE = QueuePartition(JOBS, 0)


def session() -> ShareSession:
    made = ShareSession("workers", "me", node=3, number=7)
    made.names = {JOBS: "jobs"}
    return made


def batch(first: int, last: int) -> bytes:
    records = [Record(None, b"%d" % each, [], 5, each) for each in range(first, last + 1)]
    return bytes(build(records, base_offset=first))


def fetched(
    first: int, last: int, *, count: int = 1, acknowledged: int = 0, records: bytes | None = None
) -> share_fetch.ShareFetchResponse:
    part = share_fetch.PartitionData(
        0,
        acknowledge_error_code=acknowledged,
        records=batch(first, last) if records is None else records,
        acquired_records=[share_fetch.AcquiredRecords(first, last, count)],
    )
    topic = share_fetch.ShareFetchableTopicResponse(JOBS, [part])
    return share_fetch.ShareFetchResponse(acquisition_lock_timeout_ms=30_000, responses=[topic])


def answered(code: int = 0) -> share_acknowledge.ShareAcknowledgeResponse:
    part = share_acknowledge.PartitionData(0, code)
    topic = share_acknowledge.ShareAcknowledgeTopicResponse(JOBS, [part])
    return share_acknowledge.ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=30_000, responses=[topic]
    )


def opened(first: int = 0, last: int = 3) -> tuple[ShareSession, list[ShareRecord]]:
    made = session()
    made.fetch_request([PLACE], max_records=10, max_wait_ms=500)
    return made, made.fetched(fetched(first, last), 100.0).records


def marks(
    request: share_fetch.ShareFetchRequest | share_acknowledge.ShareAcknowledgeRequest,
) -> list[tuple[int, int, list[int]]]:
    return [
        (each.first_offset, each.last_offset, each.acknowledge_types)
        for topic in request.topics
        for part in topic.partitions
        for each in part.acknowledgement_batches
    ]


def test_records_come_with_their_lock_and_count() -> None:
    _, records = opened()
    assert [(r.offset, r.value, r.delivery_count) for r in records] == [
        (0, b"0", 1), (1, b"1", 1), (2, b"2", 1), (3, b"3", 1),
    ]  # fmt: skip
    assert {(r.topic, r.locked_until, r.node, r.session) for r in records} == {
        ("jobs", 130.0, 3, 7)
    }


def test_the_first_request_opens_the_session_and_the_next_names_only_what_changed() -> None:
    made, _ = opened()
    again = made.fetch_request([PLACE], max_records=10, max_wait_ms=500)
    assert (again.share_session_epoch, again.topics) == (1, [])
    made.fetched(share_fetch.ShareFetchResponse(), 0)
    other = QueuePartition(JOBS, 1)
    moved = made.fetch_request([other], max_records=10, max_wait_ms=500)
    assert [(t.topic_id, [p.partition_index for p in t.partitions]) for t in moved.topics] == [
        (JOBS, [1])
    ]
    assert [(t.topic_id, t.partitions) for t in moved.forgotten_topics_data] == [(JOBS, [0])]


def test_acknowledgements_go_along_with_a_fetch_as_ranges() -> None:
    made, records = opened()
    for record, kind in zip(records, (ACCEPT, ACCEPT, RELEASE, REJECT), strict=True):
        assert made.acknowledge(PLACE, record.offset, kind)
    request = made.fetch_request([PLACE], max_records=10, max_wait_ms=500)
    assert marks(request) == [(0, 1, [ACCEPT]), (2, 2, [RELEASE]), (3, 3, [REJECT])]
    made.fetched(fetched(4, 4), 100.0)
    assert not made.refused
    assert made.held == 1


def test_a_record_is_acknowledged_once() -> None:
    made, [record, *_] = opened()
    assert made.acknowledge(PLACE, record.offset, ACCEPT)
    assert not made.acknowledge(PLACE, record.offset, RELEASE)
    assert not made.acknowledge(PLACE, 99, ACCEPT)


def test_a_renewed_record_stays_ours_with_a_later_lock() -> None:
    made, [record, *_] = opened()
    made.acknowledge(PLACE, record.offset, RENEW)
    assert made.must_acknowledge
    request = made.acknowledge_request()
    assert request.is_renew_ack
    made.acknowledged(answered(), 125.0)
    assert record.locked_until == 155.0
    assert made.acknowledge(PLACE, record.offset, ACCEPT)


def test_one_expired_lock_does_not_take_the_others_along() -> None:
    """The broker refuses all of a partition when one offset is wrong."""
    made, records = opened(0, 7)
    for record in records:
        made.acknowledge(PLACE, record.offset, ACCEPT)
    request = made.acknowledge_request()
    rounds = 0
    while True:
        rounds += 1
        bad = any(first <= 5 <= last for first, last, _ in marks(request))
        made.acknowledged(answered(ErrorCode.INVALID_RECORD_STATE if bad else 0), 0)
        if not made.owes:
            break
        request = made.acknowledge_request()
    assert made.refused == [
        RefusedAcknowledgement(
            "jobs", 0, 5, 5, ErrorCode.INVALID_RECORD_STATE.description,
            ErrorCode.INVALID_RECORD_STATE,
        )
    ]  # fmt: skip
    assert rounds == 7


def test_gaps_are_acknowledged_without_the_program() -> None:
    """Compaction has left 0 and 4 of 0 to 6; 2 and 3 are another member's."""
    made = session()
    made.fetch_request([PLACE], max_records=10, max_wait_ms=500)
    answer = fetched(0, 1, records=batch(1, 3) + batch(5, 6))
    answer.responses[0].partitions[0].acquired_records.append(share_fetch.AcquiredRecords(4, 6, 2))
    arrived = made.fetched(answer, 0)
    assert [(r.offset, r.delivery_count) for r in arrived.records] == [(1, 1), (5, 2), (6, 2)]
    assert marks(made.acknowledge_request()) == [(0, 0, [GAP]), (4, 4, [GAP])]


def test_a_damaged_batch_is_given_up_and_the_next_one_read() -> None:
    made = session()
    made.fetch_request([PLACE], max_records=10, max_wait_ms=500)
    damaged = bytearray(batch(0, 1))
    damaged[-1] ^= 1
    arrived = made.fetched(fetched(0, 3, records=bytes(damaged) + batch(2, 3)), 0)
    assert [r.offset for r in arrived.records] == [2, 3]
    assert marks(made.acknowledge_request()) == [(0, 1, [REJECT])]


def test_a_lost_connection_loses_what_was_held_and_begins_anew() -> None:
    made, records = opened()
    made.acknowledge(PLACE, 0, ACCEPT)
    made.acknowledge_request()
    made.acknowledge(PLACE, 1, RELEASE)
    made.lost()
    assert [(r.first_offset, r.last_offset) for r in made.refused] == [(0, 0), (1, 1)]
    assert not made.acknowledge(PLACE, records[2].offset, ACCEPT)
    assert not made.is_open
    assert made.fetch_request([PLACE], max_records=1, max_wait_ms=0).share_session_epoch == 0


def test_a_session_that_the_broker_forgot_is_lost() -> None:
    made, _ = opened()
    made.fetch_request([PLACE], max_records=1, max_wait_ms=0)
    gone = share_fetch.ShareFetchResponse(error_code=ErrorCode.SHARE_SESSION_NOT_FOUND)
    assert made.fetched(gone, 0).error == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (made.held, made.is_open) == (0, False)


def test_a_final_request_ends_the_session() -> None:
    made, _ = opened()
    made.acknowledge(PLACE, 0, ACCEPT)
    request = made.acknowledge_request(final=True)
    assert (request.share_session_epoch, marks(request)) == (-1, [(0, 0, [ACCEPT])])


def test_the_last_word_on_a_renewed_offset_counts() -> None:
    assert joined([Mark(4, 4, RENEW), Mark(4, 4, ACCEPT)]) == [Mark(4, 4, ACCEPT)]


def test_halves_of_a_range() -> None:
    assert halved([Mark(0, 3, ACCEPT)]) == [[Mark(0, 1, ACCEPT)], [Mark(2, 3, ACCEPT)]]
    assert halved([Mark(0, 0, ACCEPT)]) == [[Mark(0, 0, ACCEPT)]]


def test_a_record_that_is_accepted_after_its_renewal_is_accepted() -> None:
    """Its neighbours were renewed with it; all wait for the next request."""
    made, records = opened()
    for record in records:
        assert made.acknowledge(PLACE, record.offset, RENEW)
    assert made.acknowledge(PLACE, 2, ACCEPT)
    assert made.acknowledge(PLACE, 3, RELEASE)
    assert marks(made.acknowledge_request()) == [
        (0, 1, [RENEW]), (2, 2, [ACCEPT]), (3, 3, [RELEASE]),
    ]  # fmt: skip


def test_what_was_not_answered_is_named_until_it_is() -> None:
    made, _ = opened()
    made.acknowledge(PLACE, 0, ACCEPT)
    made.acknowledge_request()
    made.acknowledge(PLACE, 1, ACCEPT)
    assert [(each.first_offset, each.why) for each in made.unanswered()] == [
        (0, UNANSWERED), (1, UNANSWERED),
    ]  # fmt: skip
    made.acknowledged(answered(), 101.0)
    made.acknowledge_request()
    made.acknowledged(answered(), 101.0)
    assert made.unanswered() == [] and made.refused == []


def test_records_whose_locks_ended_long_ago_are_forgotten() -> None:
    """A member that never acknowledges does not keep them all for ever."""
    made, _ = opened(0, 1)
    made.fetch_request([PLACE], max_records=10, max_wait_ms=500)
    made.fetched(fetched(2, 3), 200.0)
    made.forget_before(130.0)
    assert made.held == 4
    made.forget_before(130.1)
    assert made.held == 2 and not made.holds(PLACE, 1) and made.holds(PLACE, 2)
