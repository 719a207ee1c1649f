"""Short ways to say the requests that many stories need."""

from __future__ import annotations

from headrace.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.conformance.stage import Topic

IDS_IN_PRODUCE = 13
IDS_IN_FETCH = 13
EVERYTHING = 1 << 20
UNKNOWN = Topic("never-was", b"\x13" * 16)


def produce_request(
    version: int,
    topic: Topic,
    records: bytes | None,
    *,
    acks: int = -1,
    partition: int = 0,
    transactional_id: str | None = None,
) -> ProduceRequest:
    data = [PartitionProduceData(partition, records)]
    return ProduceRequest(transactional_id, acks, 10_000, [produce_topic(version, topic, data)])


def produce_topic(version: int, topic: Topic, data: list[PartitionProduceData]) -> TopicProduceData:
    if version >= IDS_IN_PRODUCE:
        return TopicProduceData("", topic.id, data)
    return TopicProduceData(topic.name, bytes(16), data)


def fetch_topic(version: int, topic: Topic, *partitions: FetchPartition) -> FetchTopic:
    if version >= IDS_IN_FETCH:
        return FetchTopic("", topic.id, list(partitions))
    return FetchTopic(topic.name, bytes(16), list(partitions))


def from_offset(
    offset: int,
    *,
    partition: int = 0,
    max_bytes: int = EVERYTHING,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
) -> FetchPartition:
    return FetchPartition(
        partition=partition,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched_epoch,
        partition_max_bytes=max_bytes,
    )


def fetch_request(
    *topics: FetchTopic,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 50 << 20,
    isolation_level: int = 0,
    session: tuple[int, int] = (0, -1),
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=list(topics),
    )
