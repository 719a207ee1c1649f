"""What the loads of groups and transactions share: coordinators found, offsets committed and read.

Versions are those of a current librdkafka where it has the API (OffsetCommit 9, OffsetFetch 9) and
are the same for both brokers.
"""

from __future__ import annotations

import socket
import time

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import find_coordinator, offset_commit, offset_fetch

from . import wire

FIND_COORDINATOR_VERSION = 4
OFFSET_COMMIT_VERSION = OFFSET_FETCH_VERSION = 9
GROUP, TRANSACTION = 0, 1  # key types
OFFSETS_TOPIC, OFFSETS_PARTITIONS = "__consumer_offsets", 50
NOT_YET = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


def find(connection: socket.socket, keys: list[str], key_type: int) -> None:
    """Ask for coordinators until each has one; the first question creates the internal topic."""
    request = find_coordinator.FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
    deadline = time.monotonic() + wire.READY_WITHIN_S
    while True:
        answer = wire.ask(connection, find_coordinator, FIND_COORDINATOR_VERSION, request)
        codes = {found.error_code for found in answer.coordinators}
        if not codes & NOT_YET:
            break
        if time.monotonic() > deadline:
            raise wire.Refused(f"no coordinator: error codes {codes}")
        time.sleep(0.01)
    for code in codes:
        wire.succeed(code, "find coordinators")


def commit_frame(group: str, topic: str, partition: int, offset: int) -> bytes:
    """One offset of one partition, by a group that has no members."""
    part = offset_commit.OffsetCommitRequestPartition(partition, offset)
    request = offset_commit.OffsetCommitRequest(
        group, topics=[offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[part])]
    )
    return wire.request_frame(offset_commit, OFFSET_COMMIT_VERSION, request)


def committing_code(frame: memoryview) -> int:
    """The error code in the reply to `commit_frame`."""
    response = wire.response_of(offset_commit, OFFSET_COMMIT_VERSION, frame)
    code: int = response.topics[0].partitions[0].error_code
    return code


def check_committed(frame: memoryview) -> None:
    wire.succeed(committing_code(frame), "commit an offset")


def commit_when_ready(
    connection: socket.socket, group: str, topic: str, partition: int, offset: int
) -> None:
    """Commit, again while the group's coordinator is loading."""
    deadline = time.monotonic() + wire.READY_WITHIN_S
    frame = commit_frame(group, topic, partition, offset)
    while True:
        connection.sendall(frame)
        code = committing_code(wire.receive_frame(connection))
        if code not in NOT_YET or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    wire.succeed(code, "commit an offset")


def committed_offsets(
    connection: socket.socket, groups: list[str], topic: str, partition: int
) -> list[int]:
    """The offset that each group has for the partition."""
    wanted = [offset_fetch.OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
    request = offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(group, topics=wanted) for group in groups]
    )
    answer = wire.ask(connection, offset_fetch, OFFSET_FETCH_VERSION, request)
    found: dict[str, int] = {}
    for group in answer.groups:
        wire.succeed(group.error_code, f"offsets of {group.group_id}")
        part = group.topics[0].partitions[0]
        wire.succeed(part.error_code, f"offset of {group.group_id}")
        found[group.group_id] = part.committed_offset
    return [found[group] for group in groups]


def offsets_written(connection: socket.socket) -> int:
    """How many records the internal topic of offsets has taken."""
    parts = [(OFFSETS_TOPIC, part) for part in range(OFFSETS_PARTITIONS)]
    return sum(wire.ends_when_ready(connection, parts))
