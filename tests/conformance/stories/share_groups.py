"""Share groups: members, other kinds of groups beside them, offsets, and the state of partitions.

The state of new partitions begins beside the heartbeats that find them, so answers are compared
when a group has settled. Which member has which partition is the assignor's choice: only how many.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from headrace.wire.protocol.messages import (
    alter_share_group_offsets,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    delete_share_group_offsets,
    delete_share_group_state,
    describe_groups,
    describe_share_group_offsets,
    find_coordinator,
    initialize_share_group_state,
    join_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    read_share_group_state,
    read_share_group_state_summary,
    share_group_describe,
    share_group_heartbeat,
    update_features,
    write_share_group_state,
)
from headrace.wire.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from headrace.wire.protocol.primitives import Message
from headrace.wire.protocol.uuids import to_text
from tests.conformance.batches import R, build
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.group_consumers import joining
from tests.conformance.stories.group_members import join
from tests.conformance.stories.group_offsets import commit, place, with_coordinator

SHARE_KEY = 2
NOT_THERE = bytes(range(16))


def served(stage: Stage, group: str) -> None:
    """The level of the feature, the coordinators' topics, and none of it compared."""
    wanted = update_features.FeatureUpdateKey("share.version", 1, upgrade_type=1)
    stage.connection.ask(
        update_features, 1, update_features.UpdateFeaturesRequest(10_000, [wanted])
    )
    with_coordinator(stage, group)
    key = f"{group}:{to_text(NOT_THERE)}:0"
    request = find_coordinator.FindCoordinatorRequest("", SHARE_KEY, [key])

    def found() -> bool:
        answer: Any = stage.connection.ask(find_coordinator, 6, request)
        return answer.coordinators[0].error_code == 0

    stage.until(found)


def member(name: str) -> str:
    return f"{name}-0123456789abcdef"


def beat(group: str, name: str, epoch: int, *topics: str, **more: Any) -> Message:
    request = ShareGroupHeartbeatRequest(group, member(name), epoch)
    request.subscribed_topic_names = list(topics) or None
    for field, value in more.items():
        setattr(request, field, value)
    return request


def ask(stage: Stage, line: str, request: Message) -> Any:
    """A member that waits for its partitions comes sooner to Headrace, see not-supported.md. How
    often the group has changed until it has settled is a matter of time."""
    answer = stage.ask(line, share_group_heartbeat, 1, request)
    if answer is not None and answer.heartbeat_interval_ms:
        stage.answers[line]["heartbeat_interval_ms"] = "some"
        stage.answers[line]["member_epoch"] = "some" if answer.member_epoch > 1 else "none"
    return answer


def settle(stage: Stage, group: str, names: list[str], *topics: str) -> dict[str, Any]:
    """Members join and beat until all partitions are given to all members of the same epoch."""
    wanted = sum(len(stage.find(topic).partitions) for topic in topics)
    epochs = {name: 0 for name in names}
    last: dict[str, Any] = {}

    def is_settled() -> bool:
        for name in names:
            answer: Any = stage.connection.ask(
                share_group_heartbeat, 1, beat(group, name, epochs[name], *topics)
            )
            if answer.error_code == 0:  # else a coordinator is not ready
                epochs[name], last[name] = answer.member_epoch, answer
        given = {
            (part.topic_id, index)
            for answer in last.values()
            for part in answer.assignment.topic_partitions
            for index in part.partitions
        }
        return len(given) == wanted and len(set(epochs.values())) == 1

    stage.until(is_settled)
    return last


def sizes(answers: dict[str, Any]) -> list[int]:
    return sorted(
        sum(len(part.partitions) for part in one.assignment.topic_partitions)
        for one in answers.values()
    )


def heartbeats_that_make_no_sense(stage: Stage) -> None:
    served(stage, "bad-beats")
    topic = stage.topic("bad-beats", partitions=1)
    good = ("bad-beats", "a", 0, topic.name)
    ask(stage, "unknown group", beat("never", "a", 5))
    ask(stage, "leaves unknown group", beat("never", "a", -1))
    faults: dict[str, dict[str, Any]] = {
        "no group": {"group_id": ""},
        "spaces as group": {"group_id": "  "},
        "no member": {"member_id": ""},
        "long member": {"member_id": "m" * 37},
        "rack without name": {"rack_id": ""},
        "epoch -2": {"member_epoch": -2},
        "epoch -99": {"member_epoch": -99},
        "no topics": {"subscribed_topic_names": None},
        "empty topics": {"subscribed_topic_names": []},
    }
    for line, changes in faults.items():
        ask(stage, line, beat(*good, **changes))
    ask(stage, "a topic that is not there", beat("bad-beats", "b", 0, "no-such-topic"))


