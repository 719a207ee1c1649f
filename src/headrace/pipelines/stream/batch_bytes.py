"""How many records a batch takes where the pipeline does not say: as many as are 512 MiB.

Spark's Kafka source limits a batch by records only. So the size of records is looked up in the
topic when a run begins: some from the middle of the partitions that hold most. What comes later may
be larger or smaller; a pipeline that needs an exact limit says `per_batch=`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.lookup.record_reader import AtOffset, RecordReader
from headrace.pipelines.stream.backfill import Offsets, committed_ends, first_offsets

MOST_BYTES = 512 * 1024 * 1024
ASSUMED_BYTES = 1024  # of a record, where a topic is empty or does not answer
AROUND_BYTES = 64  # of a record beside its key and value: offset, time, headers
LOOKED_AT = 200  # records of a partition
PARTITIONS = 4


def records_per_batch(connection: ClientSettings, topics: Iterable[str]) -> int:
    """Returns how many records a batch may have; the topic with the largest sampled records
    decides."""
    known = list(topics)
    try:
        places = middles(first_offsets(connection, known), committed_ends(connection, known))
        sizes = [_mean_size(connection, *place) for place in places]
    except ClientError:  # the run itself reports what is wrong with the topic
        sizes = []
    return most_records(max(filter(None, sizes), default=ASSUMED_BYTES))


def most_records(size: float) -> int:
    return max(1, int(MOST_BYTES / size))


def middles(first: Offsets, last: Offsets) -> list[tuple[str, int, int]]:
    """Topic, partition and the offset in the middle, of the partitions that hold most."""
    held = [
        (end - first[topic][partition], topic, int(partition), (first[topic][partition] + end) // 2)
        for topic, partitions in last.items()
        for partition, end in partitions.items()
    ]
    fullest = sorted((one for one in held if one[0] > 0), reverse=True)[:PARTITIONS]
    return [(topic, partition, middle) for _, topic, partition, middle in fullest]


def _mean_size(connection: ClientSettings, topic: str, partition: int, middle: int) -> float:
    """Returns the mean size of the records after the middle; 0 if there are none."""
    reader = RecordReader(connection, topic, start=AtOffset(middle), partitions=[partition])
    try:
        sizes = [
            AROUND_BYTES + len(one.key or b"") + len(one.value or b"")
            for one in islice(reader.records(), LOOKED_AT)
        ]
    finally:
        reader.close()
    return sum(sizes) / len(sizes) if sizes else 0.0
