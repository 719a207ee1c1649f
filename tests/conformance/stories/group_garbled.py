"""Subscriptions and assignments that are garbled, and members whose words cannot be true.

A classic group does not look at what its members bring, so anything is taken; it is looked at when
a member of the consumer protocol comes and the group changes over, or when a classic member comes
to a group of the other kind.
"""

from __future__ import annotations

from typing import Any

from headrace.wire.protocol.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    heartbeat,
    join_group,
    leave_group,
    offset_delete,
    sync_group,
)
from headrace.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.wire.protocol.messages.heartbeat import HeartbeatRequest
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.group_consumers import ask, beat, joining, new_topic
from tests.conformance.stories.group_members import (
    BEAT,
    JOIN,
    LEAVE,
    SYNC,
    join,
    leave,
    stable,
    sync,
)
from tests.conformance.stories.group_offsets import with_coordinator
from tests.conformance.stories.group_refusals import forget_offsets
from tests.conformance.stories.no_coordinator import of_groups, of_transactions
from tests.conformance.wire import encode_body, encode_header

NAME = b"\0\x07garbled"
GIVEN = b"\0\x07a-given"
GOOD = b"\0\0" + b"\0\0\0\1" + NAME + b"\xff\xff\xff\xff"
THIRD = b"\0\3" + b"\0\0\0\1" + NAME + b"\xff\xff\xff\xff" + b"\0\0\0\0" + b"\0\0\0\1" + b"\xff\xff"
# What a reader meets the end of, or cannot be.
SUBSCRIPTIONS = {
    "nothing": b"",
    "one byte": b"\0",
    "a version alone": b"\0\0",
    "a negative version": b"\xff\xff" + GOOD[2:],
    "cut before the user data": GOOD[:-4],
    "version 3 cut": THIRD[:-6],
    "version 3": THIRD,
    "a version of the future": b"\x7f\xff" + THIRD[2:],
    "bytes behind it": GOOD + b"junk",
    "no topics": b"\0\0" + bytes(4) + b"\xff\xff\xff\xff",
    "an empty name": b"\0\0" + b"\0\0\0\1" + b"\0\0" + b"\xff\xff\xff\xff",
    "a topic twice": b"\0\0" + b"\0\0\0\2" + NAME * 2 + b"\xff\xff\xff\xff",
}
# Lengths that cannot be. A classic group that takes these at Apache Kafka tries to complete its
# rebalance twice a second from then on, and its member is never answered: not asked of it.
LENGTHS = {
    "cut in the name": GOOD[:10],
    "a count too large": b"\0\0" + b"\x7f\xff\xff\xff" + NAME,
    "a negative count": b"\0\0" + b"\xff\xff\xff\xfe" + NAME,
    "a name without length": b"\0\0" + b"\0\0\0\1" + b"\xff\xff" + b"\xff\xff\xff\xff",
}


def assigned(*partitions: int, name: bytes = GIVEN, count: int = 1) -> bytes:
    numbers = b"".join(number.to_bytes(4, "big", signed=True) for number in partitions)
    topic = name + len(partitions).to_bytes(4, "big") + numbers
    return b"\0\0" + count.to_bytes(4, "big") + topic * count + b"\xff\xff\xff\xff"


ASSIGNMENTS = {
    "nothing": b"",
    "one byte": b"\0",
    "a negative version": b"\xff\xff" + assigned(0)[2:],
    "cut": assigned(0, 1)[:-6],
    "text": b"all of it",
    "a count too large": b"\0\0" + b"\x7f\xff\xff\xff" + NAME,
    "bytes behind it": assigned(0, 1) + b"junk",
    "partitions that are not there": assigned(0, 99),
    "a negative partition": assigned(-1),
    "a partition twice": assigned(1, 1),
    "a topic twice": assigned(1, count=2),
    "a topic that is not there": assigned(0, name=b"\0\x05never"),
}


def changes_over(stage: Stage, line: str, group: str, topic: Topic) -> None:
    """Who of the two gets which partition is up to chance: how many each has is not."""
    answer: Any = stage.connection.ask(
        consumer_group_heartbeat, 1, joining(group, "new", topic.name)
    )
    stage.keep(f"{line}: the new one", [answer.error_code, answer.member_epoch])
    request = ConsumerGroupDescribeRequest([group])
    described: Any = stage.connection.ask(consumer_group_describe, 1, request)
    members = described.groups[0].members
    for member in members:
        for given in (member.assignment, member.target_assignment):
            for part in given.topic_partitions:
                part.partitions = [len(part.partitions)]
    stage.keep(f"{line}: described", described)