def members_come_and_go(stage: Stage) -> None:
    group = "share-members"
    served(stage, group)
    topic = stage.topic(group, partitions=4)
    ask(stage, "joins", beat(group, "a", 0, topic.name))
    first = settle(stage, group, ["a"], topic.name)
    epoch = first["a"].member_epoch
    ask(stage, "settled", beat(group, "a", epoch, topic.name))
    ask(stage, "nothing new", beat(group, "a", epoch))
    ask(stage, "an answer behind", beat(group, "a", epoch - 1))
    ask(stage, "too old", beat(group, "a", epoch - 2))
    ask(stage, "from the future", beat(group, "a", epoch + 1))
    ask(stage, "unknown", beat(group, "b", epoch))
    ask(stage, "unknown leaves", beat(group, "b", -1))
    describe(stage, "one member", group)
    both = settle(stage, group, ["a", "b"], topic.name)
    stage.keep("two members", sizes(both))
    three = settle(stage, group, ["a", "b", "c"], topic.name)
    stage.keep("three members", sizes(three))
    ask(stage, "full", beat(group, "d", 0, topic.name))
    ask(stage, "leaves", beat(group, "b", -1))
    ask(stage, "leaves again", beat(group, "b", -1))
    left = settle(stage, group, ["a", "c"], topic.name)
    stage.keep("two are left", sizes(left))
    one = stage.topic(f"{group}-1", partitions=1)
    shared = settle(stage, group, ["a", "c"], one.name)
    stage.keep("of one partition", sizes(shared))
    mixed = settle(stage, group, ["a", "c"], topic.name, one.name)
    stage.keep("of two topics", sizes(mixed))
    for name in ("a", "c"):
        ask(stage, f"{name} goes", beat(group, name, -1))
    describe(stage, "empty", group)


def describe(stage: Stage, line: str, *groups: str) -> None:
    request = share_group_describe.ShareGroupDescribeRequest(list(groups), False)
    answer: Any = stage.connection.ask(share_group_describe, 1, request)
    for found in answer.groups:
        found.assignment_epoch = min(found.assignment_epoch, 1)
        found.group_epoch = min(found.group_epoch, 1)
        for one in found.members:
            one.member_epoch = min(one.member_epoch, 1)
    stage.keep(f"describe: {line}", answer)


def groups_of_other_kinds(stage: Stage) -> None:
    group, consumers, classic = "share-kinds", "share-kinds-848", "share-kinds-classic"
    served(stage, group)
    topic = stage.topic(group, partitions=1)
    with_coordinator(stage, consumers)
    with_coordinator(stage, classic)
    settle(stage, group, ["a"], topic.name)
    stage.connection.ask(consumer_group_heartbeat, 1, joining(consumers, "m", topic.name))
    stage.connection.ask(*_commit(classic, topic))
    request: Message = joining(group, "m", topic.name)
    stage.ask("consumer joins", consumer_group_heartbeat, 1, request)
    stage.ask("classic joins", join_group, 9, join(group))
    for name in (consumers, classic):
        ask(stage, f"share member joins {name}", beat(name, "a", 0, topic.name))
        ask(stage, f"share member stays in {name}", beat(name, "a", 3))
        ask(stage, f"share member leaves {name}", beat(name, "a", -1))
    describe(stage, "all kinds", group, consumers, classic, "never", "")
    request = consumer_group_describe.ConsumerGroupDescribeRequest([group])
    stage.ask("described as consumer group", consumer_group_describe, 1, request)
    for version in describe_groups.VERSIONS:
        request = describe_groups.DescribeGroupsRequest([group])
        stage.ask(f"described as classic group v{version}", describe_groups, version, request)
    for types in (["share"], ["SHARE"], ["consumer", "classic"]):
        request = list_groups.ListGroupsRequest([], types)
        answer: Any = stage.connection.ask(list_groups, 5, request)
        named = [one for one in answer.groups if one.group_id in (group, consumers, classic)]
        stage.keep(f"listed by {types}", named)
    stage.ask("commit", *_commit(group, topic))
    wanted = offset_fetch.OffsetFetchRequestGroup(group, None, -1, None)
    stage.ask("fetch", offset_fetch, 9, offset_fetch.OffsetFetchRequest(groups=[wanted]))
    part = offset_delete.OffsetDeleteRequestPartition(0)
    forget = offset_delete.OffsetDeleteRequest(
        group, [offset_delete.OffsetDeleteRequestTopic(topic.name, [part])]
    )
    stage.ask("delete offsets", offset_delete, 0, forget)
    ask(stage, "member goes", beat(group, "a", -1))


def _commit(group: str, topic: Topic) -> tuple[ModuleType, int, Message]:
    return offset_commit, 9, commit(group, topic, place(1, 0))


