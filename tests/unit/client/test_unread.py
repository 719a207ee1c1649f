"""Lag: what a reader can still get, from the batches between its offset and the end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace.client.admin.unread import CLOSE, FETCHED_BYTES, UnreadCounter
from headrace.wire.protocol.control_records import end_txn_batch
from headrace.wire.protocol.messages import fetch, list_offsets
from headrace.wire.protocol.record_batch import Record, build

PLACE = ("orders", 0)
BROKER = SimpleNamespace(host="127.0.0.1", port=9092)


def records(first: int, count: int = 1, *, producer: int = -1, value: bytes = b"x") -> bytes:
    return build(
        [Record(None, value) for _ in range(count)],
        base_offset=first,
        producer_id=producer,
        is_transactional=producer >= 0,
    )


def marker(offset: int, *, commit: bool = True, producer: int = 7) -> bytes:
    return end_txn_batch(
        commit=commit,
        coordinator_epoch=0,
        producer_id=producer,
        producer_epoch=0,
        timestamp=0,
        base_offset=offset,
    )


class Leader:
    """Answers for one log that is the leader's for every partition, and counts the requests."""

    def __init__(self, end: int, *batches: bytes, start: int = 0, aborted: int | None = None):
        self.end, self.start, self.batches, self.aborted = end, start, batches, aborted
        self.asked: list[str] = []

    def version_of(self, messages: Any) -> int:
        return int(messages.VERSIONS[-1])

    def ask(self, messages: Any, request: Any, *, version: int | None = None) -> Any:
        self.asked.append(messages.NAME)
        found = self._fetched if messages is fetch else self._offset
        topics = [
            SimpleNamespace(
                name=getattr(topic, "name", ""),
                topic=getattr(topic, "topic", ""),
                partitions=[found(each) for each in topic.partitions],
            )
            for topic in request.topics
        ]
        return SimpleNamespace(topics=topics, responses=topics)

    def _offset(self, asked: list_offsets.ListOffsetsPartition) -> Any:
        offset = self.end if asked.timestamp == -1 else self.start
        return SimpleNamespace(partition_index=asked.partition_index, error_code=0, offset=offset)

    def _fetched(self, asked: fetch.FetchPartition) -> fetch.PartitionData:
        whole = b"".join(self.batches)
        at = 0
        for each in self.batches:
            base, delta = int.from_bytes(each[:8], "big"), int.from_bytes(each[23:27], "big")
            if base + delta >= asked.fetch_offset:
                break
            at += len(each)
        aborted = [] if self.aborted is None else [fetch.AbortedTransaction(7, self.aborted)]
        cut = whole[at : at + asked.partition_max_bytes]
        return fetch.PartitionData(
            partition_index=asked.partition, aborted_transactions=aborted, records=cut
        )


def cluster(partitions: int = 1) -> Any:
    led = {number: SimpleNamespace(leader=1) for number in range(partitions)}
    return SimpleNamespace(topics={"orders": SimpleNamespace(partitions=led)}, brokers={1: BROKER})


def wire(leader: Leader) -> Any:
    return lambda address: leader


def after(leader: Leader, offset: int | None) -> int | None:
    found = UnreadCounter(cluster(), wire(leader)).look({PLACE: (offset,)})
    return found.after(PLACE, offset)


def test_a_marker_is_nothing_to_read() -> None:
    log = Leader(2, records(0, producer=7), marker(1))
    assert after(log, 1) == 0
    assert after(log, 0) == 1
    assert after(log, 2) == 0


def test_a_reader_of_every_record_of_many_small_transactions_is_not_behind() -> None:
    batches = [each for n in range(0, 40, 2) for each in (records(n, producer=7), marker(n + 1))]
    assert after(Leader(40, *batches), 39) == 0
    assert after(Leader(40, *batches), 35) == 2


def test_aborted_records_are_nothing_to_read_and_those_after_them_are() -> None:
    aborted = (records(0, 3, producer=7), marker(3, commit=False))
    assert after(Leader(4, *aborted, aborted=0), 0) == 0
    log = Leader(6, *aborted, records(4, producer=7), marker(5), aborted=0)
    assert after(log, 0) == 1


def test_a_large_aborted_batch_that_is_cut_off_is_passed_over() -> None:
    large = records(0, 2, producer=7, value=b"x" * FETCHED_BYTES)
    log = Leader(3, large, marker(2, commit=False), aborted=0)
    assert after(log, 0) == 0
    assert log.asked == ["ListOffsets", "ListOffsets", "Fetch", "Fetch"]


def test_a_large_batch_of_records_counts_by_its_header() -> None:
    assert after(Leader(4, records(0, 4, value=b"x" * FETCHED_BYTES)), 1) == 3


def test_records_of_an_open_transaction_count() -> None:
    """A fetch of committed records ends before them."""
    assert after(Leader(3, records(0), marker(1)), 1) == 1


def test_what_was_deleted_is_not_to_be_read() -> None:
    assert after(Leader(500, start=500), 20) == 0
    assert after(Leader(500, start=100), 20) == 400


def test_without_a_commit_all_records_are_counted() -> None:
    assert after(Leader(500, start=100), None) == 400
    assert after(Leader(0), None) == 0


def test_far_from_the_end_nothing_is_fetched() -> None:
    log = Leader(CLOSE + 1, marker(0))
    assert after(log, 0) == CLOSE + 1
    assert log.asked == ["ListOffsets", "ListOffsets"]


def test_thousands_of_partitions_take_a_few_requests() -> None:
    log = Leader(2, records(0, producer=7), marker(1))
    readers = {("orders", number): (1, 2) for number in range(3_000)}
    found = UnreadCounter(cluster(3_000), wire(log)).look(readers)
    assert all(found.after(place, 1) == 0 for place in readers)
    assert len(log.asked) == 9


def test_without_a_leader_nothing_is_known() -> None:
    found = UnreadCounter(cluster(), wire(Leader(2))).look({("gone", 0): (1,)})
    assert found.after(("gone", 0), 1) is None
