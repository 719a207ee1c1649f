"""Classic groups: JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5, and looking at them.

Also DescribeGroups 0-6 and ListGroups 0-5. Every refusal a member can get is asked for.
"""

from __future__ import annotations

from typing import Any

from headrace.wire.protocol.messages import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    sync_group,
)
from headrace.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.wire.protocol.messages.heartbeat import HeartbeatRequest
from headrace.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.wire.protocol.messages.list_groups import ListGroupsRequest
from headrace.wire.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.conformance.stage import Stage
from tests.conformance.stories.group_offsets import commit, place, with_coordinator
from tests.conformance.wire import Connection

JOIN, SYNC, LEAVE, BEAT = 9, 5, 5, 4
SUBSCRIPTION = b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"


def join(
    group: str,
    member: str = "",
    *,
    instance: str | None = None,
    session_ms: int = 30_000,
    rebalance_ms: int = 60_000,
    kind: str = "consumer",
    **protocols: bytes,
) -> JoinGroupRequest:
    known = protocols or {"range": SUBSCRIPTION}
    names = [JoinGroupRequestProtocol(name, data) for name, data in known.items()]
    return JoinGroupRequest(group, session_ms, rebalance_ms, member, instance, kind, names)


def sync(
    group: str, member: str, generation: int, instance: str | None = None, **parts: bytes
) -> SyncGroupRequest:
    given = [SyncGroupRequestAssignment(name, part) for name, part in parts.items()]
    return SyncGroupRequest(group, generation, member, instance, "consumer", "range", given)


