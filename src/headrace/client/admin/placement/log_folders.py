"""The bytes of partitions on the brokers' disks (DescribeLogDirs, which librdkafka lacks)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.wire import Wire
from headrace.wire.protocol.messages import describe_log_dirs as messages

Sizes = dict[tuple[str, int], int]  # bytes by topic and partition


def sizes_by_partition(
    connection: ClientSettings,
    brokers: Iterable[tuple[str, int]],
    partitions: Mapping[str, Iterable[int]],
) -> Sizes:
    """Bytes of each partition's largest replica; a broker that does not answer is left out."""
    request = messages.DescribeLogDirsRequest(
        [
            messages.DescribableLogDirTopic(topic, list(indexes))
            for topic, indexes in partitions.items()
        ]
    )
    sizes: Sizes = {}
    for address in brokers:
        try:
            with Wire(connection, address) as wire:
                answer: messages.DescribeLogDirsResponse = wire.ask(messages, request)
        except ClientError:
            continue
        for (topic, index), size in _sizes_in(answer):
            sizes[topic, index] = max(size, sizes.get((topic, index), 0))
    return sizes


def _sizes_in(
    answer: messages.DescribeLogDirsResponse,
) -> Iterable[tuple[tuple[str, int], int]]:
    for folder in answer.results:
        for topic in folder.topics:
            for partition in topic.partitions:
                if not partition.is_future_key:  # a copy that is on its way to another folder
                    yield (topic.name, partition.partition_index), partition.partition_size