def offsets_of_a_group(stage: Stage) -> None:
    group = "share-offsets"
    served(stage, group)
    topic = stage.topic(group, partitions=2)
    other = stage.topic(f"{group}-other", partitions=1)
    stage.produce(topic, build(*(R(value=b"job") for _ in range(10))))
    show(stage, "before", group, {topic.name: [0, 1]})
    settle(stage, group, ["a"], topic.name)
    show(stage, "all with a member", group, None)
    show(stage, "named", group, {topic.name: [0, 1], other.name: [0], "no-such-topic": [0]})
    show(stage, "no topics", group, {})
    alter(stage, "with a member", group, {topic.name: {0: 3}})
    forget(stage, "with a member", group, topic.name)
    erase(stage, "with a member", group)
    ask(stage, "member goes", beat(group, "a", -1))
    alter(stage, "empty", group, {topic.name: {0: 3, 7: 1}, "no-such-topic": {0: 1}})
    show(stage, "altered", group, None)
    alter(stage, "of another topic", group, {other.name: {0: 0}})
    show(stage, "two topics", group, None)
    alter(stage, "nothing", group, {})
    forget(stage, "some", group, topic.name, "no-such-topic")
    forget(stage, "again", group, topic.name)
    forget(stage, "nothing", group)
    show(stage, "forgotten", group, None)
    alter(stage, "a new group", f"{group}-new", {topic.name: {1: 0}})
    show(stage, "of a new group", f"{group}-new", None)
    for name in ("", "never-there"):
        show(stage, f"of {name!r}", name, None)
        forget(stage, f"of {name!r}", name, topic.name)
        erase(stage, f"of {name!r}", name)
    alter(stage, "without a name", "", {topic.name: {0: 1}})
    for name in (group, f"{group}-new"):
        erase(stage, f"{name} empty", name)
        describe(stage, f"{name} deleted", name)
        show(stage, f"{name} deleted", name, {topic.name: [0, 1]})


def show(stage: Stage, line: str, group: str, topics: dict[str, list[int]] | None) -> None:
    wanted = None
    if topics is not None:
        wanted = [
            describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(*one)
            for one in topics.items()
        ]
    one = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group, wanted)
    request = describe_share_group_offsets.DescribeShareGroupOffsetsRequest([one])
    for version in describe_share_group_offsets.VERSIONS:
        stage.ask(f"show {line} v{version}", describe_share_group_offsets, version, request)


def alter(stage: Stage, line: str, group: str, topics: dict[str, dict[int, int]]) -> None:
    wanted = [
        alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
            name,
            [
                alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(*part)
                for part in parts.items()
            ],
        )
        for name, parts in topics.items()
    ]
    request = alter_share_group_offsets.AlterShareGroupOffsetsRequest(group, wanted)
    stage.ask(f"alter {line}", alter_share_group_offsets, 0, request)


def forget(stage: Stage, line: str, group: str, *topics: str) -> None:
    wanted = [
        delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(name) for name in topics
    ]
    request = delete_share_group_offsets.DeleteShareGroupOffsetsRequest(group, wanted)
    stage.ask(f"forget {line}", delete_share_group_offsets, 0, request)


def erase(stage: Stage, line: str, group: str) -> None:
    request = delete_groups.DeleteGroupsRequest([group])
    stage.ask(f"delete {line}", delete_groups, 2, request)


def state_of_partitions(stage: Stage) -> None:
    group = "share-state"
    served(stage, group)
    topic = stage.topic(group, partitions=2)
    state = State(stage, group, topic.id)
    stage.until(lambda: state.is_known(1))
    state.read("before", 0, 3)
    state.write("before", 0, 0, 3, 0, [])
    state.summary("before", 0)
    state.delete("before", 0)
    state.initialize("first", 0, 1, -1)
    state.summary("first", 0)
    state.read("first", 0, 3)
    state.write("resolved", 0, 1, 3, 5, [])
    state.write("some", 0, 1, 3, -1, [(5, 9, 2, 1), (10, 14, 0, 1)])
    state.read("some", 0, 3)
    state.write("laid over", 0, 1, 3, -1, [(8, 11, 0, 2), (12, 12, 4, 1), (20, 24, 4, 5)])
    state.read("laid over", 0, -1)
    state.write("start moves", 0, 1, 3, 9, [(13, 13, 2, 1)], 4)
    state.read("start moves", 0, 3)
    state.summary("start moves", 0)
    state.read("next leader", 0, 4)
    state.read("leader of before", 0, 3)
    state.write("leader of before", 0, 1, 3, 9, [])
    state.write("leader of later", 0, 1, 9, 9, [])
    state.write("older state", 0, 0, 4, 9, [])
    state.write("newer state", 0, 7, 4, 9, [])
    state.initialize("older", 0, 0, 2)
    state.initialize("again", 0, 2, 7)
    state.read("again", 0, 4)
    state.write("before the reset", 0, 1, 4, 9, [])
    state.initialize("other partition", 1, 1, 3)
    state.read("other partition", 1, 0)
    for index in (-1, 2):
        state.initialize(f"partition {index}", index, 1, 0)
        state.read(f"partition {index}", index, 1)
        state.write(f"partition {index}", index, 1, 1, 0, [])
        state.summary(f"partition {index}", index)
        state.delete(f"partition {index}", index)
    nowhere = State(stage, group, NOT_THERE)
    nowhere.initialize("no topic", 0, 1, 0)
    nowhere.read("no topic", 0, 1)
    nowhere.summary("no topic", 0)
    nowhere.delete("no topic", 0)
    nameless = State(stage, "", topic.id)
    nameless.initialize("no group", 0, 1, 0)
    nameless.read("no group", 0, 1)
    nameless.write("no group", 0, 1, 1, 0, [])
    nameless.summary("no group", 0)
    nameless.delete("no group", 0)
    state.delete("first", 0)
    state.delete("again", 0)
    state.summary("deleted", 0)
    state.read("deleted", 0, 4)