def subscriptions(stage: Stage) -> None:
    topic = new_topic(stage, "garbled", 2)
    for line, data in SUBSCRIPTIONS.items():
        group = f"garbled {line}"
        old = stable(stage, group, assignment=assigned(0, 1, name=NAME), range=data)
        request = HeartbeatRequest(group, old.generation_id, old.member_id)
        stage.ask(f"{line}: heartbeat", heartbeat, BEAT, request)
        wanted = forget_offsets(group, topic.name, "never-was")
        stage.ask(f"{line}: delete offsets", offset_delete, 0, wanted)
        changes_over(stage, line, group, topic)
        again: Any = stage.connection.ask(join_group, JOIN, join(group, old.member_id, range=data))
        stage.keep(f"{line}: old joins", [again.error_code, again.protocol_name])


def assignments(stage: Stage) -> None:
    topic = new_topic(stage, "a-given", 2)
    for line, data in ASSIGNMENTS.items():
        group = f"given {line}"
        old = stable(stage, group, assignment=data, range=GOOD.replace(NAME, GIVEN))
        request = HeartbeatRequest(group, old.generation_id, old.member_id)
        stage.ask(f"{line}: heartbeat", heartbeat, BEAT, request)
        changes_over(stage, line, group, topic)


def in_a_group_of_the_other_kind(stage: Stage) -> None:
    """A classic member joins, by bytes that cannot be read or say what is not so."""
    topic = new_topic(stage, "garbled-848", 2)
    group = "garbled-848"
    with_coordinator(stage, group)
    ask(stage, "the first", joining(group, "new", topic.name))
    for line, data in (SUBSCRIPTIONS | LENGTHS).items():
        for version in (3, JOIN):
            request = join(group, "" if version == 3 else "stranger", range=data)
            answer: Any = stage.connection.ask(join_group, version, request)
            kept = [answer.error_code, answer.protocol_name]
            stage.keep(f"v{version} {line}", kept)
            if not answer.error_code:
                stage.connection.ask(leave_group, LEAVE, leave(group, (answer.member_id, None)))
    bare = join(group)
    bare.protocols = []
    stage.ask("no protocols", join_group, JOIN, bare)
    stage.ask("no kind", join_group, JOIN, join(group, kind=""))
    stage.ask("sync of a stranger", sync_group, SYNC, sync(group, "stranger", 1))
    stage.ask("sync of the other kind", sync_group, SYNC, sync(group, "new", 1))
    for generation in (0, 1):
        request = HeartbeatRequest(group, generation, "new")
        stage.ask(f"heartbeat of the other kind {generation}", heartbeat, BEAT, request)
    for version in leave_group.VERSIONS:
        gone = leave(group, ("new", None))
        stage.ask(f"v{version} leave of the other kind", leave_group, version, gone)
    two = leave(group, ("stranger", None), ("", "i"), ("new", "i"))
    stage.ask("leave of strangers", leave_group, LEAVE, two)


def classic_members_among_others(stage: Stage) -> None:
    """What is refused to a classic member that is in such a group."""
    topic = new_topic(stage, "garbled-mixed", 2)
    group = "garbled-mixed"
    name = topic.name.encode()
    data = b"\0\0" + b"\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"
    with_coordinator(stage, group)
    ask(stage, "the first", joining(group, "new", topic.name))
    given: Any = stage.connection.ask(join_group, JOIN, join(group, range=data))
    joined: Any = stage.connection.ask(join_group, JOIN, join(group, given.member_id, range=data))
    stage.keep("joins", [joined.error_code, joined.generation_id, joined.protocol_name])
    member, generation = joined.member_id, joined.generation_id
    for version in sync_group.VERSIONS:

        def no(line: str, request: Any, version: int = version) -> None:
            stage.ask(f"sync v{version} {line}", sync_group, version, request)

        no("old generation", sync(group, member, generation - 1))
        no("future generation", sync(group, member, generation + 1))
        if version >= 3:
            no("an instance of nobody", sync(group, member, generation, "i"))
        if version == SYNC:
            for field, value in (("protocol_type", "connect"), ("protocol_name", "sticky")):
                request = sync(group, member, generation)
                setattr(request, field, value)
                no(f"another {field}", request)
    for version in heartbeat.VERSIONS:
        for far in (-1, 1):
            request = HeartbeatRequest(group, generation + far, member)
            stage.ask(f"heartbeat v{version} {far} off", heartbeat, version, request)
    stage.ask("another protocol", join_group, JOIN, join(group, member, sticky=data))
    stage.ask("another kind", join_group, JOIN, join(group, member, kind="connect", range=data))
    for line, request in {
        "by the other protocol": beat(group, member, generation),
        "joins by the other protocol": joining(group, member, topic.name),
    }.items():
        answer: Any = stage.connection.ask(consumer_group_heartbeat, 1, request)
        stage.keep(line, [answer.error_code, answer.member_epoch, answer.assignment is None])


