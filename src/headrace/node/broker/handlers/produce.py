"""Produce, v3-13: appends batches of a client to partitions.

A refusal by one partition does not affect the others in the request. acks=0 is never answered, not
even with an error: the connection is closed instead, as in Apache Kafka, so that the client looks
up the leader again. acks=all is answered when the high watermark has passed the records. v4 new
errors. v5 log start offset. v8 errors per record (KIP-467). v9 flexible. v10 current leader
(KIP-951). v12 transactions need no AddPartitionsToTxn (KIP-890). v13 topic ids (KIP-516).
`broker/coordinators/admission.py` checks batches of transactions, the dispatch measures quotas.
Needs WRITE on each topic; a request with batches of transactions also needs WRITE on the
transactional id, or nothing of it is appended. As in Apache Kafka, only a client with the client id
`__admin_client` may write to the topics of coordinators; others get INVALID_TOPIC_EXCEPTION.
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.admission import require_admitted
from headrace.node.broker.coordinators.admission_ahead import Admitted, admit_ahead
from headrace.node.broker.recognized.produce import remember
from headrace.node.broker.records.acknowledgements import throttled
from headrace.node.broker.records.one_batch import (
    ALL,
    LOW_ATTRIBUTES_AT,
    append_to,
    may_write,
    refused,
    refused_by,
)
from headrace.node.replication.replica import PartitionLeader
from headrace.node.serving.api import Api, Call, ClosesConnection, WaitingRequest
from headrace.node.serving.rights import TOPIC, TRANSACTIONAL_ID, may, refusal
from headrace.node.storage.append_rules import RecordsRefused
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.compression import ZSTD
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import produce as messages
from headrace.wire.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.wire.protocol.primitives import Records
from headrace.wire.protocol.record_batch import COMPRESSION_MASK, TRANSACTIONAL

NONE = ErrorCode.NONE
WRITE = Operation.WRITE
FIRST_VERSION_WITH_IDS = 13
FIRST_VERSION_WITH_ZSTD = 7
# A client with this client id may write to the topics of coordinators, as in Apache Kafka.
ADMIN_CLIENT_ID = "__admin_client"
CLIENT_ID_ENDS = 10 + 0x7FFF  # in a frame, at most

# A batch that is appended and not committed yet: its leader, the log end offset after it, the epoch
# in which that leader began to lead, and the prepared answer.
Unreplicated = tuple[PartitionLeader, int, int, PartitionProduceResponse]


def handle(
    broker: Broker, request: ProduceRequest, call: Call
) -> ProduceResponse | WaitingRequest | bytes | None:
    acks = request.acks
    # Most requests have one batch for one partition. `append_one` looks up, authorizes and appends
    # in the same order as `append_all`, and ends in `one_batch.append_to`. It answers None before
    # it has changed anything wherever something else is to be decided: an unknown topic, an
    # internal one, a missing right, a transaction, a partition whose acknowledgement must wait.
    # Then the general path below does all of it and makes the refusal. Its answer is bytes from a
    # template; tests/unit/node/broker/test_acknowledgements.py compares it with the codec's.
    if (
        len(request.topic_data) == 1
        and len(request.topic_data[0].partition_data) == 1
        and (acks == ALL or acks == 1)
        and call.version >= FIRST_VERSION_WITH_ZSTD
    ):
        acknowledged = append_one(broker, request, call)
        if acknowledged is not None:
            return acknowledged
    if acks not in (ALL, 0, 1):
        return refuse_all(request, KafkaError(ErrorCode.INVALID_REQUIRED_ACKS))
    if broker.authorizer is not None and not may_write_transactions(broker, request, call):
        # As in Apache Kafka: without the right on the transactional id no partition is written.
        return refuse_all(request, refusal(TRANSACTIONAL_ID))
    if request.transactional_id is not None:
        admitted: ProduceResponse | WaitingRequest | None = admit_ahead(
            broker, request, call, lambda ahead: append_all(broker, request, call, ahead)
        )
        if isinstance(admitted, WaitingRequest):
            # The request is decided in a later turn, when the receive buffer has other bytes.
            keep(request, call)
        if admitted is not None:
            return admitted
    return append_all(broker, request, call)


def append_one(
    broker: Broker, request: ProduceRequest, call: Call
) -> ProduceResponse | bytes | None:
    """The fast path of the most common request; None, with nothing done: use the general path."""
    data = request.topic_data[0]
    by_id = call.version >= FIRST_VERSION_WITH_IDS
    topics = broker.topics
    topic = topics.by_id.get(data.topic_id) if by_id else topics.by_name.get(data.name)
    part = data.partition_data[0]
    if topic is None or not 0 <= part.index < len(topic.replicas) or part.records is None:
        return None
    if topic.is_internal:
        return None
    authorizer = broker.authorizer
    if authorizer is not None and not may_write(authorizer, call.session, topic.name):
        return None
    found = topic, part.index, request.acks
    answer = append_to(broker, found, part.records, call.version, call.now)
    if answer is not None:
        remember(call, request, found)
    return answer


def may_write_transactions(broker: Broker, request: ProduceRequest, call: Call) -> bool:
    """Whether the client may write with its transactional id; only asked for if there are batches
    of transactions."""
    transactional_id = request.transactional_id
    return not any(
        part.records is not None
        and len(part.records) > LOW_ATTRIBUTES_AT
        and part.records[LOW_ATTRIBUTES_AT] & TRANSACTIONAL
        for data in request.topic_data
        for part in data.partition_data
    ) or (
        transactional_id is not None
        and may(broker, call, WRITE, TRANSACTIONAL_ID, transactional_id)
    )


def append_all(
    broker: Broker, request: ProduceRequest, call: Call, ahead: Admitted | None = None
) -> ProduceResponse | WaitingRequest | None:
    acks = request.acks
    wall_ms = call.now.wall_ms
    by_id = call.version >= FIRST_VERSION_WITH_IDS
    responses: list[TopicProduceResponse] = []
    waiting: list[Unreplicated] = []
    # Each partition answers for itself: a refusal must not change what its neighbours get, so every
    # exception is turned into an answer inside the loop.
    for data in request.topic_data:
        if not data.partition_data:
            continue
        topic = (
            broker.topics.by_id.get(data.topic_id)
            if by_id
            else broker.topics.by_name.get(data.name)
        )
        # An unknown topic id has no name for which a right could be missing.
        name = data.name if topic is None else topic.name
        refused_topic = (
            broker.authorizer is not None
            and not (topic is None and by_id)
            and not may(broker, call, WRITE, TOPIC, name)
        )
        answers: list[PartitionProduceResponse] = []
        for part in data.partition_data:
            try:
                if refused_topic:
                    raise refusal(TOPIC)
                if topic is None:
                    raise unknown_topic(by_id)
                leader = topic.leader(part.index)
                if require_kind(part.records, call.version):
                    require_admitted(
                        broker,
                        request.transactional_id,
                        leader,
                        part.records,
                        call.version,
                        call.now,
                        ahead,
                    )
                if topic.is_internal and call.client_id() != ADMIN_CLIENT_ID:
                    raise KafkaError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by coordinators only"
                    )
                base_offset, append_time = leader.append(
                    part.records, wall_ms, acks_all=acks == ALL
                )
            except RecordsRefused as fault:
                answers.append(refused_by(leader, fault))
                continue
            except KafkaError as fault:
                answers.append(refused(part.index, fault))
                continue
            answer = PartitionProduceResponse(
                part.index, NONE, base_offset, append_time, leader.log.start_offset
            )
            answers.append(answer)
            # acks=1 is answered now, acks=all when the high watermark has passed the last record of
            # this append. `led_since` is kept with the offset: after a change of leader the same
            # offset may hold another record (`Replica.outcome_of`).
            if not leader.commits_at_once:
                broker.commit_soon(leader)
                if acks == ALL and leader.high_watermark < leader.log.end_offset:
                    waiting.append((leader, leader.log.end_offset, leader.led_since, answer))
            elif leader.waiting or leader.sessions:
                broker.partition_changed(leader)
        responses.append(TopicProduceResponse(data.name, data.topic_id, answers))
    if acks == 0:
        close_if_refused(responses)
        return None
    response = ProduceResponse(responses)
    if waiting:
        return wait_for_replicas(response, waiting, call.now.monotonic_ms + request.timeout_ms)
    return response


def wait_for_replicas(
    response: ProduceResponse, waiting: list[Unreplicated], deadline_ms: int
) -> WaitingRequest:
    def attempt(expired: bool) -> ProduceResponse | None:
        # May run many times. A partition that is decided leaves `waiting`, so that a later change
        # of leader cannot turn a success that was already found into an error.
        late = []
        for each in waiting:
            leader, end_offset, led_since, answer = each
            code = leader.outcome_of(end_offset, led_since)
            if code is None:
                late.append(each)
            elif code != NONE:
                fail(answer, code)
        waiting[:] = late  # decided partitions stay decided
        if late and not expired:
            return None
        for _, _, _, answer in late:
            fail(answer, ErrorCode.REQUEST_TIMED_OUT)
        return response

    return WaitingRequest(
        attempt, deadline_ms=deadline_ms, hangs_on=[waits[0] for waits in waiting]
    )


def fail(answer: PartitionProduceResponse, code: ErrorCode) -> None:
    answer.error_code = code
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1


def keep(request: ProduceRequest, call: Call) -> None:
    """Copy what a waiting request needs: its receive buffer is used again."""
    call.frame = memoryview(bytes(call.frame[:CLIENT_ID_ENDS]))
    for data in request.topic_data:
        for part in data.partition_data:
            if part.records is not None:
                part.records = memoryview(bytearray(part.records))


def require_kind(records: Records, version: int) -> int:
    """Check what needs no look at the batch itself; true if the batch is part of a transaction."""
    if records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "the partition has no records")
    if len(records) <= LOW_ATTRIBUTES_AT:
        return 0
    attributes: int = records[LOW_ATTRIBUTES_AT]
    if version < FIRST_VERSION_WITH_ZSTD and attributes & COMPRESSION_MASK == ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    return attributes & TRANSACTIONAL


def unknown_topic(by_id: bool) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def refuse_all(request: ProduceRequest, fault: KafkaError) -> ProduceResponse | None:
    responses = [
        TopicProduceResponse(
            data.name,
            data.topic_id,
            [refused(part.index, fault) for part in data.partition_data],
        )
        for data in request.topic_data
    ]
    if request.acks == 0:
        close_if_refused(responses)
    return ProduceResponse(responses)


def close_if_refused(responses: list[TopicProduceResponse]) -> None:
    codes = {part.error_code for data in responses for part in data.partition_responses} - {NONE}
    if codes:
        names = ", ".join(sorted(f"error {code}" for code in codes))
        raise ClosesConnection(f"a Produce with acks=0 that was refused: {names}")


API = Api(
    messages=messages,
    handle=handle,
    versions=range(3, 14),
    advertised_from=0,
    throttle_encoded=throttled,
)
