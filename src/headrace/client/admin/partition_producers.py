"""The recent producers of a partition (DescribeProducers, which librdkafka lacks)."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client.connection import ClientSettings, reach
from headrace.client.errors import ClientError, NoSuchTopic
from headrace.client.records import TopicPartition
from headrace.client.wire import Wire, require_no_error
from headrace.wire.protocol.messages import describe_producers


@dataclass(slots=True)
class ActiveProducer:
    """One producer that a partition remembers."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None  # None: no transaction of it is open here


def active_producers(connection: ClientSettings, place: TopicPartition) -> list[ActiveProducer]:
    request = describe_producers.DescribeProducersRequest(
        [describe_producers.TopicRequest(place.topic, [place.partition])]
    )
    with Wire(connection, _leader(connection, place)) as wire:
        answer = wire.ask(describe_producers, request)
    (topic,) = answer.topics
    (partition,) = topic.partitions
    require_no_error(partition.error_code, partition.error_message)
    return [
        ActiveProducer(
            p.producer_id,
            p.producer_epoch,
            p.last_sequence,
            p.last_timestamp,
            p.coordinator_epoch,
            p.current_txn_start_offset if p.current_txn_start_offset >= 0 else None,
        )
        for p in partition.active_producers
    ]


def _leader(connection: ClientSettings, place: TopicPartition) -> tuple[str, int]:
    metadata = reach(connection.admin(), connection, topic=place.topic)
    topic = metadata.topics.get(place.topic)
    if topic is None or topic.error is not None or place.partition not in topic.partitions:
        raise NoSuchTopic(f"There is no partition {place.partition} of topic {place.topic}.")
    leader = metadata.brokers.get(topic.partitions[place.partition].leader)
    if leader is None:
        raise ClientError(f"{place} has no leader now; try again when its broker is back.")
    return str(leader.host), leader.port
