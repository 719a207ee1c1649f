"""Groups between the two protocols: static members, who is removed, who comes back under which id.

JoinGroup 9, SyncGroup 5, LeaveGroup 5 and ConsumerGroupHeartbeat 1 in groups of both kinds.
"""

from __future__ import annotations

from typing import Any

from headrace.wire.protocol.messages import (
    consumer_protocol_assignment,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_fetch,
    sync_group,
)
from headrace.wire.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from headrace.wire.protocol.messages.heartbeat import HeartbeatRequest
from headrace.wire.protocol.messages.list_groups import ListGroupsRequest
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.group_consumers import (
    ask,
    beat,
    describe,
    joining,
    new_topic,
    parts,
)
from tests.conformance.stories.group_members import join, leave, stable, sync
from tests.conformance.stories.group_offsets import commit, fetch, place, with_coordinator

JOIN, SYNC, LEAVE, BEAT = 9, 5, 5, 4


def subscription(*topics: str) -> bytes:
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def assignment(topic: Topic, *partitions: int) -> bytes:
    given = consumer_protocol_assignment.TopicPartition(topic.name, list(partitions))
    pieces: list[Any] = [b"\0\0"]
    consumer_protocol_assignment.ENCODE[0](ConsumerProtocolAssignment([given], None), pieces.append)
    return b"".join(map(bytes, pieces))


def kind_of(stage: Stage, line: str, group: str) -> None:
    listed: Any = stage.connection.ask(list_groups, 5, ListGroupsRequest())
    listed.groups = [one for one in listed.groups if one.group_id == group]
    stage.keep(line, listed)


def classic_join(
    stage: Stage, line: str, group: str, member: str, topic: Topic, **more: Any
) -> Any:
    """Joins a group of the newer protocol; ids are made up by the broker and not compared."""
    topics = more.pop("topics", (topic.name,))
    request = join(group, member, range=subscription(*topics), **more)
    answer: Any = stage.connection.ask(join_group, JOIN, request)
    stage.keep(line, [answer.error_code, answer.protocol_name, answer.leader, len(answer.members)])
    return answer


def classic_sync(stage: Stage, line: str, group: str, joined: Any, instance: str | None) -> Any:
    request = sync(group, joined.member_id, joined.generation_id, instance)
    answer: Any = stage.connection.ask(sync_group, SYNC, request)
    stage.keep(line, [answer.error_code, answer.assignment])
    return answer


def beats(stage: Stage, line: str, group: str, joined: Any, instance: str | None = None) -> None:
    request = HeartbeatRequest(group, joined.generation_id, joined.member_id, instance)
    stage.ask(line, heartbeat, BEAT, request)


def a_static_member_goes_over(stage: Stage) -> None:
    """It is started again with the newer protocol: no session has to run out."""
    topic = new_topic(stage, "static-over", 2)
    group = "static-over"
    given = assignment(topic, 0, 1)
    old = stable(stage, group, assignment=given, instance="i", range=subscription(topic.name))
    answer = ask(stage, "starts again", joining(group, "new", topic.name, instance="i"))
    stage.keep("what it has", parts(answer, topic))
    beats(stage, "its old id", group, old, "i")
    describe(stage, "described", group)
    again = joining(group, "newer", topic.name, instance="i")
    ask(stage, "another in its place", again)
    who = {"member": "new", "generation": answer.member_epoch}
    stage.ask("commits", offset_commit, 9, commit(group, topic, place(1), **who))
    kind_of(stage, "listed", group)


def a_static_member_goes_back(stage: Stage) -> None:
    """The last of the newer protocol: the group goes back with it, and nobody is moved."""
    topic = new_topic(stage, "static-back", 2)
    group = "static-back"
    with_coordinator(stage, group)
    ask(stage, "joins", joining(group, "a", topic.name, instance="i"))
    joined = classic_join(stage, "starts again", group, "", topic, instance="i")
    kind_of(stage, "listed", group)
    classic_sync(stage, "its part", group, joined, "i")
    beats(stage, "it stays", group, joined, "i")
    ask(stage, "its old id", beat(group, "a", 2, instance="i"))


def a_static_member_goes_back_and_reads_more(stage: Stage) -> None:
    topic, other = new_topic(stage, "static-more", 2), new_topic(stage, "static-more-2", 1)
    group = "static-more"
    with_coordinator(stage, group)
    ask(stage, "joins", joining(group, "a", topic.name, instance="i"))
    names = (topic.name, other.name)
    classic_join(stage, "starts again", group, "", topic, instance="i", topics=names)
    kind_of(stage, "listed", group)


