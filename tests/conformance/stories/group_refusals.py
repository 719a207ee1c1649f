"""Classic groups: what is refused to promised members, full groups, other kinds, and by time.

Also sizes that no record can hold, and timeouts nobody can mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from headrace.wire.protocol.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from headrace.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.wire.protocol.messages.heartbeat import HeartbeatRequest
from headrace.wire.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.wire.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.wire.protocol.messages.sync_group import SyncGroupRequestAssignment
from tests.conformance.stage import Stage
from tests.conformance.stories.group_consumers import beat, joining
from tests.conformance.stories.group_members import (
    BEAT,
    JOIN,
    LEAVE,
    SYNC,
    join,
    leave,
    new_member,
    stable,
    sync,
)
from tests.conformance.stories.group_offsets import commit, place, with_coordinator
from tests.conformance.wire import Connection

FULL = 3  # `group.max.size` and `group.consumer.max.size` of these brokers
TOO_LARGE = b"\0\0" + bytes(1_200_000)  # for a record of `__consumer_offsets`
NEVER_MS = 2**31 - 1
HURRY_MS = 2_000  # short, but long enough to say who gets what


def forget_offsets(group: str, *topics: str) -> OffsetDeleteRequest:
    part = OffsetDeleteRequestPartition(0)
    return OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(name, [part]) for name in topics])


def promised(stage: Stage, group: str) -> str:
    """An id that was given out and not used yet."""
    with_coordinator(stage, group)
    answer: Any = stage.connection.ask(join_group, JOIN, join(group))
    return str(answer.member_id)


def promised_members(stage: Stage) -> None:
    topic = stage.topic("promised-topic")
    group = "promised"
    name = promised(stage, group)
    for version in heartbeat.VERSIONS:
        for generation in (-1, 0, 1):
            line = f"v{version} heartbeat in generation {generation}"
            stage.ask(line, heartbeat, version, HeartbeatRequest(group, generation, name))
    for version in sync_group.VERSIONS:
        stage.ask(f"v{version} sync", sync_group, version, sync(group, name, 0))
    for version in offset_commit.VERSIONS:
        for generation in (0, 1):
            request = commit(group, topic, place(1), member=name, generation=generation)
            line = f"v{version} commit in generation {generation}"
            stage.ask(line, offset_commit, version, request)
    stage.ask("delete offsets", offset_delete, 0, forget_offsets(group, topic.name))
    stage.ask("with an instance", join_group, JOIN, join(group, name, instance="i"))
    stage.ask("as another kind", join_group, JOIN, join(group, name, kind=""))
    stage.ask("joins", join_group, JOIN, join(group, name))
    second = promised(stage, group)
    for version in leave_group.VERSIONS:
        stage.ask(f"v{version} leave", leave_group, version, leave(group, (second, None)))
        second = promised(stage, group)
    both = leave(group, (second, "i"), (second, None))
    stage.ask("leave twice in one request", leave_group, LEAVE, both)
    name = promised(stage, "promised-deleted")
    stage.ask("delete", delete_groups, 2, DeleteGroupsRequest(["promised-deleted"] * 2))
    stage.ask("join what is deleted", join_group, JOIN, join("promised-deleted", name))


@contextmanager
def crowd(stage: Stage, group: str, count: int = FULL) -> Iterator[tuple[list[str], int]]:
    """A stable group of so many members; their ids, the leader's first, and the generation."""
    with ExitStack() as opened:
        leader = stable(stage, group).member_id
        others: dict[str, Connection] = {}
        for _ in range(count - 1):
            other = opened.enter_context(closing(Connection(stage.node.port)))
            given: Any = other.ask(join_group, JOIN, join(group))
            others[given.member_id] = other
            other.send(join_group, JOIN, join(group, given.member_id))
        answer: Any = stage.connection.ask(join_group, JOIN, join(group, leader))
        generation = int(answer.generation_id)
        assert len(answer.members) == count, answer
        for name, other in others.items():
            other.answer(join_group, JOIN)
            other.send(sync_group, SYNC, sync(group, name, generation))
        request = sync(group, leader, generation)
        names = [leader, *others]
        request.assignments = [SyncGroupRequestAssignment(name, b"part") for name in names]
        stage.connection.ask(sync_group, SYNC, request)
        for other in others.values():
            other.answer(sync_group, SYNC)
        yield names, generation


