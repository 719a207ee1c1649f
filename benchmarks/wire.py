"""The benchmarks' client of the Kafka protocol: a blocking connection and the few requests needed.

Messages come from the project's codecs; the versions are those of a current librdkafka (Produce 9,
Fetch 12) and are the same for both brokers. Anything but success raises: a benchmark of refusals
is worthless. Loads that must be cheap are in `load.py` and use frames encoded here.
"""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from headrace.environment import FileSlice
from headrace.wire.protocol.framing import decode_response, encode_request
from headrace.wire.protocol.messages import create_topics, fetch, list_offsets, produce
from headrace.wire.protocol.record_batch import Record, build

from .brokers import HOST

PRODUCE_VERSION, FETCH_VERSION = 9, 12
CREATE_TOPICS_VERSION, LIST_OFFSETS_VERSION, METADATA_VERSION = 7, 7, 12
ACKS_ALL = -1
LATEST = -1
CLIENT_ID = "bench"
CORRELATION_ID = 1  # one request is answered before the next, or all are alike (load.py)
REQUEST_TIMEOUT_MS = 30_000
SOCKET_TIMEOUT_S = 60.0
READY_WITHIN_S = 120.0


class Refused(Exception):
    """The broker answered with an error code."""


def connect(port: int) -> socket.socket:
    connection = socket.create_connection((HOST, port), timeout=SOCKET_TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def request_frame(messages: ModuleType, version: int, request: Any) -> bytes:
    """A whole request with its length and header."""
    pieces = encode_request(messages, version, CORRELATION_ID, CLIENT_ID, request)
    return b"".join(piece for piece in pieces if not isinstance(piece, FileSlice))


def response_of(messages: ModuleType, version: int, frame: memoryview) -> Any:
    """The message in a reply without its length."""
    return decode_response(messages, version, frame)[1]


def receive_frame(connection: socket.socket) -> memoryview:
    (length,) = struct.unpack(">i", _receive_exactly(connection, 4))
    return _receive_exactly(connection, length)


def _receive_exactly(connection: socket.socket, length: int) -> memoryview:
    view = memoryview(bytearray(length))
    at = 0
    while at < length:
        received = connection.recv_into(view[at:])
        if received == 0:
            raise ConnectionError("the broker closed the connection")
        at += received
    return view


def ask(connection: socket.socket, messages: ModuleType, version: int, request: Any) -> Any:
    connection.sendall(request_frame(messages, version, request))
    return response_of(messages, version, receive_frame(connection))


def succeed(code: int, what: str) -> None:
    if code != 0:
        raise Refused(f"{what}: error code {code}")


def create_topics_with(
    connection: socket.socket, topics: Iterable[str], *, partitions: int, **configs: str
) -> None:
    """Create topics and wait until each has its leaders."""
    names = list(topics)
    settings = [
        create_topics.CreatableTopicConfig(name=name.replace("_", "."), value=value)
        for name, value in configs.items()
    ]
    request = create_topics.CreateTopicsRequest(
        topics=[
            create_topics.CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=1, configs=settings
            )
            for name in names
        ],
        timeout_ms=REQUEST_TIMEOUT_MS,
    )
    for topic in ask(connection, create_topics, CREATE_TOPICS_VERSION, request).topics:
        succeed(topic.error_code, f"create {topic.name}")
    ends_when_ready(connection, [(name, part) for name in names for part in range(partitions)])


def end_offset(connection: socket.socket, topic: str, partition: int) -> int:
    """The partition's end, i.e. how many records it has taken."""
    part = list_offsets.ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
    request = list_offsets.ListOffsetsRequest(
        replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[part])]
    )
    answer = ask(connection, list_offsets, LIST_OFFSETS_VERSION, request).topics[0].partitions[0]
    succeed(answer.error_code, f"end offset of {topic}-{partition}")
    offset: int = answer.offset
    return offset


def ends_when_ready(connection: socket.socket, partitions: list[tuple[str, int]]) -> list[int]:
    """The end of each partition, asked again while one has no leader yet."""
    deadline = time.monotonic() + READY_WITHIN_S
    ends: list[int] = []
    while len(ends) < len(partitions):
        try:
            ends.append(end_offset(connection, *partitions[len(ends)]))
        except Refused:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)
    return ends


def batch_of(records: int, value_size: int, *, wall_ms: int | None = None) -> bytes:
    """An uncompressed v2 batch of records without keys and with values that do not compress."""
    noise = random.Random(value_size)
    now = int(time.time() * 1000) if wall_ms is None else wall_ms
    made = [Record(None, noise.randbytes(value_size), timestamp=now) for _ in range(records)]
    return build(made)


def produce_frame(topic: str, partition: int, batch: bytes) -> bytes:
    part = produce.PartitionProduceData(index=partition, records=batch)
    data = [produce.TopicProduceData(name=topic, partition_data=[part])]
    request = produce.ProduceRequest(acks=ACKS_ALL, timeout_ms=REQUEST_TIMEOUT_MS, topic_data=data)
    return request_frame(produce, PRODUCE_VERSION, request)


def check_produced(frame: memoryview) -> int:
    """The base offset that a Produce reply tells."""
    response = response_of(produce, PRODUCE_VERSION, frame)
    answer = response.responses[0].partition_responses[0]
    succeed(answer.error_code, "produce")
    offset: int = answer.base_offset
    return offset


def fetch_frame(
    topic: str, partition: int, offset: int, *, max_bytes: int, max_wait_ms: int = 500
) -> bytes:
    """A fetch of one partition outside of any session, as librdkafka sends it."""
    part = fetch.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes
    )
    return request_frame(
        fetch,
        FETCH_VERSION,
        fetch.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=50 << 20,
            session_epoch=-1,
            topics=[fetch.FetchTopic(topic=topic, partitions=[part])],
        ),
    )


def fetched_records(frame: memoryview) -> memoryview:
    """The bytes of batches in the reply to `fetch_frame`; the last batch may be cut."""
    response = response_of(fetch, FETCH_VERSION, frame)
    succeed(response.error_code, "fetch")
    answer = response.responses[0].partitions[0]
    succeed(answer.error_code, "fetch of the partition")
    records: memoryview | None = answer.records
    return memoryview(b"") if records is None else records