def a_static_member_among_others(stage: Stage) -> None:
    """One of two is started again with the classic protocol; the group stays what it is."""
    topic = new_topic(stage, "static-among", 2)
    group = "static-among"
    with_coordinator(stage, group)
    first = ask(stage, "joins", joining(group, "a", topic.name, instance="i"))
    second = ask(stage, "second joins", joining(group, "b", topic.name, instance="j"))
    told = ask(stage, "first gives up", beat(group, "a", first.member_epoch, instance="i"))
    left = {topic.id: parts(told, topic)}
    request = beat(group, "a", first.member_epoch, instance="i", owned=left)
    ask(stage, "first has", request)
    ask(stage, "second gets", beat(group, "b", second.member_epoch, instance="j"))
    joined = classic_join(stage, "first starts again", group, "", topic, instance="i")
    stage.keep("its epoch", joined.generation_id)
    classic_sync(stage, "its part", group, joined, "i")
    beats(stage, "it stays", group, joined, "i")
    kind_of(stage, "listed", group)
    classic_join(stage, "with an id of before", group, "x", topic, instance="i")
    classic_join(stage, "an instance of nobody", group, "x", topic, instance="k")
    again = ask(stage, "first goes over again", joining(group, "c", topic.name, instance="i"))
    stage.keep("what it has", len(parts(again, topic)))
    beats(stage, "the classic one is out", group, joined, "i")


def in_the_middle_of_a_move(stage: Stage) -> None:
    """A static classic member that is to give something up is started again."""
    topic = new_topic(stage, "static-moved", 2)
    group = "static-moved"
    given = assignment(topic, 0, 1)
    stable(stage, group, assignment=given, instance="i", range=subscription(topic.name))
    new = ask(stage, "another joins", joining(group, "new", topic.name))
    joined = classic_join(stage, "starts again", group, "", topic, instance="i")
    stage.keep("its epoch", joined.generation_id)
    classic_sync(stage, "its part", group, joined, "i")
    got = ask(stage, "the other gets", beat(group, "new", new.member_epoch))
    stage.keep("how much", 0 if got.assignment is None else len(parts(got, topic)))


def removed_by_an_operator(stage: Stage) -> None:
    """LeaveGroup for members of the newer protocol."""
    topic = new_topic(stage, "removed-848", 3)
    group = "removed-848"
    with_coordinator(stage, group)
    for name, instance in (("a", "i"), ("b", None), ("c", None)):
        ask(stage, f"{name} joins", joining(group, name, topic.name, instance=instance))
    stage.ask("a stranger", leave_group, LEAVE, leave(group, ("x", None)))
    stage.ask("an instance of nobody", leave_group, LEAVE, leave(group, ("", "j")))
    stage.ask("another's instance", leave_group, LEAVE, leave(group, ("b", "i")))
    stage.ask("by instance", leave_group, LEAVE, leave(group, ("", "i")))
    stage.ask("by id", leave_group, LEAVE, leave(group, ("b", None), ("b", None)))
    ask(stage, "who is out", beat(group, "b", 3))
    describe(stage, "who is left", group)
    stage.ask("the last", leave_group, LEAVE, leave(group, ("c", None)))
    kind_of(stage, "listed", group)


def joining_again(stage: Stage) -> None:
    """By members that are there: the answer may have been lost, or they were fenced."""
    topic = new_topic(stage, "again-848", 2)
    group = "again-848"
    with_coordinator(stage, group)
    ask(stage, "joins", joining(group, "a", topic.name))
    ask(stage, "joins again", joining(group, "a", topic.name))
    ask(stage, "a static one joins", joining(group, "s", topic.name, instance="i"))
    ask(stage, "the static one joins again", joining(group, "s", topic.name, instance="i"))
    told = ask(stage, "the first gives up", beat(group, "a", 2))
    left = {topic.id: parts(told, topic)}
    now = ask(stage, "it has", beat(group, "a", 2, owned=left)).member_epoch
    ask(stage, "the epoch before", beat(group, "a", 2, owned=left))
    ask(stage, "the epoch before, and nothing", beat(group, "a", 2, owned={}))
    ask(stage, "the epoch before, and too much", beat(group, "a", 2, owned={topic.id: [0, 1]}))
    ask(stage, "the epoch before, and no word of it", beat(group, "a", 2))
    ask(stage, "it joins anew", joining(group, "a", topic.name))
    ask(stage, "reads more", beat(group, "a", now, topic.name, "never-was"))
    ask(stage, "it joins anew once more", joining(group, "a", topic.name))
    ask(stage, "the static one joins anew", joining(group, "s", topic.name, instance="i"))
    ask(stage, "without its instance", joining(group, "s", topic.name))


def held(described: Any, member: str) -> list[int]:
    [found] = [one for one in described.groups[0].members if one.member_id == member]
    return sorted(p for part in found.assignment.topic_partitions for p in part.partitions)


def one_move_after_another(stage: Stage) -> None:
    """The first member is told to give up more before it has said that it gave up what it must."""
    topic = new_topic(stage, "moves-848", 6)
    group = "moves-848"
    with_coordinator(stage, group)
    epoch = ask(stage, "first joins", joining(group, "a", topic.name)).member_epoch
    ask(stage, "second joins", joining(group, "b", topic.name))
    told = ask(stage, "is told", beat(group, "a", epoch))
    described = describe(stage, "has not yet given up", group)
    stage.keep("what it still has", held(described, "a"))
    ask(stage, "third joins", joining(group, "c", topic.name))
    left = {topic.id: parts(told, topic)}
    told = ask(stage, "has given up, and is told more", beat(group, "a", epoch, owned=left))
    stage.keep("how much it keeps", len(parts(told, topic)))
    left = {topic.id: parts(told, topic)}
    ask(stage, "has given up more", beat(group, "a", told.member_epoch, owned=left))
    describe(stage, "described", group)


