"""Members that wait for others, and what they are told when it comes otherwise; in all versions.

Also what is refused while a group rebalances, and codes whose clients know them in some versions
only.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import Any

from headrace.wire.protocol.messages import (
    consumer_group_heartbeat,
    delete_groups,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    sync_group,
)
from headrace.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.wire.protocol.messages.heartbeat import HeartbeatRequest
from headrace.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from headrace.wire.protocol.messages.sync_group import SyncGroupRequestAssignment
from tests.conformance.stage import Stage
from tests.conformance.stories.group_consumers import ask, beat, joining, new_topic
from tests.conformance.stories.group_members import (
    BEAT,
    JOIN,
    LEAVE,
    join,
    leave,
    stable,
    sync,
)
from tests.conformance.stories.group_offsets import MANY_GROUPS, commit, place, with_coordinator
from tests.conformance.stories.group_refusals import refused
from tests.conformance.stories.transactions import ADDS, is_complete, ready
from tests.conformance.wire import Connection


def told_otherwise(stage: Stage) -> None:
    """Each waits in a JoinGroup or SyncGroup; then the group decides something else."""
    for version in join_group.VERSIONS:
        removed_while_it_joins(stage, version)
        if version >= 5:
            replaced_while_it_joins(stage, version)
        changed_over_while_it_joins(stage, version)
    for version in sync_group.VERSIONS:
        rebalanced_while_it_syncs(stage, version)


def removed_while_it_joins(stage: Stage, version: int) -> None:
    group = f"removed-v{version}"
    first = stable(stage, group)
    with closing(Connection(stage.node.port)) as other:
        given: Any = other.ask(join_group, JOIN, join(group))
        other.send(join_group, version, join(group, given.member_id))
        stage.until(lambda: refused(stage, group, first.member_id, first.generation_id))
        stage.connection.ask(leave_group, LEAVE, leave(group, (given.member_id, None)))
        stage.keep(f"v{version} removed", other.answer(join_group, version))


def replaced_while_it_joins(stage: Stage, version: int) -> None:
    group = f"replaced-v{version}"
    first = stable(stage, group)
    with ExitStack() as opened:
        old, new = (opened.enter_context(closing(Connection(stage.node.port))) for _ in range(2))
        old.send(join_group, version, join(group, instance="one"))
        stage.until(lambda: refused(stage, group, first.member_id, first.generation_id))
        new.send(join_group, version, join(group, instance="one"))
        stage.keep(f"v{version} replaced", old.answer(join_group, version))
        stage.connection.ask(join_group, JOIN, join(group, first.member_id))
        taken: Any = new.answer(join_group, version)
        stage.keep(f"v{version} in its place", [taken.error_code, taken.generation_id])


def changed_over_while_it_joins(stage: Stage, version: int) -> None:
    group = f"changed-over-v{version}"
    subscription = b"\0\0\0\0\0\1\0\x06orders\xff\xff\xff\xff"
    nothing = b"\0\0\0\0\0\0\xff\xff\xff\xff"
    first = stable(stage, group, assignment=nothing, range=subscription)
    with closing(Connection(stage.node.port)) as other:
        given: Any = other.ask(join_group, JOIN, join(group, range=subscription))
        other.send(join_group, version, join(group, given.member_id, range=subscription))
        stage.until(lambda: refused(stage, group, first.member_id, first.generation_id))
        changed: Any = stage.connection.ask(
            consumer_group_heartbeat, 1, joining(group, "new", "orders")
        )
        stage.keep(f"v{version} the new one", changed.error_code)
        stage.keep(f"v{version} changed over", other.answer(join_group, version))


def rebalanced_while_it_syncs(stage: Stage, version: int) -> None:
    """Its leader comes to a new rebalance instead of saying who gets what."""
    group = f"rebalanced-v{version}"
    first = stable(stage, group)
    with ExitStack() as opened:
        other, third = (opened.enter_context(closing(Connection(stage.node.port))) for _ in "ab")
        given: Any = other.ask(join_group, JOIN, join(group))
        other.send(join_group, JOIN, join(group, given.member_id))
        stage.until(lambda: refused(stage, group, first.member_id, first.generation_id))
        while_it_rebalances(stage, version, group, first)
        leader: Any = stage.connection.ask(join_group, JOIN, join(group, first.member_id))
        follower: Any = other.answer(join_group, JOIN)
        other.send(sync_group, version, sync(group, given.member_id, follower.generation_id))
        changed = join(group, first.member_id, range=b"\0\0\0\0\0\0\xff\xff\xff\xff")
        third.send(join_group, JOIN, changed)
        stage.keep(f"v{version} rebalanced", other.answer(sync_group, version))
        other.send(join_group, JOIN, join(group, given.member_id))
        anew: Any = third.answer(join_group, JOIN)
        stage.keep(f"v{version} anew", anew.generation_id - leader.generation_id)


def while_it_rebalances(stage: Stage, version: int, group: str, first: Any) -> None:
    member, generation = first.member_id, first.generation_id
    line = f"v{version} too early"
    stage.ask(line, sync_group, version, sync(group, member, generation))
    if version <= BEAT:
        request = HeartbeatRequest(group, generation, member)
        stage.ask(f"v{version} heartbeat", heartbeat, version, request)


def commits_before_the_assignment(stage: Stage) -> None:
    """The generation has begun, and nobody knows yet who gets what."""
    topic = stage.topic("before-assignment")
    group = "before-assignment"
    first = stable(stage, group)
    joined: Any = stage.connection.ask(join_group, JOIN, join(group, first.member_id))
    who = {"member": first.member_id, "generation": joined.generation_id}
    for version in offset_commit.VERSIONS:
        request = commit(group, topic, place(1), **who)
        stage.ask(f"v{version} commit", offset_commit, version, request)
    for version in delete_groups.VERSIONS:
        stage.ask(f"v{version} delete", delete_groups, version, DeleteGroupsRequest([group]))
    large = sync(group, first.member_id, joined.generation_id)
    large.assignments = [SyncGroupRequestAssignment(first.member_id, bytes(1_200_000))]
    stage.ask("a large assignment", sync_group, 0, large)


def members_of_the_consumer_protocol(stage: Stage) -> None:
    """What newer clients are told by epochs, asked in every version."""
    topic = new_topic(stage, "versions-848", 2)
    group = "versions-848"
    with_coordinator(stage, group)
    epoch = ask(stage, "joins", joining(group, "m", topic.name)).member_epoch
    epoch = ask(stage, "reads more", beat(group, "m", epoch, topic.name, "other")).member_epoch
    static = joining(group, "s", topic.name, instance="one")
    ask(stage, "static", static)
    for version in consumer_group_heartbeat.VERSIONS:
        for line, request in {
            "stranger": beat(group, "x", epoch),
            "future epoch": beat(group, "m", epoch + 9),
            "old epoch": beat(group, "m", epoch - 2),
            "another's instance": beat(group, "m", epoch, instance="one"),
            "instance of nobody": beat(group, "m", epoch, instance="two"),
            "stranger leaves": beat(group, "x", -1),
            "another's instance leaves": beat(group, "m", -1, instance="one"),
            "away without its instance": beat(group, "s", -2, instance="two"),
        }.items():
            ask(stage, f"v{version} {line}", request, version)
    for version in offset_commit.VERSIONS:
        for line, name, said in (("member", "m", epoch), ("stranger", "x", epoch)):
            request = commit(group, topic, place(1), member=name, generation=said)
            stage.ask(f"commit v{version} {line}", offset_commit, version, request)
        stage.ask(
            f"commit v{version} nobody", offset_commit, version, commit(group, topic, place(1))
        )
    for version in (9, 10):
        for line, name, said in (
            ("member", "m", epoch),
            ("old", "m", epoch - 1),
            ("future", "m", epoch + 1),
            ("stranger", "x", epoch),
            ("no name", None, epoch),
            ("no epoch", "m", -1),
        ):
            wanted = OffsetFetchRequestGroup(group, name, said, None)
            request_all = OffsetFetchRequest(groups=[wanted])
            stage.ask(f"fetch v{version} {line}", offset_fetch, version, request_all)
    for version in delete_groups.VERSIONS:
        stage.ask(f"v{version} delete", delete_groups, version, DeleteGroupsRequest([group]))


def offsets_that_are_not_stable(stage: Stage) -> None:
    """As of an open transaction, by every version that can ask for stable ones; and its end."""
    topic = stage.topic("not-stable")
    producer = ready(stage, "not-stable")
    group = "not-stable"
    with_coordinator(stage, group)
    producer.offsets(None, 5, topic.name, group=group)
    for version in range(2, offset_fetch.VERSIONS[-1] + 1):
        for everything in (False, True):
            request = OffsetFetchRequest(require_stable=version >= 7)
            if version < MANY_GROUPS:
                request.group_id = group
                named = [OffsetFetchRequestTopic(topic.name, [0])]
                request.topics = None if everything else named
            else:
                parts = [OffsetFetchRequestTopics(topic.name, topic.id, [0])]
                wanted = OffsetFetchRequestGroup(group, None, -1, None if everything else parts)
                request.groups = [wanted]
            line = f"v{version} {'everything' if everything else 'one'}"
            stage.ask(line, offset_fetch, version, request)
    producer.end(None, 5, commit=False)


def identities_of_open_transactions(stage: Stage) -> None:
    """Asked for while a transaction is open: first it is aborted, the client has to come again."""
    topic = stage.topic("open-identities")
    for version in init_producer_id.VERSIONS:
        for expected in (False, True):
            if expected and version < 3:
                continue
            name = f"open-identities-{version}-{expected}"
            producer = ready(stage, name)
            producer.send(None, ADDS, topic, 0)
            who = (producer.id, producer.epoch) if expected else (-1, -1)
            request = InitProducerIdRequest(name, 60_000, *who)
            line = f"v{version} {'by its epoch' if expected else 'anew'}"
            first: Any = stage.connection.ask(init_producer_id, version, request)
            producer.keep(f"{line}, first", first)
            stage.until(lambda producer=producer: is_complete(producer))  # type: ignore[misc]
            second: Any = stage.connection.ask(init_producer_id, version, request)
            producer.keep(f"{line}, second", second)


STORIES = (
    told_otherwise,
    commits_before_the_assignment,
    members_of_the_consumer_protocol,
    offsets_that_are_not_stable,
    identities_of_open_transactions,
)
