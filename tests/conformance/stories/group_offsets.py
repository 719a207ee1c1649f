"""FindCoordinator 0-6, OffsetCommit 2-10, OffsetFetch 1-10, OffsetDelete 0, DeleteGroups 0-2."""

from __future__ import annotations

from typing import Any

from headrace.wire.protocol.messages import (
    delete_groups,
    find_coordinator,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from headrace.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.conformance.stage import Stage, Topic

MANY_KEYS = 4
MANY_GROUPS = 8
IDS = 10
NEVER = Topic("never-was", b"\x13" * 16)


def with_coordinator(stage: Stage, group: str) -> None:
    """Until the coordinator's topic is there and loaded; Apache's takes its time."""

    def is_there() -> bool:
        request = FindCoordinatorRequest(group, 0, [group])
        answer: Any = stage.connection.ask(find_coordinator, 4, request)
        if answer.coordinators[0].error_code:
            return False
        wanted = OffsetFetchRequestGroup(group, None, -1, None)
        fetched: Any = stage.connection.ask(offset_fetch, 9, OffsetFetchRequest(groups=[wanted]))
        return bool(fetched.groups[0].error_code == 0)

    stage.until(is_there, 60)


def finding_the_coordinator(stage: Stage) -> None:
    with_coordinator(stage, "g")
    for version in find_coordinator.VERSIONS:

        def ask(line: str, *keys: str, kind: int = 0, version: int = version) -> None:
            key = keys[0] if keys else ""
            request = FindCoordinatorRequest(key, kind if version else 0, list(keys))
            stage.ask(f"v{version} {line}", find_coordinator, version, request)

        ask("a group", "g")
        ask("no name", "")
        if version >= MANY_KEYS:
            ask("two groups", "g", "h")
            ask("nothing")
        if version:
            ask("a kind that is not there", "g", kind=7)


def commit(
    group: str,
    topic: Topic,
    *partitions: OffsetCommitRequestPartition,
    member: str = "",
    generation: int = -1,
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    wanted = OffsetCommitRequestTopic(topic.name, topic.id, list(partitions))
    return OffsetCommitRequest(group, generation, member, None, retention_ms, [wanted])


def place(
    offset: int, partition: int = 0, epoch: int = -1, note: str | None = ""
) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(partition, offset, epoch, note)


def fetch(version: int, group: str, topic: Topic | None, *partitions: int) -> OffsetFetchRequest:
    if version < MANY_GROUPS:
        older = None if topic is None else [OffsetFetchRequestTopic(topic.name, list(partitions))]
        return OffsetFetchRequest(group, older)
    newer = (
        None
        if topic is None
        else [OffsetFetchRequestTopics(topic.name, topic.id, list(partitions))]
    )
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, None, -1, newer)])


def committing(stage: Stage) -> None:
    topic = stage.topic("commits", partitions=2)
    with_coordinator(stage, "committing")
    for version in offset_commit.VERSIONS:
        group = f"committing-{version}"
        with_coordinator(stage, group)

        def ask(line: str, request: OffsetCommitRequest, version: int = version) -> None:
            stage.ask(f"v{version} {line}", offset_commit, version, request)

        ask("a place", commit(group, topic, place(5, 0, 0, "note"), place(7, 1)))
        ask("no note", commit(group, topic, place(6, 0, -1, None)))
        ask("a partition that is not there", commit(group, topic, place(1, 9)))
        ask("a topic that is not there", commit(group, NEVER, place(1)))
        ask("a long note", commit(group, topic, place(1, 0, -1, "x" * 4097), place(8, 1)))
        ask("a negative offset", commit(group, topic, place(-5)))
        ask("nothing", OffsetCommitRequest(group, -1, "", None, -1, []))
        ask("no group", commit("", topic, place(1)))
        ask("a generation of nobody", commit(group, topic, place(1), generation=3))
        ask("a member of nobody", commit(group, topic, place(2), member="m"))
        ask("both", commit(group, topic, place(1), member="m", generation=3))
        ask("another group's", commit("never-was", topic, place(1), member="m", generation=0))
        newest = fetch(9, group, topic, 0, 1, 9)
        stage.ask(f"v{version} what is there", offset_fetch, 9, newest)


def fetching(stage: Stage) -> None:
    topic = stage.topic("fetches", partitions=3)
    with_coordinator(stage, "fetching")
    request = commit("fetching", topic, place(5, 0, 0, "note"), place(7, 2))
    stage.ask("commit", offset_commit, 9, request)
    for version in offset_fetch.VERSIONS:

        def ask(line: str, request: OffsetFetchRequest, version: int = version) -> None:
            stage.ask(f"v{version} {line}", offset_fetch, version, request)

        ask("three", fetch(version, "fetching", topic, 0, 1, 2))
        ask("a partition that is not there", fetch(version, "fetching", topic, 17))
        ask("a topic that is not there", fetch(version, "fetching", NEVER, 0))
        ask("no partitions", fetch(version, "fetching", topic))
        ask("a group that is not there", fetch(version, "never-was", topic, 0))
        ask("no group", fetch(version, "", topic, 0))
        if version >= 2:
            ask("everything", fetch(version, "fetching", None))
            ask("everything of nobody", fetch(version, "never-was", None))
        if version >= MANY_GROUPS:
            groups = [OffsetFetchRequestGroup(name, None, -1, None) for name in ("fetching", "x")]
            ask("two groups", OffsetFetchRequest(groups=groups))
            ask("no groups", OffsetFetchRequest(groups=[]))
        if version >= 9:
            group = OffsetFetchRequestGroup("fetching", "m", 3, None)
            ask("as a member of a group without members", OffsetFetchRequest(groups=[group]))


def deleting(stage: Stage) -> None:
    topic = stage.topic("deletes", partitions=2)
    with_coordinator(stage, "deleting")

    def ask(line: str, group: str, name: str, *partitions: int) -> None:
        wanted = [OffsetDeleteRequestPartition(index) for index in partitions]
        request = OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(name, wanted)])
        stage.ask(line, offset_delete, 0, request)

    stage.ask("commit", offset_commit, 9, commit("deleting", topic, place(5), place(7, 1)))
    ask("one of two", "deleting", topic.name, 0)
    ask("again", "deleting", topic.name, 0)
    ask("a partition that is not there", "deleting", topic.name, 8)
    ask("a topic that is not there", "deleting", "never-was", 0)
    ask("a group that is not there", "never-was", topic.name, 0)
    ask("no group", "", topic.name, 0)
    stage.ask("nothing", offset_delete, 0, OffsetDeleteRequest("deleting", []))
    stage.ask("what is left", offset_fetch, 9, fetch(9, "deleting", None))
    for version in delete_groups.VERSIONS:
        group = f"deleting-{version}"
        with_coordinator(stage, group)
        stage.connection.ask(offset_commit, 9, commit(group, topic, place(5)))
        names = [group, "never-was", ""]
        stage.ask(f"v{version} groups", delete_groups, version, DeleteGroupsRequest(names))
        stage.ask(f"v{version} nothing", delete_groups, version, DeleteGroupsRequest([]))
        stage.ask(f"v{version} is gone", offset_fetch, 9, fetch(9, group, None))


STORIES = (finding_the_coordinator, committing, fetching, deleting)
