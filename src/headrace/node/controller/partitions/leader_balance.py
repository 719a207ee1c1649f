"""Moves leadership back to preferred leaders that are in sync.

A broker that comes back leads nothing, and all load stays with the others. Checked every
`leader.imbalance.check.interval.seconds`; Apache Kafka 4 has no percentage of imbalance that it
tolerates.
"""

from __future__ import annotations

from typing import Any

from headrace.node.controller.partitions.partition_changes import (
    Election,
    as_it_is,
    partition_change,
)
from headrace.node.metadata.image import MetadataImage

# Apache's bound of elections in one round.
MOST_ELECTIONS = 1_000


def balance_leaders(image: MetadataImage, min_in_sync_replicas: int) -> list[Any]:
    records: list[Any] = []
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if partition.leader == partition.replicas[0]:
                continue
            record = partition_change(
                image,
                topic,
                index,
                as_it_is(partition),
                min_in_sync_replicas=min_in_sync_replicas,
                election=Election.PREFERRED,
            )
            if record is not None:
                records.append(record)
            if len(records) >= MOST_ELECTIONS:
                return records
    return records