class State:
    """Short ways to ask for the state of one topic's partitions."""

    def __init__(self, stage: Stage, group: str, topic_id: bytes) -> None:
        self.stage, self.group, self.topic_id = stage, group, topic_id

    def initialize(self, line: str, index: int, epoch: int, start: int) -> None:
        api = initialize_share_group_state
        part = api.PartitionData(index, epoch, start)
        topic = api.InitializeStateData(self.topic_id, [part])
        request = api.InitializeShareGroupStateRequest(self.group, [topic])
        self.stage.ask(f"initialize {line}", api, 0, request)

    def read(self, line: str, index: int, leader_epoch: int) -> None:
        api = read_share_group_state
        topic = api.ReadStateData(self.topic_id, [api.PartitionData(index, leader_epoch)])
        request = api.ReadShareGroupStateRequest(self.group, [topic])
        self.stage.ask(f"read {line}", api, 0, request)

    def write(
        self,
        line: str,
        index: int,
        state_epoch: int,
        leader_epoch: int,
        start: int,
        batches: list[tuple[int, int, int, int]],
        finished: int = 0,
    ) -> None:
        api = write_share_group_state
        for version in api.VERSIONS:
            count = finished if version else -1
            kept = [api.StateBatch(*batch) for batch in batches]
            part = api.PartitionData(index, state_epoch, leader_epoch, start, count, kept)
            topic = api.WriteStateData(self.topic_id, [part])
            request = api.WriteShareGroupStateRequest(self.group, [topic])
            self.stage.ask(f"write {line} v{version}", api, version, request)

    def is_known(self, index: int) -> bool:
        """Apache's share coordinator may learn of a new topic later than its broker does."""
        request = self._asked_for_summary(index)
        answer: Any = self.stage.connection.ask(read_share_group_state_summary, 0, request)
        return bool(answer.results[0].partitions[0].error_code == 0)

    def summary(self, line: str, index: int) -> None:
        api = read_share_group_state_summary
        request = self._asked_for_summary(index)
        for version in api.VERSIONS:
            self.stage.ask(f"summary {line} v{version}", api, version, request)

    def _asked_for_summary(self, index: int) -> Message:
        api = read_share_group_state_summary
        topic = api.ReadStateSummaryData(self.topic_id, [api.PartitionData(index, 0)])
        return api.ReadShareGroupStateSummaryRequest(self.group, [topic])

    def delete(self, line: str, index: int) -> None:
        api = delete_share_group_state
        topic = api.DeleteStateData(self.topic_id, [api.PartitionData(index)])
        request = api.DeleteShareGroupStateRequest(self.group, [topic])
        self.stage.ask(f"delete {line}", api, 0, request)


def coordinators_of_share_partitions(stage: Stage) -> None:
    served(stage, "share-coordinator")
    good = f"share-coordinator:{to_text(NOT_THERE)}:3"
    for version in find_coordinator.VERSIONS:
        for number, key in enumerate((good, "a:b:c", "nothing", "", f"{good}x", f"a:b:{good}")):
            many = [key] if version >= 4 else []
            request = find_coordinator.FindCoordinatorRequest(
                "" if version >= 4 else key, SHARE_KEY, many
            )
            answer: Any = stage.connection.ask(find_coordinator, version, request)
            for found in answer.coordinators:
                found.error_message = None  # the words are our own
            stage.keep(f"v{version} key {number}", answer)


STORIES = (
    heartbeats_that_make_no_sense,
    members_come_and_go,
    groups_of_other_kinds,
    offsets_of_a_group,
    state_of_partitions,
    coordinators_of_share_partitions,
)
