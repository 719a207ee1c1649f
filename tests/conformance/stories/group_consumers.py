"""The consumer protocol (KIP-848): ConsumerGroupHeartbeat 0-1, ConsumerGroupDescribe 0-1."""

from __future__ import annotations

from typing import Any

from headrace.wire.protocol.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    list_groups,
    offset_commit,
    offset_fetch,
)
from headrace.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.wire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from headrace.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.wire.protocol.messages.heartbeat import HeartbeatRequest
from headrace.wire.protocol.messages.list_groups import ListGroupsRequest
from headrace.wire.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.group_members import join, stable
from tests.conformance.stories.group_offsets import commit, place, with_coordinator

NEWEST = 1


def beat(
    group: str,
    member: str,
    epoch: int,
    *topics: str,
    instance: str | None = None,
    rack: str | None = None,
    timeout_ms: int = -1,
    regex: str | None = None,
    assignor: str | None = None,
    owned: dict[bytes, list[int]] | None = None,
) -> ConsumerGroupHeartbeatRequest:
    parts = None if owned is None else [TopicPartitions(t, p) for t, p in owned.items()]
    names = list(topics) or None
    return ConsumerGroupHeartbeatRequest(
        group, member, epoch, instance, rack, timeout_ms, names, regex, assignor, parts
    )


def joining(group: str, member: str, *topics: str, **more: Any) -> ConsumerGroupHeartbeatRequest:
    said: dict[str, Any] = {"timeout_ms": 30_000, "owned": {}}
    return beat(group, member, 0, *topics, **(said | more))


def ask(
    stage: Stage, line: str, request: ConsumerGroupHeartbeatRequest, version: int = NEWEST
) -> Any:
    return stage.ask(line, consumer_group_heartbeat, version, request)


def describe(stage: Stage, line: str, group: str) -> Any:
    request = ConsumerGroupDescribeRequest([group])
    return stage.ask(line, consumer_group_describe, NEWEST, request)


def requests_that_cannot_be(stage: Stage) -> None:
    topic = stage.topic("kip848-refused", partitions=2)
    with_coordinator(stage, "refused-848")
    name = topic.name
    for version in consumer_group_heartbeat.VERSIONS:

        def no(line: str, request: ConsumerGroupHeartbeatRequest, version: int = version) -> None:
            ask(stage, f"v{version} {line}", request, version)

        group = f"refused-848-{version}"
        with_coordinator(stage, group)
        no("no group", joining("", "m", name))
        no("empty instance", joining(group, "m", name, instance=""))
        no("empty rack", joining(group, "m", name, rack=""))
        no("no timeout", joining(group, "m", name, timeout_ms=-1))
        no("no topics", joining(group, "m"))
        no("has partitions", joining(group, "m", name, owned={topic.id: [0]}))
        no("does not say what it has", joining(group, "m", name, owned=None))
        no("epoch -3", beat(group, "m", -3))
        no("away without instance", beat(group, "m", -2))
        no("an assignor that is not there", joining(group, "m", name, assignor="magic"))
        no("stays in no group", beat(group, "m", 5))
        no("leaves no group", beat(group, "m", -1))
        no("stays without a name", beat(group, "", 5))
        if version >= 1:
            no("joins without a name", joining(group, "", name))
            no("a pattern that is none", joining(group, "m", regex="("))


def new_topic(stage: Stage, name: str, partitions: int) -> Topic:
    """Known to the coordinator too: Apache's learns of topics a moment after the broker."""
    topic = stage.topic(name, partitions=partitions)
    stage.publish()
    return topic


def one_member(stage: Stage) -> None:
    topic = new_topic(stage, "kip848-one", 3)
    with_coordinator(stage, "one-848")
    epoch = ask(stage, "joins", joining("one-848", "m", topic.name)).member_epoch
    everything = {topic.id: [0, 1, 2]}
    describe(stage, "described", "one-848")
    ask(stage, "stays", beat("one-848", "m", epoch))
    ask(stage, "stays and says what it has", beat("one-848", "m", epoch, owned=everything))
    whole = beat("one-848", "m", epoch, topic.name, timeout_ms=30_000, owned=everything)
    ask(stage, "says everything", whole)
    ask(stage, "an older epoch", beat("one-848", "m", epoch - 1))
    ask(stage, "a newer epoch", beat("one-848", "m", epoch + 5))
    ask(stage, "another member", beat("one-848", "x", epoch))
    ask(stage, "joins again", joining("one-848", "m", topic.name))
    ask(stage, "reads nothing that is there", beat("one-848", "m", epoch, "never-was"))
    epoch = ask(stage, "gives up", beat("one-848", "m", epoch, owned={})).member_epoch
    epoch = ask(stage, "reads again", beat("one-848", "m", epoch, topic.name)).member_epoch
    describe(stage, "described again", "one-848")
    for version in (8, 9, 10):
        for line, who in (
            ("as member", {"member": "m", "generation": epoch}),
            ("old epoch", {"member": "m", "generation": epoch - 2}),
            ("stranger", {"member": "x", "generation": epoch}),
            ("nobody", {}),
        ):
            request = commit("one-848", topic, place(1), **who)
            stage.ask(f"commit v{version} {line}", offset_commit, version, request)
    for line, member, said in (("member", "m", epoch), ("old", "m", 0), ("stranger", "x", epoch)):
        group = OffsetFetchRequestGroup("one-848", member, said, None)
        stage.ask(f"fetch {line}", offset_fetch, 9, OffsetFetchRequest(groups=[group]))
    stage.ask("as a classic group", describe_groups, 6, DescribeGroupsRequest(["one-848"]))
    listed: Any = stage.connection.ask(list_groups, 5, ListGroupsRequest())
    listed.groups = [one for one in listed.groups if one.group_id == "one-848"]
    stage.keep("listed", listed)
    stage.ask("delete", delete_groups, 2, DeleteGroupsRequest(["one-848"]))
    ask(stage, "leaves", beat("one-848", "m", -1))
    ask(stage, "leaves again", beat("one-848", "m", -1))
    describe(stage, "empty", "one-848")
    stage.ask("delete the empty one", delete_groups, 2, DeleteGroupsRequest(["one-848"]))
    describe(stage, "gone", "one-848")


