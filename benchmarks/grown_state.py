"""Small requests on a large state: offsets, groups, members, transactions, topics.

The requests of `large_requests.py` grow; here they stay below a kilobyte, and what they are asked
of grows. Each case prepares its state on a node and names the request that reads or ends it. Cases
whose answer can be large are also asked by 20 connections at once (`asked_at_once`).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from headrace.wire.protocol.messages import (
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_topics,
    delete_groups,
    delete_topics,
    describe_acls,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_groups,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
)

from . import wire

ZERO_ID = bytes(16)
TIMEOUT_MS = 60_000
LONGEST_TIMEOUT_MS = 900_000  # transaction.max.timeout.ms
WIDE = "grown-wide"
TENANT = "grown-{:05d}.orders"
COORDINATOR_LOADS = (14, 15)
TEXT = "x" * 100  # of a committed offset
COMMITS_PER_REQUEST = 2_000

Ask = Callable[[ModuleType, int, Any], Any]


@dataclass(slots=True)
class Size:
    """How much state there is; all of it is doubled by `grown`."""

    offsets: int = 4_000  # of each group
    groups: int = 3_000  # with one offset
    offset_groups: int = 22
    members: int = 200
    transactions: int = 1_000
    partitions: int = 4_000  # of one transaction
    topics: int = 1_000
    acls: int = 5_000

    def grown(self, times: int) -> Size:
        fields = {name: times * getattr(self, name) for name in self.__dataclass_fields__}
        return Size(**fields)


@dataclass(slots=True)
class Case:
    key: str
    title: str
    messages: ModuleType
    version: int
    request: Any
    times: int = 1  # pipelined on one connection
    large_answer: bool = False

    def frame(self) -> bytes:
        return self.times * wire.request_frame(self.messages, self.version, self.request)


# --- state


def create_wide(ask: Ask, size: Size) -> None:
    topic = create_topics.CreatableTopic(WIDE, size.partitions, -1)
    ask(create_topics, 7, create_topics.CreateTopicsRequest([topic], TIMEOUT_MS))


def create_topics_of_tenants(ask: Ask, size: Size) -> None:
    topics = [create_topics.CreatableTopic(TENANT.format(n), 1, -1) for n in range(size.topics)]
    ask(create_topics, 7, create_topics.CreateTopicsRequest(topics, TIMEOUT_MS))


def commit(ask: Ask, group: str, count: int, text: str = TEXT) -> None:
    module = offset_commit
    for first in range(0, count, COMMITS_PER_REQUEST):
        numbers = range(first, min(first + COMMITS_PER_REQUEST, count))
        parts = [module.OffsetCommitRequestPartition(n, n, -1, text) for n in numbers]
        topics = [module.OffsetCommitRequestTopic(WIDE, ZERO_ID, parts)]
        ask(module, 8, module.OffsetCommitRequest(group_id=group, topics=topics))


def offset_group(number: int, kind: str = "kept") -> str:
    return f"grown-{kind}-{number}"


def commit_offsets(ask: Ask, size: Size) -> None:
    for number in range(size.offset_groups):
        commit(ask, offset_group(number), size.offsets)
    for number in range(12):
        commit(ask, offset_group(number, "gone"), size.offsets)
    for number in range(size.groups):
        commit(ask, f"grown-small-{number}", 1, "")


def join(ask: Ask, group: str, member: str, **wish: Any) -> None:
    module = consumer_group_heartbeat
    request = module.ConsumerGroupHeartbeatRequest(group, member, 0, rebalance_timeout_ms=60_000)
    request.topic_partitions = []
    for name, value in wish.items():
        setattr(request, name, value)
    answer = ask(module, 1, request)
    assert answer.error_code == 0, answer.error_message


def join_members(ask: Ask, size: Size) -> None:
    for number in range(size.members):
        pattern = f"grown-.*{number % 10}.orders|x{number}"
        join(ask, "grown-readers", f"member-{number}", subscribed_topic_regex=pattern)


def open_transaction(
    ask: Ask, name: str, topic: str, count: int, timeout_ms: int = TIMEOUT_MS
) -> tuple[int, int]:
    module = init_producer_id
    made = ask(module, 4, module.InitProducerIdRequest(name, timeout_ms))
    while made.error_code in COORDINATOR_LOADS:
        time.sleep(0.1)
        made = ask(module, 4, module.InitProducerIdRequest(name, timeout_ms))
    assert made.error_code == 0, made.error_code
    if count:
        adds = add_partitions_to_txn
        wanted = [adds.AddPartitionsToTxnTopic(topic, list(range(count)))]
        request = adds.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=made.producer_id,
            v3_and_below_producer_epoch=made.producer_epoch,
            v3_and_below_topics=wanted,
        )
        ask(adds, 3, request)
    return made.producer_id, made.producer_epoch


def open_transactions(ask: Ask, size: Size) -> None:
    for number in range(size.transactions):
        open_transaction(ask, f"grown-txn-{number}", WIDE, 1)


def create_entries(ask: Ask, size: Size) -> None:
    entries = [
        create_acls.AclCreation(2, f"grown-{n}", 3, "User:a", "*", 3, 3) for n in range(size.acls)
    ]
    for first in range(0, len(entries), 1_000):
        request = create_acls.CreateAclsRequest(entries[first : first + 1_000])
        ask(create_acls, 3, request)


# --- cases

# What is done before the cases: keys, titles, and what does it. Each is many small requests.
PREPARATIONS: tuple[tuple[str, str, Callable[[Ask, Size], None]], ...] = (
    ("create wide", "CreateTopics of one wide topic", create_wide),
    ("create tenants", "CreateTopics of many topics", create_topics_of_tenants),
    ("commit", "OffsetCommit to thousands of groups", commit_offsets),
    ("join", "members with patterns join one by one", join_members),
    ("open", "transactions are opened one by one", open_transactions),
    ("acl entries", "CreateAcls, 1,000 at a time", create_entries),
)
TIMED_OUT = 5  # transactions that time out together


def cases(ask: Ask, size: Size) -> list[Case]:
    """What to ask once the state is prepared. Their order matters: the last ones delete."""
    producer = open_transaction(ask, "grown-large", WIDE, size.partitions, LONGEST_TIMEOUT_MS)
    return [*reading(size), *changing(size, producer)]


def open_transactions_that_time_out(ask: Ask, size: Size, timeout_ms: int = 1_000) -> list[str]:
    """Opens them without ending them: after a while the coordinator aborts all of them."""
    names = [f"grown-late-{number}" for number in range(TIMED_OUT)]
    for name in names:
        open_transaction(ask, name, WIDE, size.partitions, timeout_ms)
    return names


def states_of(ask: Ask, names: list[str]) -> set[str]:
    module = describe_transactions
    answer = ask(module, 0, module.DescribeTransactionsRequest(names))
    return {one.transaction_state for one in answer.transaction_states}


def asked_at_once(port: int, case: Case, count: int) -> None:
    """All of them ask before any of them reads. Then all read at once: a node closes connections
    that leave too much unread for too long."""
    frame = case.frame()
    connections = [wire.connect(port) for _ in range(count)]
    for connection in connections:
        connection.settimeout(600)
        connection.sendall(frame)

    def read(connection: socket.socket) -> None:
        for _ in range(case.times):
            wire.receive_frame(connection)
        connection.close()

    with ThreadPoolExecutor(count) as readers:
        list(readers.map(read, connections))


def reading(size: Size) -> list[Case]:
    fetched = [
        offset_fetch.OffsetFetchRequestGroup(offset_group(n), topics=None)
        for n in range(size.offset_groups)
    ]
    offsets = size.offset_groups * size.offsets
    everything = list_transactions.ListTransactionsRequest(
        [], [], duration_filter=-1, transactional_id_pattern="grown-.*(a?){90}.*"
    )
    module = consumer_group_heartbeat
    regex = module.ConsumerGroupHeartbeatRequest(
        "grown-new", "m", 0, rebalance_timeout_ms=60_000, topic_partitions=[],
        subscribed_topic_regex="(.?){400}",
    )  # fmt: skip
    hostile = module.ConsumerGroupHeartbeatRequest(
        "grown-new", "m", 0, rebalance_timeout_ms=60_000, topic_partitions=[],
        subscribed_topic_regex="(x?){900}" * 8,
    )  # fmt: skip
    acls = describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1)
    return [
        Case("all offsets", f"OffsetFetch, {offsets:,} offsets", offset_fetch, 8,
             offset_fetch.OffsetFetchRequest(groups=fetched), large_answer=True),
        Case("list groups", f"ListGroups, {size.groups:,} groups", list_groups, 5,
             list_groups.ListGroupsRequest([], []), large_answer=True),
        Case("list groups often", f"100 ListGroups, {size.groups:,} groups", list_groups, 5,
             list_groups.ListGroupsRequest([], []), times=100),
        Case("describe readers", f"ConsumerGroupDescribe, {size.members:,} members",
             consumer_group_describe, 1,
             consumer_group_describe.ConsumerGroupDescribeRequest(["grown-readers"]),
             large_answer=True),
        Case("describe groups", "DescribeGroups", describe_groups, 5,
             describe_groups.DescribeGroupsRequest([offset_group(0)])),
        Case("list transactions", f"ListTransactions, {size.transactions:,} ids",
             list_transactions, 2, everything, large_answer=True),
        Case("describe transaction", f"DescribeTransactions, {size.partitions:,} partitions",
             describe_transactions, 0,
             describe_transactions.DescribeTransactionsRequest(["grown-large"]),
             large_answer=True),
        Case("describe producers", "DescribeProducers", describe_producers, 0,
             describe_producers.DescribeProducersRequest(
                 [describe_producers.TopicRequest(WIDE, [0])]), large_answer=True),
        Case("metadata", "Metadata of all topics", metadata, 9,
             metadata.MetadataRequest(topics=None), large_answer=True),
        Case("topic partitions", "DescribeTopicPartitions of all", describe_topic_partitions, 0,
             describe_topic_partitions.DescribeTopicPartitionsRequest(
                 [], response_partition_limit=2_000), large_answer=True),
        Case("log dirs", "DescribeLogDirs of everything", describe_log_dirs, 4,
             describe_log_dirs.DescribeLogDirsRequest(None), large_answer=True),
        Case("configs", "DescribeConfigs of a topic", describe_configs, 4,
             describe_configs.DescribeConfigsRequest(
                 [describe_configs.DescribeConfigsResource(2, WIDE, None)])),
        Case("acls", f"DescribeAcls, {size.acls:,} entries", describe_acls, 3, acls,
             large_answer=True),
        Case("moves", "ListPartitionReassignments", list_partition_reassignments, 0,
             list_partition_reassignments.ListPartitionReassignmentsRequest(TIMEOUT_MS, None)),
        Case("pattern", f"a new pattern, {size.topics:,} topics", module, 1, regex),
        Case("hostile pattern", "a hostile pattern", module, 1, hostile),
    ]  # fmt: skip


def changing(size: Size, producer: tuple[int, int]) -> list[Case]:
    twelve = [offset_group(n, "gone") for n in range(12)]
    forgotten = offset_delete.OffsetDeleteRequest(
        offset_group(0),
        [
            offset_delete.OffsetDeleteRequestTopic(
                WIDE, [offset_delete.OffsetDeleteRequestPartition(0)]
            )
        ],
    )
    return [
        Case("end", f"EndTxn, {size.partitions:,} partitions", end_txn, 4,
             end_txn.EndTxnRequest("grown-large", *producer, True)),
        Case("delete groups", f"DeleteGroups, {12 * size.offsets:,} offsets", delete_groups, 2,
             delete_groups.DeleteGroupsRequest(twelve)),
        Case("forget", "OffsetDelete of one", offset_delete, 0, forgotten),
        Case("delete topic", f"DeleteTopics, {size.partitions:,} partitions, offsets of all groups",
             delete_topics, 6,
             delete_topics.DeleteTopicsRequest(
                 [delete_topics.DeleteTopicState(WIDE)], [], TIMEOUT_MS)),
    ]  # fmt: skip
