"""Who may commit, fetch and delete offsets in a group of the consumer protocol, by its epoch.

A commit may name an older epoch than the member's if the partition was the member's already then
(KIP-1251); also in transactions. Full groups of this kind are here too.
"""

from __future__ import annotations

from typing import Any

from headrace.wire.protocol.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    join_group,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from headrace.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.wire.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.group_consumers import ask, beat, describe, joining, new_topic, parts
from tests.conformance.stories.group_members import join, stable
from tests.conformance.stories.group_offsets import commit, place, with_coordinator
from tests.conformance.stories.group_refusals import FULL, forget_offsets
from tests.conformance.stories.transactions import BUMPS, Producer, add_offsets, ready

EPOCHS = range(9, offset_commit.VERSIONS[-1] + 1)  # versions whose clients know of epochs


def commits_of_older_epochs(stage: Stage) -> None:
    """The first member gives up one partition after the other to newcomers; its epoch rises."""
    topic = new_topic(stage, "older-epochs", 3)
    group = "older-epochs"
    with_coordinator(stage, group)
    first = ask(stage, "first joins", joining(group, "a", topic.name)).member_epoch
    commits(stage, "alone", group, topic, "a", first)
    second = ask(stage, "second joins", joining(group, "b", topic.name)).member_epoch
    told = ask(stage, "first is told", beat(group, "a", first))
    commits(stage, "gives up", group, topic, "a", first)
    keeps = parts(told, topic)
    now = ask(stage, "first has given up", beat(group, "a", first, owned={topic.id: keeps}))
    commits(stage, "has given up", group, topic, "a", now.member_epoch)
    got = ask(stage, "second gets", beat(group, "b", second))
    commits(stage, "has got", group, topic, "b", got.member_epoch or second)
    other = new_topic(stage, "older-epochs-2", 1)
    names = (topic.name, other.name)
    more = beat(group, "a", now.member_epoch, *names)
    later: Any = stage.connection.ask(consumer_group_heartbeat, 1, more)
    stage.keep("first reads more", later.member_epoch)
    commits(stage, "reads more", group, topic, "a", later.member_epoch)
    commits(stage, "reads another", group, other, "a", later.member_epoch)


def commits(stage: Stage, when: str, group: str, topic: Topic, member: str, epoch: int) -> None:
    """One partition at a time, then all at once, as of each epoch around the member's."""
    count = len(stage.find(topic.name).partitions)
    for said in range(-1, epoch + 2):
        for version in EPOCHS:
            for index in range(count):
                request = commit(group, topic, place(1, index), member=member, generation=said)
                line = f"{when}: {topic.name} {index} v{version} as of {said}"
                stage.ask(line, offset_commit, version, request)
            places = [place(1, index) for index in range(count)]
            request = commit(group, topic, *places, member=member, generation=said)
            line = f"{when}: {topic.name} v{version} as of {said}"
            stage.ask(line, offset_commit, version, request)
        wanted = OffsetFetchRequestGroup(group, member, said, [])
        line = f"{when}: {topic.name} fetch as of {said}"
        stage.ask(line, offset_fetch, 9, OffsetFetchRequest(groups=[wanted]))


def commits_in_transactions(stage: Stage) -> None:
    """Of members of both protocols, and of nobody."""
    topic = new_topic(stage, "txn-members", 2)
    with_coordinator(stage, "txn-members-848")
    epoch = ask(stage, "joins", joining("txn-members-848", "m", topic.name)).member_epoch
    epoch = ask(
        stage, "reads more", beat("txn-members-848", "m", epoch, topic.name, "never-was")
    ).member_epoch
    old = stable(stage, "txn-members", instance="one")
    member, generation = old.member_id, old.generation_id
    for version in range(3, 6):
        producer = ready(stage, f"txn-members-{version}")

        def send(
            line: str,
            group: str,
            version: int = version,
            producer: Producer = producer,
            **who: Any,
        ) -> None:
            producer.offsets(f"v{version} {line}", version, topic.name, group=group, **who)

        if version < 5:
            for group in ("txn-members", "txn-members-848"):
                add_offsets(producer, None, 3, group)
        for line, name, said in (
            ("right", "m", epoch),
            ("the epoch before", "m", epoch - 1),
            ("an old epoch", "m", 0),
            ("a future epoch", "m", epoch + 1),
            ("no epoch", "m", -1),
            ("a stranger", "x", epoch),
            ("nobody of an epoch", "", epoch),
        ):
            send(f"848: {line}", "txn-members-848", member=name, generation=said)
        send("848: nobody", "txn-members-848")
        for line, name, said, instance in (
            ("right", member, generation, "one"),
            ("without its instance", member, generation, None),
            ("an old generation", member, generation - 1, "one"),
            ("no generation", member, -1, "one"),
            ("a stranger", "x", generation, None),
            ("another member", "x", generation, "one"),
            ("an instance of nobody", member, generation, "two"),
            ("an instance alone", "", -1, "one"),
        ):
            send(
                f"classic: {line}",
                "txn-members",
                member=name,
                generation=said,
                instance=instance,
            )
        send("classic: nobody", "txn-members")
        producer.end(None, BUMPS if version == 5 else 4, commit=False)