def two_members(stage: Stage) -> None:
    """Give up, then get: what each is told at each step."""
    topic = new_topic(stage, "kip848-two", 4)
    with_coordinator(stage, "two-848")
    first = ask(stage, "first joins", joining("two-848", "a", topic.name)).member_epoch
    second = ask(stage, "second joins", joining("two-848", "b", topic.name)).member_epoch
    describe(stage, "reconciling", "two-848")
    told = ask(stage, "first is told to give up", beat("two-848", "a", first))
    left = parts(told, topic)
    stage.keep("how many it keeps", len(left))
    ask(stage, "second waits", beat("two-848", "b", second))
    ask(stage, "first has not yet", beat("two-848", "a", first, owned={topic.id: [0, 1, 2, 3]}))
    ask(stage, "first has", beat("two-848", "a", first, owned={topic.id: left}))
    ask(stage, "second gets", beat("two-848", "b", second))
    ask(stage, "second is done", beat("two-848", "b", second))
    describe(stage, "stable", "two-848")
    ask(stage, "first leaves", beat("two-848", "a", -1))
    ask(stage, "second gets the rest", beat("two-848", "b", second))
    describe(stage, "stable again", "two-848")


def parts(answer: Any, topic: Topic) -> list[int]:
    found: list[int] = []
    for part in answer.assignment.topic_partitions:
        if part.topic_id == topic.id:
            found += part.partitions
    return found


def static_members(stage: Stage) -> None:
    topic = new_topic(stage, "kip848-static", 2)
    with_coordinator(stage, "static-848")
    first = joining("static-848", "a", topic.name, instance="i")
    epoch = ask(stage, "joins", first).member_epoch
    ask(stage, "another in its place", joining("static-848", "b", topic.name, instance="i"))
    ask(stage, "another name", beat("static-848", "b", epoch, instance="i"))
    ask(stage, "an instance of nobody", beat("static-848", "a", epoch, instance="j"))
    ask(stage, "another leaves for it", beat("static-848", "b", -1, instance="i"))
    ask(stage, "goes for a moment", beat("static-848", "a", -2, instance="i"))
    describe(stage, "away", "static-848")
    ask(stage, "is back", joining("static-848", "c", topic.name, instance="i"))
    describe(stage, "back", "static-848")
    ask(stage, "its old name", beat("static-848", "a", epoch, instance="i"))
    ask(stage, "leaves", beat("static-848", "c", -1, instance="i"))


def between_the_protocols(stage: Stage) -> None:
    topic = new_topic(stage, "orders-848", 2)
    subscription = b"\0\0\0\0\0\1\0\x0aorders-848\xff\xff\xff\xff"
    assignment = b"\0\0\0\0\0\1\0\x0aorders-848\0\0\0\2\0\0\0\0\0\0\0\1\xff\xff\xff\xff"
    old = stable(stage, "mixed", assignment=assignment, range=subscription)
    ask(stage, "the new one joins", joining("mixed", "new", topic.name))
    described = describe(stage, "mixed", "mixed")
    stage.keep("members", len(described.groups[0].members))
    member, generation = old.member_id, old.generation_id
    stage.ask("old beats", heartbeat, 4, HeartbeatRequest("mixed", generation, member))
    again: Any = stage.connection.ask(join_group, 9, join("mixed", member, range=subscription))
    stage.keep("old joins", [again.error_code, again.generation_id, again.protocol_name])
    strange = join("mixed", member, sticky=b"")
    stage.ask("garbled", join_group, 9, join("mixed", "stranger", range=b"\0\0\xff"))
    stage.ask("another protocol", join_group, 9, strange)
    stage.ask("another kind", join_group, 9, join("mixed", kind="connect"))
    ask(stage, "the new one leaves", beat("mixed", "new", -1))
    stage.ask("classic again", describe_groups, 5, DescribeGroupsRequest(["mixed"]))


STORIES = (requests_that_cannot_be, one_member, two_members, static_members, between_the_protocols)
