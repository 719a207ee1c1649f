"""Preferred leaders get back what they led: the first replica of each partition, by and by.

A broker that comes back leads nothing, and all load stays with the others. Looked at every
`leader.imbalance.check.interval.seconds`: a broker of whose preferred partitions more than
`leader.imbalance.per.broker.percentage` are led by others gets back those for which it is in sync.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from headrace.controller.partition_changes import Election, as_it_is, partition_change
from headrace.metadata.image import MetadataImage

# Apache's bound of elections in one round; the next round comes at once if it was reached.
MOST_ELECTIONS = 1_000


def balance_leaders(
    image: MetadataImage, min_in_sync_replicas: int, *, percentage: int = 10
) -> list[Any]:
    preferred: Counter[int] = Counter()
    elsewhere: Counter[int] = Counter()
    astray = []
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            first = partition.replicas[0]
            preferred[first] += 1
            if partition.leader != first:
                elsewhere[first] += 1
                astray.append((topic, index, first))
    records: list[Any] = []
    for topic, index, first in astray:
        if elsewhere[first] * 100 <= preferred[first] * percentage:
            continue
        record = partition_change(
            image,
            topic,
            index,
            as_it_is(topic.partitions[index]),
            min_in_sync_replicas=min_in_sync_replicas,
            election=Election.PREFERRED,
        )
        if record is not None:
            records.append(record)
        if len(records) >= MOST_ELECTIONS:
            break
    return records