def leave(group: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    identities = [MemberIdentity(*member) for member in members]
    return LeaveGroupRequest(group, members[0][0] if members else "", identities)


def new_member(stage: Stage, group: str, **options: Any) -> Any:
    """Joined as the only member; the answer of its JoinGroup."""
    with_coordinator(stage, group)
    first: Any = stage.connection.ask(join_group, JOIN, join(group, **options))
    if first.error_code:
        return stage.connection.ask(join_group, JOIN, join(group, first.member_id, **options))
    return first


def stable(stage: Stage, group: str, *, assignment: bytes = b"all of it", **options: Any) -> Any:
    answer = new_member(stage, group, **options)
    request = sync(group, answer.member_id, answer.generation_id, options.get("instance"))
    request.assignments = [SyncGroupRequestAssignment(answer.member_id, assignment)]
    synced: Any = stage.connection.ask(sync_group, SYNC, request)
    assert synced.error_code == 0, synced
    return answer


def every_version(stage: Stage) -> None:
    for version in join_group.VERSIONS:
        group = f"members-{version}"
        with_coordinator(stage, group)
        answer = stage.ask(f"v{version} join", join_group, version, join(group))
        if answer.error_code:
            again = join(group, answer.member_id)
            answer = stage.ask(f"v{version} join again", join_group, version, again)
        member, generation = answer.member_id, answer.generation_id
        older = min(version, SYNC)
        request = sync(group, member, generation)
        request.assignments = [SyncGroupRequestAssignment(member, b"part")]
        stage.ask(f"v{version} sync", sync_group, older, request)
        stage.ask(f"v{version} sync once more", sync_group, older, sync(group, member, generation))
        beat = HeartbeatRequest(group, generation, member)
        stage.ask(f"v{version} heartbeat", heartbeat, min(version, BEAT), beat)
        for looking in describe_groups.VERSIONS:
            line = f"v{version} described v{looking}"
            stage.ask(line, describe_groups, looking, DescribeGroupsRequest([group]))
        stage.ask(f"v{version} leave", leave_group, older, leave(group, (member, None)))
        stage.ask(f"v{version} leave again", leave_group, older, leave(group, (member, None)))
        looked = DescribeGroupsRequest([group])
        stage.ask(f"v{version} left", describe_groups, 5, looked)


def joins_that_cannot_be(stage: Stage) -> None:
    with_coordinator(stage, "refused")
    stable(stage, "refused")
    for version in join_group.VERSIONS:

        def ask(line: str, request: JoinGroupRequest, version: int = version) -> None:
            stage.ask(f"v{version} {line}", join_group, version, request)

        ask("no group", join(""))
        ask("a short session", join("refused", session_ms=5_999))
        ask("a long session", join("refused", session_ms=1_800_001))
        ask("a negative session", join("refused", session_ms=-1))
        ask("a stranger", join("refused", "stranger"))
        ask("a stranger in no group", join("never-joined", "stranger"))
        ask("another kind", join("refused", kind="connect"))
        ask("no kind", join("refused", kind=""))
        ask("no kind in a new group", join("never-joined", kind=""))
        ask("another protocol", join("refused", sticky=b""))
        bare = join("never-joined")
        bare.protocols = []
        ask("no protocols", bare)
        if version >= 5:
            ask("a stranger by instance", join("refused", "stranger", instance="i"))


def refusals_of_members(stage: Stage) -> None:
    answer = stable(stage, "fenced")
    member, generation = answer.member_id, answer.generation_id
    topic = stage.topic("fenced-topic")
    for version in heartbeat.VERSIONS:

        def beat(line: str, *fields: Any, version: int = version) -> None:
            stage.ask(f"v{version} {line}", heartbeat, version, HeartbeatRequest(*fields))

        beat("fine", "fenced", generation, member)
        beat("old generation", "fenced", generation - 1, member)
        beat("next generation", "fenced", generation + 1, member)
        beat("stranger", "fenced", generation, "stranger")
        beat("no group", "", generation, member)
        beat("no such group", "never-was", generation, member)
        if version >= 3:
            beat("instance of nobody", "fenced", generation, member, "i")
    for version in sync_group.VERSIONS:

        def ask(line: str, request: SyncGroupRequest, version: int = version) -> None:
            stage.ask(f"sync v{version} {line}", sync_group, version, request)

        ask("old generation", sync("fenced", member, generation - 1))
        ask("stranger", sync("fenced", "stranger", generation))
        ask("no group", sync("", member, generation))
        ask("no such group", sync("never-was", member, generation))
        if version == SYNC:
            request = sync("fenced", member, generation)
            request.protocol_type = "connect"
            ask("another kind", request)
            request = sync("fenced", member, generation)
            request.protocol_name = "sticky"
            ask("another protocol", request)
            request.protocol_name = None
            ask("no protocol", request)
    for version in leave_group.VERSIONS:

        def go(line: str, *members: Any, group: str = "fenced", version: int = version) -> None:
            stage.ask(f"leave v{version} {line}", leave_group, version, leave(group, *members))

        go("stranger", ("stranger", None))
        go("no group", (member, None), group="")
        go("no such group", (member, None), group="never-was")
        if version >= 3:
            go("instance of nobody", ("", "i"))
            go("no name at all", ("", None))
            go("two strangers", ("one", None), ("two", "i"))
            go("nobody")
    for version in offset_commit.VERSIONS:

        def place_of(line: str, *, version: int = version, **who: Any) -> None:
            request = commit("fenced", topic, place(1), **who)
            stage.ask(f"commit v{version} {line}", offset_commit, version, request)

        place_of("as member", member=member, generation=generation)
        place_of("old generation", member=member, generation=generation - 1)
        place_of("stranger", member="stranger", generation=generation)
        place_of("nobody")
        place_of("a name without generation", member=member)
    gone = OffsetDeleteRequest("fenced", [])
    part = OffsetDeleteRequestPartition(0)
    gone.topics = [OffsetDeleteRequestTopic(name, [part]) for name in ("orders", topic.name)]
    stage.ask("delete offsets", offset_delete, 0, gone)
    stage.ask("delete", delete_groups, 2, DeleteGroupsRequest(["fenced"]))


def two_members(stage: Stage) -> None:
    """A rebalance, seen from both sides."""
    first = stable(stage, "two")
    other = Connection(stage.node.port)
    try:
        given: Any = other.ask(join_group, JOIN, join("two"))
        other.send(join_group, JOIN, join("two", given.member_id))

        def rebalances() -> bool:
            beat = HeartbeatRequest("two", first.generation_id, first.member_id)
            answer: Any = stage.connection.ask(heartbeat, BEAT, beat)
            return bool(answer.error_code)

        stage.until(rebalances)
        stage.ask(
            "heartbeat",
            heartbeat,
            BEAT,
            HeartbeatRequest("two", first.generation_id, first.member_id),
        )
        early = sync("two", first.member_id, first.generation_id)
        stage.ask("sync too early", sync_group, SYNC, early)
        looked = DescribeGroupsRequest(["two"])
        stage.ask("described", describe_groups, 5, looked)
        leader: Any = stage.connection.ask(join_group, JOIN, join("two", first.member_id))
        stage.keep("generation of the leader", leader.generation_id)
        stage.keep("members for the leader", len(leader.members))
        follower: Any = other.answer(join_group, JOIN)
        stage.keep("generation of the follower", follower.generation_id)
        stage.keep("members for the follower", len(follower.members))
        stage.keep("one leader", follower.leader == leader.leader)
        topic = stage.topic("two-topic")
        who = {"member": first.member_id, "generation": leader.generation_id}
        early_commit = commit("two", topic, place(1), **who)
        stage.ask("commit too early", offset_commit, 9, early_commit)
        stage.ask("described again", describe_groups, 5, DescribeGroupsRequest(["two"]))
        repeated = stage.ask("join repeated", join_group, JOIN, join("two", first.member_id))
        stage.keep("same generation", repeated.generation_id == leader.generation_id)
        other.send(sync_group, SYNC, sync("two", given.member_id, follower.generation_id))
        request = sync("two", first.member_id, leader.generation_id)
        request.assignments = [
            SyncGroupRequestAssignment(first.member_id, b"a"),
            SyncGroupRequestAssignment(given.member_id, b"b"),
        ]
        stage.ask("leader's sync", sync_group, SYNC, request)
        stage.keep("follower's sync", other.answer(sync_group, SYNC))
        stage.ask("leave", leave_group, LEAVE, leave("two", (given.member_id, None)))
    finally:
        other.close()


def static_members(stage: Stage) -> None:
    for version in range(5, 10):
        group = f"static-{version}"
        first = stable(stage, group, instance="one")
        again = stage.ask(
            f"v{version} starts again", join_group, version, join(group, instance="one")
        )
        old, new, generation = first.member_id, again.member_id, again.generation_id
        stage.keep(f"v{version} another id", new != old)
        stage.keep(f"v{version} leads", again.leader == new)
        beat = HeartbeatRequest(group, generation, old, "one")
        stage.ask(f"v{version} the old one beats", heartbeat, BEAT, beat)
        stage.ask(
            f"v{version} the old one syncs", sync_group, SYNC, sync(group, old, generation, "one")
        )
        stage.ask(
            f"v{version} the old one joins", join_group, version, join(group, old, instance="one")
        )
        stage.ask(f"v{version} its part", sync_group, SYNC, sync(group, new, generation, "one"))
        stage.ask(f"v{version} old leaves", leave_group, LEAVE, leave(group, (old, "one")))
        stage.ask(f"v{version} by instance", leave_group, LEAVE, leave(group, ("", "one")))
        stage.ask(f"v{version} empty", describe_groups, 5, DescribeGroupsRequest([group]))


def looking(stage: Stage) -> None:
    stable(stage, "looked-at")
    topic = stage.topic("looked-at-topic")
    with_coordinator(stage, "looked-at-offsets")
    stage.connection.ask(offset_commit, 9, commit("looked-at-offsets", topic, place(1)))
    for version in describe_groups.VERSIONS:
        names = ["looked-at", "looked-at-offsets", "never-was", ""]
        request = DescribeGroupsRequest(names, version >= 3)
        stage.ask(f"v{version} described", describe_groups, version, request)
        stage.ask(f"v{version} nothing", describe_groups, version, DescribeGroupsRequest([]))
    for version in list_groups.VERSIONS:

        def ask(line: str, request: ListGroupsRequest, version: int = version) -> None:
            answer: Any = stage.connection.ask(list_groups, version, request)
            answer.groups = [one for one in answer.groups if one.group_id.startswith("looked-at")]
            stage.keep(f"v{version} {line}", answer)

        ask("all", ListGroupsRequest())
        if version >= 4:
            ask("stable", ListGroupsRequest(["Stable"]))
            ask("small letters", ListGroupsRequest(["stable", "empty"]))
            ask("no such state", ListGroupsRequest(["Sleeping"]))
        if version >= 5:
            ask("classic", ListGroupsRequest([], ["classic"]))
            ask("Classic", ListGroupsRequest([], ["Classic"]))
            ask("consumer", ListGroupsRequest([], ["consumer"]))
            ask("no such type", ListGroupsRequest([], ["herd"]))


STORIES = (
    every_version,
    joins_that_cannot_be,
    refusals_of_members,
    two_members,
    static_members,
    looking,
)
