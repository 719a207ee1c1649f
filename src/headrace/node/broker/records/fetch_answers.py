"""The answer for one partition of a fetch, and how the answers are combined."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.environment import FileSlice
from headrace.node.broker.records.fetch_sessions import Entry
from headrace.node.replication.replica import PartitionLeader
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

NO_RECORDS = b""
# Apache's answers to these have an empty list of aborted transactions, to all others null.
REFUSED_AT_THE_DOOR = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


def refused(entry: Entry, code: ErrorCode) -> PartitionData:
    answer = PartitionData(entry.index, code, -1, -1, -1, records=NO_RECORDS)
    if code not in REFUSED_AT_THE_DOOR:
        answer.aborted_transactions = None
    return answer


def without_records(
    entry: Entry,
    leader: PartitionLeader,
    *,
    diverging: tuple[int, int] | None = None,
    preferred: int = -1,
) -> PartitionData:
    """Returns an answer without records: the partition's offsets, and what the reader is to do
    next."""
    return PartitionData(
        entry.index,
        ErrorCode.NONE,
        leader.high_watermark,
        leader.last_stable_offset(),
        leader.log.start_offset,
        None if diverging is None else EpochEndOffset(*diverging),
        aborted_transactions=None,
        preferred_read_replica=preferred,
        records=NO_RECORDS,
    )


def aborted_transactions(
    leader: PartitionLeader, offset: int, records: FileSlice | None
) -> list[AbortedTransaction]:
    if records is None:
        return []
    return [AbortedTransaction(*found) for found in leader.aborted_transactions(offset, records)]


def group_by_topic(answers: Iterable[tuple[Entry, PartitionData]]) -> list[FetchableTopicResponse]:
    """Neighbours of one topic share an element; the order in which they were read is kept."""
    topics: list[FetchableTopicResponse] = []
    last: FetchableTopicResponse | None = None
    for entry, answer in answers:
        if last is None or last.topic != entry.topic or last.topic_id != entry.topic_id:
            last = FetchableTopicResponse(entry.topic, entry.topic_id)
            topics.append(last)
        last.partitions.append(answer)
    return topics


def refuse_replica(request: FetchRequest) -> FetchResponse:
    """The answer to a client that fetches as a replica and lacks the right."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    response = FetchResponse()
    response.responses = [
        FetchableTopicResponse(
            topic.topic,
            topic.topic_id,
            [
                PartitionData(
                    wanted.partition,
                    code,
                    -1,
                    aborted_transactions=None,
                    records=NO_RECORDS,
                )
                for wanted in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return response
