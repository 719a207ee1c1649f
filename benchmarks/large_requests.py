"""The largest requests that clients may send, one kind for each API that goes through a list.

Each is made in two sizes: about 64 KiB, and 4 MiB, the most that Headrace takes of a request that
has no records (Apache Kafka takes 100 MiB). Creations are bounded by the records that they need,
10,000 on both: they are small requests with much work. Their order matters: what one creates the
next ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from headrace.wire.protocol.messages import (
    alter_partition_reassignments,
    create_acls,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)

from . import wire

SMALL, LARGE = 64 << 10, 4 << 20
SMALL_LABEL, LARGE_LABEL = "64 KiB", "4 MiB"
WIDE = "wide"  # a topic of many partitions
MANY = "many-{}"  # topics of one partition
GROUP = "stalls"
ZERO_ID = bytes(16)
TIMEOUT_MS = 60_000
UNKNOWN = "unknown"


@dataclass(slots=True)
class LargeRequest:
    key: str
    title: str
    messages: ModuleType
    version: int
    request: Any

    def frame(self) -> bytes:
        return wire.request_frame(self.messages, self.version, self.request)


@dataclass(slots=True)
class Counts:
    """How much of what a broker is asked for."""

    wide: int = 5_000  # partitions of one topic
    more: int = 4_000  # partitions that are added to them
    many: int = 2_000  # topics of one partition
    auto: int = 3_000  # topics that Metadata makes


def fitting(make: Callable[[int], Any], module: ModuleType, version: int, size: int) -> Any:
    """The request with as many elements as fit into `size` bytes."""
    count = 1_000
    for _ in range(3):  # later elements may be longer: their numbers are
        count = int(count * 0.98 * size / len(wire.request_frame(module, version, make(count))))
    return make(count)


def metadata_of(names: list[str], *, creates: bool = False) -> Any:
    wanted = [metadata.MetadataRequestTopic(name=name) for name in names]
    return metadata.MetadataRequest(wanted, allow_auto_topic_creation=creates)


def fetch_of(count: int) -> Any:
    parts = [fetch.FetchPartition(index) for index in range(count)]
    topics = [fetch.FetchTopic(UNKNOWN, ZERO_ID, parts)]
    return fetch.FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=topics)


def offsets_of(topic: str, count: int) -> Any:
    parts = [list_offsets.ListOffsetsPartition(index, -1, -1) for index in range(count)]
    return list_offsets.ListOffsetsRequest(topics=[list_offsets.ListOffsetsTopic(topic, parts)])


def commit_of(count: int) -> Any:
    module = offset_commit
    parts = [module.OffsetCommitRequestPartition(index, 5, -1, "") for index in range(count)]
    topics = [module.OffsetCommitRequestTopic(WIDE, ZERO_ID, parts)]
    return module.OffsetCommitRequest(group_id=GROUP, topics=topics)


def committed_of(count: int) -> Any:
    parts = list(range(count))
    topics = [offset_fetch.OffsetFetchRequestTopics(UNKNOWN, ZERO_ID, parts)]
    return offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(GROUP, topics=topics)]
    )


def settings_of(count: int) -> Any:
    wanted = [
        describe_configs.DescribeConfigsResource(2, MANY.format(i), None) for i in range(count)
    ]
    return describe_configs.DescribeConfigsRequest(wanted)


def changes_of(count: int) -> Any:
    module = incremental_alter_configs
    change = [module.AlterableConfig("retention.ms", 0, "1000000000")]
    resources = [module.AlterConfigsResource(2, MANY.format(i), change) for i in range(count)]
    return module.IncrementalAlterConfigsRequest(resources)


def epochs_of(count: int) -> Any:
    module = offset_for_leader_epoch
    parts = [module.OffsetForLeaderPartition(index, -1, 0) for index in range(count)]
    return module.OffsetForLeaderEpochRequest(-2, [module.OffsetForLeaderTopic(WIDE, parts)])


def cuts_of(count: int) -> Any:
    module = delete_records
    parts = [module.DeleteRecordsPartition(index, 0) for index in range(count)]
    return module.DeleteRecordsRequest([module.DeleteRecordsTopic(WIDE, parts)], TIMEOUT_MS)


def forgotten_of(count: int) -> Any:
    module = offset_delete
    parts = [module.OffsetDeleteRequestPartition(index) for index in range(count)]
    return module.OffsetDeleteRequest(GROUP, [module.OffsetDeleteRequestTopic(UNKNOWN, parts)])


def moves_of(count: int) -> Any:
    module = alter_partition_reassignments
    parts = [module.ReassignablePartition(index, None) for index in range(count)]
    topics = [module.ReassignableTopic(WIDE, parts)]
    return module.AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=topics)


def producers_of(count: int) -> Any:
    topics = [describe_producers.TopicRequest(WIDE, list(range(count)))]
    return describe_producers.DescribeProducersRequest(topics)


def deletion_of(names: list[str]) -> Any:
    topics = [delete_topics.DeleteTopicState(name) for name in names]
    return delete_topics.DeleteTopicsRequest(topics, [], TIMEOUT_MS)


def creation_of(names: list[str], partitions: int) -> Any:
    topics = [create_topics.CreatableTopic(name, partitions, -1) for name in names]
    return create_topics.CreateTopicsRequest(topics, TIMEOUT_MS)


def growth_of(count: int) -> Any:
    topics = [create_partitions.CreatePartitionsTopic(WIDE, count, None)]
    return create_partitions.CreatePartitionsRequest(topics, TIMEOUT_MS)


def names(count: int, form: str = "n{}") -> list[str]:
    return [form.format(number) for number in range(count)]


def creations(counts: Counts) -> Iterator[LargeRequest]:
    """Small requests, much work."""
    many = names(counts.many, MANY)
    yield LargeRequest(
        "auto", f"Metadata that creates {counts.auto:,} topics", metadata, 9,
        metadata_of(names(counts.auto, "auto-{}"), creates=True),
    )  # fmt: skip
    yield LargeRequest(
        "create wide", f"CreateTopics, {counts.wide:,} partitions", create_topics, 7,
        creation_of([WIDE], counts.wide),
    )  # fmt: skip
    yield LargeRequest(
        "create many", f"CreateTopics, {counts.many:,} topics", create_topics, 7,
        creation_of(many, 1),
    )  # fmt: skip
    yield LargeRequest(
        "grow", f"CreatePartitions, {counts.more:,} more", create_partitions, 3,
        growth_of(counts.wide + counts.more),
    )  # fmt: skip


def deletions(counts: Counts) -> Iterator[LargeRequest]:
    partitions = counts.wide + counts.more
    yield LargeRequest(
        "delete wide", f"DeleteTopics, {partitions:,} partitions with committed offsets",
        delete_topics, 6, deletion_of([WIDE]),
    )  # fmt: skip
    yield LargeRequest(
        "delete many", f"DeleteTopics, {counts.many:,} topics", delete_topics, 6,
        deletion_of(names(counts.many, MANY)),
    )  # fmt: skip


def long_answers() -> Iterator[LargeRequest]:
    """Small requests, long answers."""
    everything = offset_fetch.OffsetFetchRequestGroup(GROUP, topics=None)
    yield LargeRequest("all topics", "Metadata of all topics", metadata, 9,
                       metadata.MetadataRequest(topics=None))  # fmt: skip
    yield LargeRequest("all offsets", "OffsetFetch of all offsets of a group", offset_fetch, 8,
                       offset_fetch.OffsetFetchRequest(groups=[everything]))  # fmt: skip
    yield LargeRequest("log dirs", "DescribeLogDirs of everything", describe_log_dirs, 4,
                       describe_log_dirs.DescribeLogDirsRequest(None))  # fmt: skip


# Key, title, module, version, and what makes a request of so many elements.
LISTS: tuple[tuple[str, str, ModuleType, int, Callable[[int], Any]], ...] = (
    ("metadata", "Metadata of unknown names", metadata, 9, lambda n: metadata_of(names(n))),
    ("fetch", "Fetch of unknown partitions", fetch, 12, fetch_of),
    ("offsets", "ListOffsets", list_offsets, 7, lambda n: offsets_of(WIDE, n)),
    ("commit", "OffsetCommit", offset_commit, 8, commit_of),
    ("committed", "OffsetFetch of unknown partitions", offset_fetch, 8, committed_of),
    ("find", "FindCoordinator", find_coordinator, 4,
     lambda n: find_coordinator.FindCoordinatorRequest("", 0, names(n))),
    ("groups", "DescribeGroups", describe_groups, 5,
     lambda n: describe_groups.DescribeGroupsRequest(names(n))),
    ("settings", "DescribeConfigs", describe_configs, 4, settings_of),
    ("changes", "IncrementalAlterConfigs", incremental_alter_configs, 1, changes_of),
    ("epochs", "OffsetForLeaderEpoch", offset_for_leader_epoch, 4, epochs_of),
    ("producers", "DescribeProducers", describe_producers, 0, producers_of),
    ("cuts", "DeleteRecords", delete_records, 2, cuts_of),
    ("group deletions", "DeleteGroups", delete_groups, 2,
     lambda n: delete_groups.DeleteGroupsRequest(names(n))),
    ("transactions", "DescribeTransactions", describe_transactions, 0,
     lambda n: describe_transactions.DescribeTransactionsRequest(names(n))),
    ("forgotten", "OffsetDelete", offset_delete, 0, forgotten_of),
    ("leavers", "LeaveGroup", leave_group, 5,
     lambda n: leave_group.LeaveGroupRequest(GROUP, "", [leave_group.MemberIdentity(name)
                                                         for name in names(n)])),
    ("deletions", "DeleteTopics of unknown names", delete_topics, 6,
     lambda n: deletion_of(names(n))),
    ("topic partitions", "DescribeTopicPartitions", describe_topic_partitions, 0,
     lambda n: describe_topic_partitions.DescribeTopicPartitionsRequest(
         [describe_topic_partitions.TopicRequest(name) for name in names(n)])),
    ("elections", "ElectLeaders", elect_leaders, 2,
     lambda n: elect_leaders.ElectLeadersRequest(
         0, [elect_leaders.TopicPartitions(WIDE, list(range(n)))], TIMEOUT_MS)),
    ("moves", "AlterPartitionReassignments", alter_partition_reassignments, 0, moves_of),
    ("entries", "CreateAcls", create_acls, 3,
     lambda n: create_acls.CreateAclsRequest(
         [create_acls.AclCreation(2, name, 3, "User:a", "*", 3, 3) for name in names(n)])),
)  # fmt: skip
# Headrace refuses more than 50,000 partitions, topics or members where it decides of all at once,
# Apache Kafka more than 10,000 changed settings; both are far below 4 MiB.
ONLY_SMALL = {
    "producers",
    "cuts",
    "changes",
    "forgotten",
    "leavers",
    "deletions",
    "topic partitions",
    "elections",
    "moves",
}


def of_size(size: int) -> Iterator[LargeRequest]:
    label = SMALL_LABEL if size == SMALL else LARGE_LABEL
    for key, title, module, version, make in LISTS:
        if size == LARGE and key in ONLY_SMALL:
            continue
        request = fitting(make, module, version, size)
        yield LargeRequest(f"{key} {label}", f"{title}, {label}", module, version, request)


def records_of_1_mb() -> LargeRequest:
    """The largest batch that topics take in their default settings."""
    batch = wire.batch_of(1_000, 1_000)
    part = produce.PartitionProduceData(index=0, records=batch)
    topic = produce.TopicProduceData(name=WIDE, partition_data=[part])
    request = produce.ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[topic])
    return LargeRequest("produce", "Produce of 1 MB", produce, 9, request)


def large_requests(counts: Counts, *, small_only: bool = False) -> Iterator[LargeRequest]:
    yield from creations(counts)
    yield records_of_1_mb()
    yield from of_size(SMALL)
    if not small_only:
        yield from of_size(LARGE)
    yield from long_answers()
    yield from deletions(counts)


def all_titles(counts: Counts) -> Iterator[tuple[str, str]]:
    """Keys and titles of all of them, without making those that are large."""
    for request in (*creations(counts), records_of_1_mb()):
        yield request.key, request.title
    for label in (SMALL_LABEL, LARGE_LABEL):
        for key, title, *_ in LISTS:
            if label == SMALL_LABEL or key not in ONLY_SMALL:
                yield f"{key} {label}", f"{title}, {label}"
    for request in (*long_answers(), *deletions(counts)):
        yield request.key, request.title