def heartbeats_that_cannot_be_true(stage: Stage) -> None:
    """Partitions that nobody gave, of topics that nobody has; times nobody means; long names."""
    topic = new_topic(stage, "untrue-848", 3)
    group = "untrue-848"
    with_coordinator(stage, group)
    epoch = ask(stage, "joins", joining(group, "m", topic.name)).member_epoch
    garbled: dict[str, dict[bytes, list[int]]] = {
        "a topic that is not there": {b"\x13" * 16: [0]},
        "no topic": {bytes(16): [0]},
        "partitions that are not there": {topic.id: [0, 99]},
        "a negative partition": {topic.id: [-1]},
        "a partition twice": {topic.id: [0, 0, 1]},
        "a topic without partitions": {topic.id: []},
    }
    for line, owned in garbled.items():
        for far in (0, -1):
            request = beat(group, "m", epoch + far, owned=owned)
            ask(stage, f"{line}, {far} off", request)
    for timeout_ms in (0, -2, -(2**31), 2**31 - 1):
        name = f"untrue-848 {timeout_ms}"
        with_coordinator(stage, name)
        ask(stage, f"timeout {timeout_ms}", joining(name, "m", topic.name, timeout_ms=timeout_ms))
    for line, member in {
        "spaces": "   ",
        "37 letters": "m" * 37,
        "1,000 letters": "m" * 1_000,
        "not ASCII": "müller",
    }.items():
        ask(stage, f"a member called {line}", joining(f"untrue-848 {line}", member, topic.name))
    for line, names in {
        "a name twice": [topic.name, topic.name],
        "an empty name": [""],
        "a name that cannot be": ["bad name", topic.name],
        "a long name": ["n" * 300],
    }.items():
        ask(stage, line, joining(f"untrue-848 {line}", "m", *names))
    for line, pattern in {
        "look ahead": "(?=a).*",
        "repeated too often": "a{1001}",
    }.items():
        ask(stage, f"pattern of {line}", joining(f"untrue-848 {line}", "m", regex=pattern))
    both = joining("untrue-848 both", "m", topic.name, regex="untrue-848")
    ask(stage, "names and a pattern", both)
    for version in consumer_group_heartbeat.VERSIONS:
        spaces = joining("  ", "m", topic.name)
        ask(stage, f"v{version} a group of spaces", spaces, version)


def bodies_cut_short(stage: Stage) -> None:
    """Each request that groups and transactions know, without its end, half of it, or all of it."""
    topic = stage.topic("cut-short")
    for api, requests in (of_groups(topic) | of_transactions(topic)).items():
        for version in sorted({api.VERSIONS[0], api.VERSIONS[-1]}):
            request = next(iter(requests(version).values()))
            body = encode_body(api, version, request)
            flexible = version >= api.FLEXIBLE_FROM
            head = encode_header(api.API_KEY, version, 7, flexible=flexible)
            for cut in sorted({1, len(body) // 2, len(body)}):
                line = f"{api.NAME} v{version} without {cut} bytes"
                stage.send_raw(line, head + body[: len(body) - cut], words=False)


STORIES = (
    bodies_cut_short,
    subscriptions,
    assignments,
    in_a_group_of_the_other_kind,
    classic_members_among_others,
    heartbeats_that_cannot_be_true,
)
