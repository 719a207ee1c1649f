"""OffsetCommit, v2-10: a group's place in partitions, with a note if it likes.

Members commit for their generation or epoch; others may as long as the group has no members.
Partitions that are not there are refused, one by one.
v2-4 retention time. v3 throttle time. v6 leader epoch (KIP-320). v7 static members. v8 flexible.
v9 groups of the consumer protocol (KIP-848). v10 topic ids. Needs READ on the group and each topic.
A commit of very many partitions is handled as several, each checked and written as a whole: other
requests run between them, and the error of a later part is answered for its partitions.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.node.broker.broker import Broker
from headrace.node.broker.recognized.offset_commit import remember, throttled
from headrace.node.coordination.group import offset_rules
from headrace.node.coordination.group.offset_rules import Commit
from headrace.node.coordination.group.offsets import NO_EXPIRY
from headrace.node.metadata.image import TopicImage
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.chain import all_of, or_refused
from headrace.node.serving.rights import GROUP, TOPIC, may
from headrace.node.steps import Steps
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import offset_commit as messages
from headrace.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.wire.protocol.messages.offset_commit_value import OffsetCommitValue

FIRST_VERSION_WITH_IDS = 10
END_OF_TIME_MS = 2**63 - 1  # the largest time that the record of an offset can hold
NONE = ErrorCode.NONE
UNKNOWN_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
READ = Operation.READ
# Partitions in one turn of the loop: about 15 ms of processor time.
MOST_AT_ONCE = 500


def handle(
    broker: Broker, request: OffsetCommitRequest, call: Call
) -> OffsetCommitResponse | WaitingRequest | Steps:
    count = 0
    for topic in request.topics:
        count += len(topic.partitions)
    if count > MOST_AT_ONCE:
        return commit_in_parts(broker, request, call)
    answered = commit(broker, request, call)
    if count == len(request.topics) == 1 and type(answered) is OffsetCommitResponse:
        remember_accepted(broker, request, call, answered)
    return answered


def commit_in_parts(broker: Broker, request: OffsetCommitRequest, call: Call) -> Steps:
    response = OffsetCommitResponse()
    answers: list[OffsetCommitResponse | WaitingRequest] = []
    for part in parts_of(request):
        answers.append(commit(broker, part, call))
        yield

    def finish(found: list[OffsetCommitResponse]) -> OffsetCommitResponse:
        for topic in (topic for each in found for topic in each.topics):
            last = response.topics[-1] if response.topics else None
            if last is not None and (last.name, last.topic_id) == (topic.name, topic.topic_id):
                last.partitions += topic.partitions
            else:
                response.topics.append(topic)
        return response

    return all_of(answers, finish)


def parts_of(request: OffsetCommitRequest) -> Iterator[OffsetCommitRequest]:
    """Splits the request into requests of at most so many partitions each, in order."""

    def part_with(topics: list[OffsetCommitRequestTopic]) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            request.group_id,
            request.generation_id_or_member_epoch,
            request.member_id,
            request.group_instance_id,
            request.retention_time_ms,
            topics,
        )

    taken: list[OffsetCommitRequestTopic] = []
    room = MOST_AT_ONCE
    for topic in request.topics:
        first = 0
        while first < len(topic.partitions) or not topic.partitions:
            some = topic.partitions[first : first + room]
            taken.append(OffsetCommitRequestTopic(topic.name, topic.topic_id, some))
            first += len(some)
            room -= max(len(some), 1)
            if room <= 0:
                yield part_with(taken)
                taken, room = [], MOST_AT_ONCE
            if not some:
                break
    if taken:
        yield part_with(taken)


def commit(
    broker: Broker, request: OffsetCommitRequest, call: Call
) -> OffsetCommitResponse | WaitingRequest:
    if not may(broker, call, READ, GROUP, request.group_id):
        return refuse_all(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    response, commits, accepted = read(broker, request, call)
    if not accepted and request.topics:
        return response

    def refuse(code: ErrorCode) -> OffsetCommitResponse:
        for answer in accepted:
            answer.error_code = code
        return response

    try:
        answered: OffsetCommitResponse | WaitingRequest = broker.groups.ask(
            request.group_id,
            call.now,
            offset_rules.commit,
            request,
            commits,
            response,
            call.version,
            call.now,
        )
    except KafkaError as refusal:
        return refuse(refusal.code)
    return or_refused(answered, refuse)


def remember_accepted(
    broker: Broker, request: OffsetCommitRequest, call: Call, response: OffsetCommitResponse
) -> None:
    """Called after one partition was committed: the next such request is recognized by its
    bytes."""
    [topic], [answer] = request.topics, response.topics
    if answer.partitions[0].error_code != NONE:
        return
    by_id = call.version >= FIRST_VERSION_WITH_IDS
    image = broker.image
    known = image.topics_by_id[topic.topic_id] if by_id else image.topics[topic.name]
    remember(call, request, known, response)


def read(
    broker: Broker, request: OffsetCommitRequest, call: Call
) -> tuple[OffsetCommitResponse, list[Commit], list[OffsetCommitResponsePartition]]:
    """Returns the answer with the refusals, the offsets to commit, and their parts of the
    answer."""
    by_id = call.version >= FIRST_VERSION_WITH_IDS
    response = OffsetCommitResponse()
    commits: list[Commit] = []
    accepted: list[OffsetCommitResponsePartition] = []
    wall_ms = call.now.wall_ms
    longest = broker.groups.settings().offset_metadata_max_bytes
    expires_ms = NO_EXPIRY
    if request.retention_time_ms != -1:
        expires_ms = min(wall_ms + request.retention_time_ms, END_OF_TIME_MS)
    image = broker.image
    for wanted in request.topics:
        topic = image.topics_by_id.get(wanted.topic_id) if by_id else image.topics.get(wanted.name)
        refused = refusal_of(broker, call, topic, wanted.name, by_id=by_id)
        answers: list[OffsetCommitResponsePartition] = []
        for part in wanted.partitions:
            metadata = part.committed_metadata or ""
            if topic is None or refused or part.partition_index not in range(len(topic.partitions)):
                code = refused or UNKNOWN_PARTITION
                answers.append(OffsetCommitResponsePartition(part.partition_index, code))
                continue
            answer = OffsetCommitResponsePartition(part.partition_index, NONE)
            answers.append(answer)
            accepted.append(answer)
            if len(metadata) > longest:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            value = OffsetCommitValue(
                part.committed_offset,
                part.committed_leader_epoch,
                metadata,
                wall_ms,
                expires_ms,
                topic.id,
            )
            commits.append((topic.name, part.partition_index, value))
        response.topics.append(OffsetCommitResponseTopic(wanted.name, wanted.topic_id, answers))
    return response, commits, accepted


def refusal_of(
    broker: Broker, call: Call, topic: TopicImage | None, name: str, *, by_id: bool
) -> ErrorCode | None:
    """Returns why nothing is committed for a topic, or NONE. The right is checked before the name
    is resolved, so that a client without it does not learn whether the topic exists."""
    if topic is None and by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not may(broker, call, READ, TOPIC, name if topic is None else topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return UNKNOWN_PARTITION if topic is None else None


def refuse_all(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                wanted.name,
                wanted.topic_id,
                [
                    OffsetCommitResponsePartition(part.partition_index, code)
                    for part in wanted.partitions
                ],
            )
            for wanted in request.topics
        ]
    )


API = Api(messages=messages, handle=handle, versions=range(2, 11), throttle_encoded=throttled)
