"""OffsetFetch, v1-10: committed offsets of groups; null topics ask for all of a group's offsets.

A partition without a committed offset answers -1, which is not an error. With require_stable,
offsets that an open transaction may change answer UNSTABLE_OFFSET_COMMIT (KIP-447). A name that
comes twice is answered once: metadata of offsets is long, and a repeated name is short. v2 all
topics, top-level error. v3 throttle time. v5 leader epoch. v6 flexible. v7 require_stable. v8 many
groups (KIP-709). v9 member and epoch (KIP-848). v10 topic ids. Needs DESCRIBE on each group, and
shows only topics that one may DESCRIBE.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.coordinator_waits import after_all
from headrace.node.broker.coordinators.groups import count_of_offsets
from headrace.node.coordination.group import offset_rules
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.coordination.shard import Decision
from headrace.node.metadata.image import TopicImage
from headrace.node.serving.api import LARGE_ANSWER, Api, Call, WaitingRequest
from headrace.node.serving.chain import or_refused
from headrace.node.serving.long_answers import LARGE_ANSWER_BYTES
from headrace.node.serving.rights import GROUP, TOPIC, may, require
from headrace.node.steps import Steps, at_once
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import offset_fetch as messages
from headrace.wire.protocol.messages.offset_commit_value import OffsetCommitValue
from headrace.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from headrace.wire.protocol.primitives import ZERO_ID

FIRST_VERSION_WITH_ERROR = 2
FIRST_VERSION_WITH_MANY = 8
FIRST_VERSION_WITH_IDS = 10
NO_OFFSET = -1
LONG_FROM = 500  # partitions in an answer; each may have a text of 4 KB
WORK_PER_GROUP = 5  # a group takes as long as so many partitions
PARTITIONS_PER_PART = 500
PLACES_PER_STEP = 2_000
BYTES_OF_ONE = 20  # of one partition in an answer, without its text


def handle(
    broker: Broker, request: OffsetFetchRequest, call: Call
) -> OffsetFetchResponse | WaitingRequest | Steps:
    if is_long(broker, request, call.version):
        return handle_large(broker, request, call)
    waits: list[WaitingRequest] = []  # until the offsets in the answer are committed
    found = fetch(broker, request, call, waits)
    response: OffsetFetchResponse | WaitingRequest = after_all(waits, found)
    if call.version < FIRST_VERSION_WITH_MANY:
        response = or_refused(response, lambda code: refuse_one_group(request, code, call.version))
    return response


def is_long(broker: Broker, request: OffsetFetchRequest, version: int) -> bool:
    """Returns whether the answer may be long: a request of a hundred bytes may ask for all offsets
    of many groups, each with 4 KB of text."""
    several = version >= FIRST_VERSION_WITH_MANY
    groups = request.groups if several else [the_only_group(request)]
    count = WORK_PER_GROUP * len(groups)
    for group in groups:
        if group.topics is None:
            count += count_of_offsets(broker, group.group_id)
        else:
            count += sum(len(topic.partition_indexes) for topic in group.topics)
        if count >= LONG_FROM:
            return True
    return False


@dataclass(slots=True)
class Collected:
    """The approximate size of the answer so far."""

    size_bytes: int = 0


def handle_large(broker: Broker, request: OffsetFetchRequest, call: Call) -> Steps:
    """Answers a request for many partitions part by part; each part shows the group at one
    moment."""
    waits: list[WaitingRequest] = []
    if call.version < FIRST_VERSION_WITH_MANY:
        only = the_only_group(request)
        answer = yield from fetch_in_parts(broker, only, request, call, waits, Collected())
        found = yield from as_one_group(answer, only, call.version)
        return or_refused(
            after_all(waits, found), lambda code: refuse_one_group(request, code, call.version)
        )
    groups: dict[str, OffsetFetchResponseGroup] = {}
    collected = Collected()
    for wanted in request.groups:
        if wanted.group_id not in groups:
            answer = yield from fetch_in_parts(broker, wanted, request, call, waits, collected)
            groups[wanted.group_id] = answer
    return after_all(waits, OffsetFetchResponse(groups=list(groups.values())))


def fetch_in_parts(
    broker: Broker,
    wanted: OffsetFetchRequestGroup,
    request: OffsetFetchRequest,
    call: Call,
    waits: list[WaitingRequest],
    collected: Collected,
) -> Generator[Any, None, OffsetFetchResponseGroup]:
    answer = OffsetFetchResponseGroup(wanted.group_id)
    if wanted.topics is None:
        # Refusals of the whole group come before its offsets are read.
        nothing = OffsetFetchRequestGroup(
            wanted.group_id, wanted.member_id, wanted.member_epoch, []
        )
        refused = fetch_group(broker, nothing, request, call, waits, answer)
        if refused.error_code:
            return refused
        nothing.topics = yield from all_topics_in_steps(broker, wanted.group_id, call, collected)
        wanted = nothing
    for part in parts_of(wanted):
        yield
        found = fetch_group(broker, part, request, call, waits, answer)
        if found.error_code:
            return found
        add_part(answer, found)
    return answer


def all_topics_in_steps(
    broker: Broker, group_id: str, call: Call, collected: Collected
) -> Generator[Any, None, list[OffsetFetchRequestTopics]]:
    """Returns all offsets that the group has committed, if the client may see them."""
    machine: GroupMachine = broker.groups.shard_of(group_id).machine  # type: ignore[assignment]
    known = machine.offsets.of(group_id)
    places = list(known)
    named: dict[str, list[int]] = {}
    for at in range(0, len(places), PLACES_PER_STEP):
        yield
        for name, index in places[at : at + PLACES_PER_STEP]:
            value = known.get((name, index))
            if value is not None:
                named.setdefault(name, []).append(index)
                collected.size_bytes += BYTES_OF_ONE + len(value.metadata)
    if collected.size_bytes > LARGE_ANSWER_BYTES:
        yield LARGE_ANSWER
    found: list[OffsetFetchRequestTopics] = []
    by_id = call.version >= FIRST_VERSION_WITH_IDS
    for name, indexes in named.items():
        yield
        found += visible(broker, call, topics_named(broker, {name: indexes}, by_id))
    return found


def parts_of(wanted: OffsetFetchRequestGroup) -> Iterator[OffsetFetchRequestGroup]:
    """Splits the request into parts that take a millisecond or so; each partition once."""
    group_id, member_id, epoch = wanted.group_id, wanted.member_id, wanted.member_epoch
    if not wanted.topics:
        yield wanted
        return
    told: dict[tuple[str, bytes], set[int]] = {}
    for topic in wanted.topics:
        before = told.setdefault((topic.name, topic.topic_id), set())
        indexes = topic.partition_indexes
        for at in range(0, len(indexes) or 1, PARTITIONS_PER_PART):
            part = [
                index
                for index in dict.fromkeys(indexes[at : at + PARTITIONS_PER_PART])
                if index not in before
            ]
            before.update(part)
            topics = [OffsetFetchRequestTopics(topic.name, topic.topic_id, part)]
            yield OffsetFetchRequestGroup(group_id, member_id, epoch, topics)


def add_part(answer: OffsetFetchResponseGroup, part: OffsetFetchResponseGroup) -> None:
    for topic in part.topics:
        last = answer.topics[-1] if answer.topics else None
        if last is not None and (last.name, last.topic_id) == (topic.name, topic.topic_id):
            last.partitions += topic.partitions
        else:
            answer.topics.append(topic)


def fetch(
    broker: Broker, request: OffsetFetchRequest, call: Call, waits: list[WaitingRequest]
) -> OffsetFetchResponse:
    if call.version >= FIRST_VERSION_WITH_MANY:
        named: dict[str, OffsetFetchRequestGroup] = {}
        for group in request.groups:
            named.setdefault(group.group_id, group)
        return OffsetFetchResponse(
            groups=[fetch_group(broker, group, request, call, waits) for group in named.values()]
        )
    wanted = the_only_group(request)
    answer = fetch_group(broker, wanted, request, call, waits)
    return at_once(as_one_group(answer, wanted, call.version))


def the_only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """Returns the one group of a request before version 8, in the form of later versions."""
    topics = request.topics
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(one.name, ZERO_ID, one.partition_indexes) for one in topics],
    )


def refuse_one_group(
    request: OffsetFetchRequest, code: ErrorCode, version: int
) -> OffsetFetchResponse:
    refused = OffsetFetchResponseGroup(request.group_id, error_code=code)
    return at_once(as_one_group(refused, the_only_group(request), version))


def fetch_group(
    broker: Broker,
    wanted: OffsetFetchRequestGroup,
    request: OffsetFetchRequest,
    call: Call,
    waits: list[WaitingRequest],
    whole: OffsetFetchResponseGroup | None = None,
) -> OffsetFetchResponseGroup:
    """`whole` is the answer that this one becomes a part of: a wait that is refused puts its error
    there."""
    answer = OffsetFetchResponseGroup(wanted.group_id)
    stable = request.require_stable
    try:
        require(broker, call, Operation.DESCRIBE, GROUP, wanted.group_id)
        found = broker.groups.read(
            wanted.group_id, call.now, offsets_of, broker, wanted, stable, call, answer
        )
    except KafkaError as refusal:
        answer.error_code = refusal.code
        return answer
    if isinstance(found, WaitingRequest):
        waits.append(found)
        if call.version >= FIRST_VERSION_WITH_MANY:  # before, the whole answer is refused
            or_refused(found, partial(refuse, answer if whole is None else whole))
    return answer


def refuse(answer: OffsetFetchResponseGroup, code: ErrorCode) -> bool:
    """The wait ended without what it waited for: replace the answer by an error."""
    answer.error_code, answer.topics = code, []
    return True


def offsets_of(
    machine: GroupMachine,
    broker: Broker,
    wanted: OffsetFetchRequestGroup,
    require_stable: bool,
    call: Call,
    answer_to: OffsetFetchResponseGroup,
) -> Decision:
    by_id = call.version >= FIRST_VERSION_WITH_IDS
    offset_rules.require_may_fetch(machine, wanted.group_id, wanted.member_id, wanted.member_epoch)
    known = machine.offsets.of(wanted.group_id)
    topics = wanted.topics
    if topics is None:
        topics = visible(broker, call, all_topics(broker, known, by_id))
    answers = answer_to.topics
    told: set[tuple[str | bytes, int]] = set()
    for topic in topics:
        name: str | None = topic.name
        found = broker.image.topics.get(topic.name)
        if by_id:
            found = broker.image.topics_by_id.get(topic.topic_id)
            name = None if found is None else found.name
        refused = ErrorCode.UNKNOWN_TOPIC_ID
        if name is not None and not may(broker, call, Operation.DESCRIBE, TOPIC, name):
            name, refused = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partitions = []
        for index in topic.partition_indexes:
            place = (topic.topic_id if by_id else topic.name, index)
            if place in told:
                continue
            told.add(place)
            answer = OffsetFetchResponsePartitions(index, NO_OFFSET, -1, "")
            partitions.append(answer)
            if name is None:
                answer.error_code = refused
                continue
            value = known.get((name, index))
            if value is not None and not is_of(value, found):
                value = None
            if require_stable and machine.offsets.is_unstable(wanted.group_id, (name, index)):
                answer.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
            elif value is not None:
                answer.committed_offset = value.offset
                answer.committed_leader_epoch = value.leader_epoch
                answer.metadata = value.metadata
        answers.append(OffsetFetchResponseTopics(topic.name, topic.topic_id, partitions))
    return Decision(response=answer_to)


def visible(
    broker: Broker, call: Call, topics: list[OffsetFetchRequestTopics]
) -> list[OffsetFetchRequestTopics]:
    return [
        topic
        for topic in topics
        if may(broker, call, Operation.DESCRIBE, TOPIC, topic.name, quietly=True)
    ]


def is_of(value: OffsetCommitValue, topic: TopicImage | None) -> bool:
    """Returns False if the offset was committed for a deleted topic of the same name: it is an
    offset in another log.

    Offsets are deleted with their topic, but a full disk may refuse the record of that.
    """
    return topic is None or value.topic_id in (ZERO_ID, topic.id)


def all_topics(
    broker: Broker, known: Iterable[tuple[str, int]], by_id: bool
) -> list[OffsetFetchRequestTopics]:
    """Returns all committed offsets, as if they had been requested; topics without an id are left
    out."""
    partitions: dict[str, list[int]] = {}
    for name, index in known:
        partitions.setdefault(name, []).append(index)
    return topics_named(broker, partitions, by_id)


def topics_named(
    broker: Broker, partitions: Mapping[str, list[int]], by_id: bool
) -> list[OffsetFetchRequestTopics]:
    found = []
    for name, indexes in partitions.items():
        topic = broker.image.topics.get(name)
        if topic is not None or not by_id:
            topic_id = ZERO_ID if topic is None else topic.id
            found.append(OffsetFetchRequestTopics(name, topic_id, indexes))
    return found


def as_one_group(
    group: OffsetFetchResponseGroup, wanted: OffsetFetchRequestGroup, version: int
) -> Generator[None, None, OffsetFetchResponse]:
    """Returns the answer in the form of versions before 8; the first of them has room for errors at
    partitions only."""
    code = group.error_code
    response = OffsetFetchResponse()
    if code and version < FIRST_VERSION_WITH_ERROR:
        for asked in wanted.topics or ():
            yield
            refused = OffsetFetchResponseTopic(asked.name)
            response.topics.append(refused)
            for index in asked.partition_indexes:
                yield
                refused.partitions.append(
                    OffsetFetchResponsePartition(index, NO_OFFSET, -1, "", code)
                )
        return response
    response.error_code = code
    for topic in group.topics:
        yield
        told = OffsetFetchResponseTopic(topic.name)
        response.topics.append(told)
        for part in topic.partitions:
            yield
            told.partitions.append(
                OffsetFetchResponsePartition(
                    part.partition_index,
                    part.committed_offset,
                    part.committed_leader_epoch,
                    part.metadata,
                    part.error_code,
                )
            )
    return response


API = Api(messages=messages, handle=handle, versions=range(1, 11), handle_large=handle_large)