def full_groups(stage: Stage) -> None:
    with crowd(stage, "full") as (names, generation):
        for version in join_group.VERSIONS:
            ask = f"v{version}"
            stage.ask(f"{ask} one more", join_group, version, join("full"))
            stage.ask(f"{ask} a stranger", join_group, version, join("full", "stranger"))
            stage.ask(f"{ask} of another kind", join_group, version, join("full", kind="connect"))
            stage.ask(f"{ask} one of them", join_group, version, join("full", names[1]))
            if version >= 5:
                stage.ask(f"{ask} by instance", join_group, version, join("full", instance="i"))
        request = HeartbeatRequest("full", generation, names[2])
        stage.ask("they go on", heartbeat, BEAT, request)
        with closing(Connection(stage.node.port)) as other:
            other.send(join_group, JOIN, join("full", names[0]))
            stage.until(lambda: refused(stage, "full", names[1], generation))
            late = stage.ask("one more in a rebalance", join_group, JOIN, join("full"))
            if late.error_code:
                gone = leave("full", (late.member_id, None))
                stage.ask("it goes", leave_group, LEAVE, gone)


def refused(stage: Stage, group: str, member: str, generation: int) -> bool:
    """Whether a heartbeat is refused: a rebalance has begun, or the member is out."""
    request = HeartbeatRequest(group, generation, member)
    answer: Any = stage.connection.ask(heartbeat, BEAT, request)
    return bool(answer.error_code)


def groups_of_another_kind(stage: Stage) -> None:
    topic = stage.topic("connectors-topic")
    answer = stable_of_kind(stage, "connectors", "connect")
    member, generation = answer.member_id, answer.generation_id
    stage.ask("consumers", join_group, JOIN, join("connectors"))
    stage.ask("its own commits", offset_commit, 9, commit("connectors", topic, place(1)))
    who = {"member": member, "generation": generation}
    stage.ask("as a member", offset_commit, 9, commit("connectors", topic, place(1), **who))
    stage.ask("delete offsets", offset_delete, 0, forget_offsets("connectors", topic.name))
    stage.ask("delete", delete_groups, 2, DeleteGroupsRequest(["connectors"]))
    for version in consumer_group_heartbeat.VERSIONS:

        def no(line: str, request: Any, version: int = version) -> None:
            stage.ask(f"v{version} {line}", consumer_group_heartbeat, version, request)

        no("joins by the other protocol", joining("connectors", "m", topic.name))
        no("beats by the other protocol", beat("connectors", member, generation))
        no("leaves by the other protocol", beat("connectors", member, -1))
        request = ConsumerGroupDescribeRequest(["connectors", "", "connectors"])
        stage.ask(f"v{version} described", consumer_group_describe, version, request)
    wanted = OffsetFetchRequestGroup("connectors", member, generation, None)
    stage.ask("as a member of it", offset_fetch, 9, OffsetFetchRequest(groups=[wanted]))
    wanted = OffsetFetchRequestGroup("never-was", member, generation, None)
    stage.ask("as a member of nothing", offset_fetch, 9, OffsetFetchRequest(groups=[wanted]))


def stable_of_kind(stage: Stage, group: str, kind: str) -> Any:
    answer = new_member(stage, group, kind=kind)
    request = sync(group, answer.member_id, answer.generation_id)
    request.protocol_type = kind
    request.assignments = [SyncGroupRequestAssignment(answer.member_id, b"part")]
    stage.ask("sync", sync_group, SYNC, request)
    return answer


def static_members_that_commit(stage: Stage) -> None:
    topic = stage.topic("static-commits")
    answer = stable(stage, "static-commits", instance="one")
    member, generation = answer.member_id, answer.generation_id
    for version in range(7, offset_commit.VERSIONS[-1] + 1):
        for line, who in {
            "right": (member, generation, "one"),
            "without its instance": (member, generation, None),
            "another member": ("other", generation, "one"),
            "an instance of nobody": (member, generation, "two"),
            "an old generation": (member, generation - 1, "one"),
            "no generation": (member, -1, "one"),
            "an instance alone": ("", -1, "one"),
            "an instance and a generation": ("", generation, "one"),
        }.items():
            request = commit("static-commits", topic, place(1), member=who[0], generation=who[1])
            request.group_instance_id = who[2]
            stage.ask(f"v{version} {line}", offset_commit, version, request)
    for version in range(3, SYNC + 1):
        for line, name, instance in (
            ("another member", "other", "one"),
            ("an instance of nobody", member, "two"),
            ("no member", "", "one"),
        ):
            request = sync("static-commits", name, generation, instance)
            stage.ask(f"sync v{version} {line}", sync_group, version, request)
    for version in range(3, BEAT + 1):
        request = HeartbeatRequest("static-commits", generation, "", "one")
        stage.ask(f"heartbeat v{version} no member", heartbeat, version, request)
    for version in range(3, LEAVE + 1):
        gone = leave("static-commits", ("other", "one"), (member, "two"), ("", "two"))
        stage.ask(f"leave v{version}", leave_group, version, gone)
    twice = leave("static-commits", ("", "one"), ("", "one"))
    stage.ask("leaves twice in one request", leave_group, LEAVE, twice)


