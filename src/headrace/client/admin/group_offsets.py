"""Deletes committed offsets of a group (OffsetDelete, which confluent-kafka lacks)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from confluent_kafka import KafkaException

from headrace.client.admin.cluster import late_answer
from headrace.client.connection import ClientSettings, reach
from headrace.client.errors import ClientError, explain, kafka_error
from headrace.client.records import TopicPartition
from headrace.client.wire import Wire, require_no_error
from headrace.wire.protocol.messages import offset_delete as messages


def delete_offsets(
    connection: ClientSettings, group: str, places: Iterable[TopicPartition]
) -> None:
    """The group must not be reading these topics now."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for place in places:
        by_topic[place.topic].append(place.partition)
    topics = [
        messages.OffsetDeleteRequestTopic(
            topic, [messages.OffsetDeleteRequestPartition(number) for number in numbers]
        )
        for topic, numbers in by_topic.items()
    ]
    with Wire(connection, _coordinator_of(connection, group)) as wire:
        answer = wire.ask(messages, messages.OffsetDeleteRequest(group, topics))
    require_no_error(answer.error_code)
    for found in answer.topics:
        for partition in found.partitions:
            require_no_error(partition.error_code)


def _coordinator_of(connection: ClientSettings, group: str) -> tuple[str, int]:
    admin = connection.admin()
    reach(admin, connection)  # fail at once if the cluster is away
    asked = admin.describe_consumer_groups([group], request_timeout=connection.timeout_s)
    try:
        node = asked[group].result(timeout=connection.timeout_s + 5).coordinator
    except KafkaException as failure:
        raise explain(kafka_error(failure), connection.bootstrap) from failure
    except TimeoutError as late:
        raise late_answer(connection) from late
    if node is None:
        raise ClientError(f"No broker coordinates the group {group} now; try again.")
    return str(node.host), node.port
