"""Reads whole partitions back over the wire and trusts nothing: checksums, offsets, records."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import crc32c

from headrace.wire.protocol.messages import fetch
from headrace.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.conformance.batches import CODECS, HEADER, LOG_OVERHEAD, decompressed, read_records
from tests.conformance.wire import Connection

FETCH_BYTES = 4 << 20


@dataclass(slots=True, frozen=True)
class Stored:
    """One record as it lies in the log."""

    offset: int
    value: bytes


def read_partition(port: int, topic_id: bytes, partition: int) -> list[Stored]:
    """All records of a partition from its start to its high watermark."""
    connection = Connection(port)
    stored: list[Stored] = []
    next_offset = 0
    while True:
        answer = ask(connection, topic_id, partition, next_offset)
        if next_offset >= answer.high_watermark:
            assert next_offset == answer.high_watermark, "the log ends behind its high watermark"
            connection.close()
            return stored
        for record in records_of(bytes(answer.records), next_offset):
            stored.append(record)
        assert stored and stored[-1].offset >= next_offset, "a fetch below the end gave nothing"
        next_offset = stored[-1].offset + 1


def ask(connection: Connection, topic_id: bytes, partition: int, offset: int) -> Any:
    wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    topics = [FetchTopic("", topic_id, [wanted])]
    answer: Any = connection.ask(fetch, 13, FetchRequest(max_wait_ms=100, topics=topics))
    result = answer.responses[0].partitions[0]
    assert result.error_code == 0, f"partition {partition} from {offset}: error {result.error_code}"
    return result


def records_of(data: bytes, expected_offset: int) -> Iterator[Stored]:
    """Records of the whole batches; the last one may be cut by the size of the fetch."""
    position = 0
    while position + HEADER.size <= len(data):
        (length,) = struct.unpack_from(">i", data, position + 8)
        batch = data[position : position + LOG_OVERHEAD + length]
        if len(batch) < LOG_OVERHEAD + length:
            return
        head = HEADER.unpack_from(batch)
        assert head[4] == crc32c.crc32c(batch[21:]), f"bad checksum in the batch at {head[0]}"
        assert head[0] == expected_offset, f"offset {head[0]} follows {expected_offset - 1}"
        codec = CODECS[head[5] & 7]
        for record in read_records(decompressed(codec, batch[HEADER.size :]), head[12]):
            yield Stored(head[0] + record["offset_delta"], record["value"])
        expected_offset = head[0] + head[6] + 1
        position += len(batch)
