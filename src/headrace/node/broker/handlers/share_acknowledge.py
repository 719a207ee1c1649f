"""ShareAcknowledge, v1-2: a member acknowledges records that it has acquired (KIP-932).

Accept, release, reject, or a gap where it found no record; v2 renew (KIP-1222) and the time that
locks last. The answer leaves when the share coordinator has the new states. Share session epoch -1
ends the session after the acknowledgements: what the member still holds is given back. Needs READ
on the group and on each topic.
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.broker.share.acknowledgements import FIRST_VERSION_WITH_RENEW, Acknowledging
from headrace.node.broker.share.member import require_member, wait_deadline_ms
from headrace.node.broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH
from headrace.node.broker.share.told_leaders import ToldLeaders
from headrace.node.serving.api import Api, Call, WaitingRequest, require_few_partitions
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import share_acknowledge as messages
from headrace.wire.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


def handle(
    broker: Broker, request: ShareAcknowledgeRequest, call: Call
) -> ShareAcknowledgeResponse | WaitingRequest:
    group, member = require_member(broker, request.group_id, request.member_id, call)
    epoch = request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    require_few_partitions(messages.NAME, sum(len(topic.partitions) for topic in request.topics))
    session = broker.shared.sessions.resume(group, member, epoch, call.session)
    acknowledging = Acknowledging(broker, group, member)
    renews = call.version >= FIRST_VERSION_WITH_RENEW and request.is_renew_ack
    for topic in request.topics:
        for part in topic.partitions:
            key = (topic.topic_id, part.partition_index)
            acknowledging.take(call, key, part.acknowledgement_batches, renews=renews)
    if epoch == FINAL_EPOCH:
        broker.shared.sessions.end(session)
    lock_ms = broker.groups.share_settings(group).record_lock_ms

    def attempt(expired: bool) -> ShareAcknowledgeResponse | None:
        if expired:
            acknowledging.give_up()
        if acknowledging.left:
            return None
        return answer(broker, acknowledging, lock_ms, listener)

    listener = call.session.listener
    ready = attempt(expired=False)
    if ready is not None:
        return ready
    return WaitingRequest(
        attempt, deadline_ms=wait_deadline_ms(broker), hangs_on=[acknowledging], mutes=True
    )


def answer(
    broker: Broker, acknowledging: Acknowledging, lock_ms: int, listener: str
) -> ShareAcknowledgeResponse:
    response = ShareAcknowledgeResponse(acquisition_lock_timeout_ms=lock_ms)
    told = ToldLeaders(broker, listener)
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    for (topic_id, index), refused in acknowledging.refusals.items():
        if topic_id not in topics:
            topics[topic_id] = ShareAcknowledgeTopicResponse(topic_id)
        found = PartitionData(index)
        if refused is not None:
            found.error_code = refused.code
            found.error_message = refused.message
            hint = told.leader_of((topic_id, index), refused.code)
            if hint is not None:
                found.current_leader = LeaderIdAndEpoch(*hint)
        topics[topic_id].partitions.append(found)
    response.responses = list(topics.values())
    response.node_endpoints = [NodeEndpoint(*each) for each in told.endpoints()]
    return response


API = Api(messages=messages, handle=handle, versions=range(1, 3))