def times_nobody_means(stage: Stage) -> None:
    """Rebalance timeouts below zero, of zero and of 24 days; the bounds of session timeouts."""
    for version in (0, 1, JOIN):
        for session_ms in (6_000, 1_800_000):
            group = f"session-{session_ms}-v{version}"
            with_coordinator(stage, group)
            request = join(group, session_ms=session_ms)
            stage.ask(f"v{version} session of {session_ms}", join_group, version, request)
    for timeout_ms in (-(2**31), -1, 0, 1):
        group = f"hurry-{timeout_ms}"
        answer = new_member(stage, group, rebalance_ms=timeout_ms)
        stage.keep(f"joined with {timeout_ms}", [answer.error_code, answer.generation_id])
        stage.until(lambda: refused(stage, group, answer.member_id, answer.generation_id))  # noqa: B023
        request = HeartbeatRequest(group, answer.generation_id, answer.member_id)
        stage.ask(f"after {timeout_ms}", heartbeat, BEAT, request)
        late = sync(group, answer.member_id, answer.generation_id)
        stage.ask(f"sync after {timeout_ms}", sync_group, SYNC, late)
        again = join(group, answer.member_id, rebalance_ms=timeout_ms)
        stage.ask(f"join after {timeout_ms}", join_group, JOIN, again)
    answer = stable(stage, "no-hurry", rebalance_ms=NEVER_MS)
    request = HeartbeatRequest("no-hurry", answer.generation_id, answer.member_id)
    stage.ask("after 24 days", heartbeat, BEAT, request)
    topic = stage.topic("retained")
    for version in range(2, 5):
        group = f"retained-{version}"
        with_coordinator(stage, group)
        for retention_ms in (-2, 0, 2**62, 2**63 - 1):
            wanted = commit(group, topic, place(1), retention_ms=retention_ms)
            stage.ask(f"v{version} kept for {retention_ms}", offset_commit, version, wanted)


def left_behind(stage: Stage) -> None:
    """A member that does not come to a rebalance in time is out of the group."""
    group = "left-behind"
    first = stable(stage, group, rebalance_ms=HURRY_MS)
    with closing(Connection(stage.node.port)) as other:
        given: Any = other.ask(join_group, JOIN, join(group, rebalance_ms=HURRY_MS))
        other.send(join_group, JOIN, join(group, given.member_id, rebalance_ms=HURRY_MS))
        stage.keep("who came", other.answer(join_group, JOIN))
    late = join(group, first.member_id, rebalance_ms=HURRY_MS)
    stage.ask("joins too late", join_group, JOIN, late)
    request = HeartbeatRequest(group, first.generation_id, first.member_id)
    stage.ask("heartbeat too late", heartbeat, BEAT, request)
    gone = leave(group, (first.member_id, None))
    stage.ask("leaves too late", leave_group, LEAVE, gone)


def sizes_that_no_record_holds(stage: Stage) -> None:
    answer = new_member(stage, "large")
    request = sync("large", answer.member_id, answer.generation_id)
    request.assignments = [SyncGroupRequestAssignment(answer.member_id, TOO_LARGE)]
    stage.ask("a large assignment", sync_group, SYNC, request)
    beating = HeartbeatRequest("large", answer.generation_id, answer.member_id)
    stage.ask("heartbeat after it", heartbeat, BEAT, beating)
    answer = stable(stage, "large-static", instance="one")
    again = join("large-static", instance="one", range=TOO_LARGE)
    refusal: Any = stage.connection.ask(join_group, JOIN, again)
    stage.keep("a large subscription", [refusal.error_code, refusal.member_id])
    old = HeartbeatRequest("large-static", answer.generation_id, answer.member_id, "one")
    stage.ask("the old one beats", heartbeat, BEAT, old)
    stage.ask("described", describe_groups, 5, DescribeGroupsRequest(["large-static"]))
    large_commits(stage)
    with_coordinator(stage, "large-848")
    names = [f"{number:05d}-{'n' * 230}" for number in range(5_500)]
    for version in consumer_group_heartbeat.VERSIONS:
        wanted = joining("large-848", "m", *names)
        stage.ask(f"v{version} many topics", consumer_group_heartbeat, version, wanted)


def large_commits(stage: Stage) -> None:
    """One partition, named so often that its records together are too many."""
    topic = stage.topic("large-commits")
    with_coordinator(stage, "large-commits")
    places = [place(1, 0, -1, "n" * 4_096)] * 300
    for version in offset_commit.VERSIONS:
        line = f"v{version} 1.2 MB of offsets"
        request = commit("large-commits", topic, *places)
        answer: Any = stage.connection.ask(offset_commit, version, request)
        stage.keep(line, sorted({part.error_code for part in answer.topics[0].partitions}))
    some = commit("large-commits", topic, *places[:1])
    stage.ask("one of them", offset_commit, 9, some)


STORIES = (
    promised_members,
    full_groups,
    groups_of_another_kind,
    static_members_that_commit,
    times_nobody_means,
    left_behind,
    sizes_that_no_record_holds,
)