def looking_and_deleting(stage: Stage) -> None:
    topic = new_topic(stage, "looked-at-848", 1)
    group = "looked-at-848"
    with_coordinator(stage, group)
    epoch = ask(stage, "joins", joining(group, "m", topic.name)).member_epoch
    request = commit(group, topic, place(7), member="m", generation=epoch)
    stage.ask("commits", offset_commit, 9, request)
    stable(stage, "looked-at-classic")
    for version in consumer_group_describe.VERSIONS:
        names = [group, "looked-at-classic", "never-was", "", group]
        request = ConsumerGroupDescribeRequest(names, version >= 1)
        stage.ask(f"v{version} described", consumer_group_describe, version, request)
        nothing = ConsumerGroupDescribeRequest([])
        stage.ask(f"v{version} nothing", consumer_group_describe, version, nothing)
    wanted = forget_offsets(group, topic.name, "never-was")
    stage.ask("delete offsets", offset_delete, 0, wanted)
    stage.ask("delete", delete_groups, 2, DeleteGroupsRequest([group, "looked-at-classic"]))
    ask(stage, "leaves", beat(group, "m", -1))
    stage.ask("delete offsets when it is empty", offset_delete, 0, wanted)
    late = commit(group, topic, place(7), member="m", generation=epoch)
    stage.ask("commits after it left", offset_commit, 9, late)
    stage.ask("commits as nobody", offset_commit, 9, commit(group, topic, place(7)))


def joining_anew(stage: Stage) -> None:
    """A member that has lost its memory comes with epoch 0 again, whatever its epoch was."""
    topic = new_topic(stage, "anew-848", 4)
    for instance in (None, "i"):
        for version in consumer_group_heartbeat.VERSIONS:
            group = f"anew-848 {instance} v{version}"
            with_coordinator(stage, group)
            said = f"{instance} v{version}"
            first = joining(group, "a", topic.name, instance=instance)
            epoch = ask(stage, f"{said} first", first, version).member_epoch
            ask(stage, f"{said} second", joining(group, "b", topic.name), version)
            told = ask(stage, f"{said} gives up", beat(group, "a", epoch, instance=instance))
            left = {topic.id: parts(told, topic)}
            beaten = beat(group, "a", epoch, instance=instance, owned=left)
            ask(stage, f"{said} has given up", beaten, version)
            for turn in range(2):
                ask(stage, f"{said} anew, turn {turn}", first, version)
            ask(stage, f"{said} second leaves", beat(group, "b", -1), version)
            for turn in range(2):
                ask(stage, f"{said} alone, turn {turn}", first, version)
            describe(stage, f"{said} described", group)


def full_groups(stage: Stage) -> None:
    topic = new_topic(stage, "full-848", 4)
    with_coordinator(stage, "full-848")
    for number in range(FULL):
        ask(stage, f"joins as {number}", joining("full-848", f"m{number}", topic.name))
    for version in consumer_group_heartbeat.VERSIONS:

        def no(line: str, request: Any, version: int = version) -> None:
            ask(stage, f"v{version} {line}", request, version)

        no("one more", joining("full-848", "late", topic.name))
        no("one more with an instance", joining("full-848", "late", topic.name, instance="i"))
        no("one of them", joining("full-848", "m0", topic.name))
        no("a stranger", beat("full-848", "late", 3))
        no("an assignor too", joining("full-848", "late", topic.name, assignor="magic"))
    for version in join_group.VERSIONS:
        stage.ask(f"classic v{version}", join_group, version, join("full-848"))
        stage.ask(f"stranger v{version}", join_group, version, join("full-848", "stranger"))


STORIES = (
    commits_of_older_epochs,
    commits_in_transactions,
    looking_and_deleting,
    joining_anew,
    full_groups,
)
