"""TxnOffsetCommit, v0-5: a group's place in partitions, which counts when the transaction commits.

The offsets are written to the group's log as records of the producer's transaction; until its
marker comes they are pending. A member that was fenced by its group is refused by its generation
(KIP-447). v1 throttle time. v2 leader epoch. v3 flexible, member and generation. v4
TRANSACTION_ABORTABLE. v5 adds the group's partition to the transaction itself (KIP-890). Needs
WRITE on the transactional id, READ on the group and on each topic.
"""

from __future__ import annotations

from typing import Any

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.admission import admit_offsets
from headrace.node.broker.coordinators.groups import require_group_id
from headrace.node.coordination.group.offset_rules import Commit
from headrace.node.coordination.group.offsets import NO_EXPIRY
from headrace.node.coordination.group.transactional_offsets import commit_in_transaction
from headrace.node.coordination.transaction.machine import Producer
from headrace.node.serving.api import Api, Call, WaitingRequest, require_few_partitions
from headrace.node.serving.chain import chain, or_refused
from headrace.node.serving.rights import GROUP, TOPIC, TRANSACTIONAL_ID, may, require
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import txn_offset_commit as messages
from headrace.wire.protocol.messages.offset_commit_value import OffsetCommitValue
from headrace.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def handle(
    broker: Broker, request: TxnOffsetCommitRequest, call: Call
) -> TxnOffsetCommitResponse | WaitingRequest:
    require_few_partitions(messages.NAME, sum(len(topic.partitions) for topic in request.topics))
    try:
        require(broker, call, Operation.WRITE, TRANSACTIONAL_ID, request.transactional_id)
        require(broker, call, Operation.READ, GROUP, request.group_id)
    except KafkaError as denied:
        return refuse_all(request, denied.code)
    response, commits, accepted = read(broker, request, call)
    if not accepted:
        return response
    producer = Producer(request.producer_id, request.producer_epoch)

    def refuse(code: ErrorCode) -> TxnOffsetCommitResponse:
        for answer in accepted:
            answer.error_code = code
        return response

    def commit(admitted: ErrorCode) -> TxnOffsetCommitResponse | WaitingRequest:
        if admitted != ErrorCode.NONE:
            return refuse(admitted)
        try:
            answered: TxnOffsetCommitResponse | WaitingRequest = broker.groups.ask(
                request.group_id,
                call.now,
                commit_in_transaction,
                request,
                producer,
                commits,
                response,
                call.now,
            )
        except KafkaError as refusal:
            return refuse(refusal.code)
        return or_refused(answered, refuse)

    try:
        require_group_id(request.group_id)
        admitted: Any = admit_offsets(
            broker,
            request.transactional_id,
            producer,
            request.group_id,
            call.version,
            call.now,
        )
    except KafkaError as refusal:
        return refuse(refusal.code)
    later: TxnOffsetCommitResponse | WaitingRequest = chain(broker.purgatory, admitted, commit)
    return later


def refuse_all(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                wanted.name,
                [
                    TxnOffsetCommitResponsePartition(part.partition_index, code)
                    for part in wanted.partitions
                ],
            )
            for wanted in request.topics
        ]
    )


def read(
    broker: Broker, request: TxnOffsetCommitRequest, call: Call
) -> tuple[TxnOffsetCommitResponse, list[Commit], list[TxnOffsetCommitResponsePartition]]:
    """Returns the answer with the refusals, the offsets to commit, and their parts of the
    answer."""
    wall_ms = call.now.wall_ms
    longest = broker.groups.settings().offset_metadata_max_bytes
    response = TxnOffsetCommitResponse()
    commits: list[Commit] = []
    accepted: list[TxnOffsetCommitResponsePartition] = []
    for wanted in request.topics:
        topic = broker.image.topics.get(wanted.name)
        allowed = may(broker, call, Operation.READ, TOPIC, wanted.name)
        answers = []
        for part in wanted.partitions:
            answer = TxnOffsetCommitResponsePartition(part.partition_index, ErrorCode.NONE)
            answers.append(answer)
            metadata = part.committed_metadata or ""
            if not allowed:
                answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                continue
            if topic is None or not 0 <= part.partition_index < len(topic.partitions):
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            accepted.append(answer)
            if len(metadata) > longest:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            value = OffsetCommitValue(
                part.committed_offset,
                part.committed_leader_epoch,
                metadata,
                wall_ms,
                NO_EXPIRY,
                topic.id,
            )
            commits.append((topic.name, part.partition_index, value))
        response.topics.append(TxnOffsetCommitResponseTopic(wanted.name, answers))
    return response, commits, accepted


API = Api(messages=messages, handle=handle, versions=range(0, 6))