def classic_members_of_the_newer_kind(stage: Stage) -> None:
    """What is refused to them, step by step; the group has one member of each protocol."""
    topic = new_topic(stage, "classic-in-848", 4)
    group = "classic-in-848"
    given = assignment(topic, 0, 1, 2, 3)
    old = stable(stage, group, assignment=given, range=subscription(topic.name))
    beats(stage, "before", group, old)
    new = ask(stage, "the new one joins", joining(group, "new", topic.name))
    beats(stage, "has to join anew", group, old)
    classic_sync(stage, "sync before it joins", group, old, None)
    who = {"member": old.member_id, "generation": old.generation_id}
    stage.ask("commits before it joins", offset_commit, 9, commit(group, topic, place(1), **who))
    stage.ask("commits by an old version", offset_commit, 8, commit(group, topic, place(1), **who))
    joined = classic_join(stage, "joins anew", group, old.member_id, topic)
    stage.keep("its epoch", joined.generation_id)
    for said in range(joined.generation_id - 2, joined.generation_id + 2):
        who = {"member": old.member_id, "generation": said}
        for index in range(4):
            request = commit(group, topic, place(1, index), **who)
            stage.ask(f"commits {index} as of {said}", offset_commit, 9, request)
        request = HeartbeatRequest(group, said, old.member_id)
        stage.ask(f"beats as of {said}", heartbeat, BEAT, request)
        request = sync(group, old.member_id, said)
        request.protocol_name = "other"
        stage.ask(f"syncs another protocol as of {said}", sync_group, SYNC, request)
        request.protocol_name, request.protocol_type = "range", "connect"
        stage.ask(f"syncs another kind as of {said}", sync_group, SYNC, request)
    classic_sync(stage, "its part", group, joined, None)
    stage.ask("a stranger syncs", sync_group, SYNC, sync(group, "x", joined.generation_id))
    stage.ask("the new one syncs", sync_group, SYNC, sync(group, "new", new.member_epoch))
    request = HeartbeatRequest(group, new.member_epoch, "new")
    stage.ask("the new one beats as a classic one", heartbeat, BEAT, request)
    request = HeartbeatRequest(group, joined.generation_id, old.member_id, "i")
    stage.ask("an instance of nobody", heartbeat, BEAT, request)
    got = ask(stage, "the new one gets", beat(group, "new", new.member_epoch))
    stage.keep("how much", len(parts(got, topic)))
    beats(stage, "both have theirs", group, joined)
    described = describe(stage, "described", group)
    stage.keep("kinds", sorted(one.member_type for one in described.groups[0].members))
    for version in join_group.VERSIONS:
        request = join(group, range=subscription(topic.name))
        answer: Any = stage.connection.ask(join_group, version, request)
        stage.keep(f"one more v{version}", [answer.error_code, answer.protocol_name])
        gone = leave(group, (answer.member_id, None))
        left: Any = stage.connection.ask(leave_group, LEAVE, gone)
        stage.keep(f"it leaves v{version}", [one.error_code for one in left.members])
    stage.ask("the classic one leaves", leave_group, LEAVE, leave(group, ("y", None)))
    kind_of(stage, "listed", group)


def a_topic_and_its_namesake(stage: Stage) -> None:
    """What was committed for a topic is nobody's place in another of its name."""
    topic = new_topic(stage, "namesake", 2)
    group = "namesake-group"
    with_coordinator(stage, group)
    request = commit(group, topic, place(5), place(6, 1))
    stage.ask("commits", offset_commit, 10, request)
    stage.delete(topic.name)

    def is_forgotten() -> bool:
        request = fetch(9, group, None)
        answer: Any = stage.connection.ask(offset_fetch, 9, request)
        return not answer.groups[0].topics

    stage.until(is_forgotten)
    stage.ask("fetched by its old id", offset_fetch, 10, fetch(10, group, topic, 0))
    stage.ask("committed by its old id", offset_commit, 10, request)
    again = new_topic(stage, topic.name, 2)
    for version in (8, 9, 10):
        stage.ask(f"fetched v{version}", offset_fetch, version, fetch(version, group, again, 0, 1))
        stage.ask(f"everything v{version}", offset_fetch, version, fetch(version, group, None))
    stage.ask("listed", list_groups, 5, ListGroupsRequest(["Sleeping"]))


STORIES = (
    a_static_member_goes_over,
    a_static_member_goes_back,
    a_static_member_goes_back_and_reads_more,
    a_static_member_among_others,
    in_the_middle_of_a_move,
    removed_by_an_operator,
    joining_again,
    one_move_after_another,
    classic_members_of_the_newer_kind,
    a_topic_and_its_namesake,
)
