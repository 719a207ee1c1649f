"""DeleteShareGroupOffsets, v0: a share group without members forgets where it is in some topics.

When it reads them again it begins by `share.auto.offset.reset`. Needs DELETE on the group and READ
on each topic.
"""

from __future__ import annotations

from typing import Any

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.groups import require_group_id
from headrace.node.broker.coordinators.replies import ask_each
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.coordination.shard import Decision
from headrace.node.coordination.share.state_key import SharePartitionKey
from headrace.node.serving.api import Api, Call, WaitingRequest, require_few
from headrace.node.serving.chain import chain
from headrace.node.serving.rights import GROUP, TOPIC, may, require
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import delete_share_group_offsets as messages
from headrace.wire.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

Topic = DeleteShareGroupOffsetsResponseTopic
Keys = dict[bytes, list[SharePartitionKey]]  # by topic id
NOTHING_THERE = "There is no offset information to delete."


def handle(
    broker: Broker, request: DeleteShareGroupOffsetsRequest, call: Call
) -> DeleteShareGroupOffsetsResponse | WaitingRequest:
    require_few(messages.NAME, len(request.topics), "topics")
    if not broker.share_groups_served:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    require(broker, call, Operation.DELETE, GROUP, request.group_id)
    require_group_id(request.group_id)
    topics: dict[bytes, Topic] = {}
    response = DeleteShareGroupOffsetsResponse()
    for name in dict.fromkeys(topic.topic_name for topic in request.topics):
        found = broker.image.topics.get(name)
        result = Topic(name)
        response.responses.append(result)
        if not may(broker, call, Operation.READ, TOPIC, name):
            refuse(result, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif found is None:
            refuse(result, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            topics[found.id] = result
    group_id = request.group_id

    def delete_states(keys: Keys) -> Any | WaitingRequest:
        for topic_id, result in topics.items():
            if topic_id not in keys:
                refuse(result, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOTHING_THERE)
        every = [key for found in keys.values() for key in found]
        asked = ask_each(broker, every, broker.share_states.delete)

        def record(results: dict[SharePartitionKey, Any]) -> Any | WaitingRequest:
            for key in every:
                state = results.get(key)
                if state is None:
                    refuse(topics[key.topic_id], ErrorCode.REQUEST_TIMED_OUT)
                elif state.error_code:
                    refuse(topics[key.topic_id], ErrorCode(state.error_code))
            for topic_id in keys:
                topics[topic_id].topic_id = topic_id
            done = frozenset(topic_id for topic_id in keys if not topics[topic_id].error_code)
            if not done:
                return response
            recorded = broker.groups.ask(group_id, broker.now, end, group_id, done)
            return chain(broker.purgatory, recorded, lambda _: response)

        return chain(broker.purgatory, asked, record)

    begun = broker.groups.ask(group_id, call.now, begin, group_id, list(topics))
    answer: DeleteShareGroupOffsetsResponse | WaitingRequest = chain(
        broker.purgatory, begun, delete_states
    )
    return answer


def refuse(result: Topic, code: ErrorCode, message: str | None = None) -> None:
    result.error_code, result.error_message = code, message or code.description


def begin(machine: GroupMachine, group_id: str, topic_ids: list[bytes]) -> Decision:
    machine.require_share_name(group_id)
    return machine.share.begin_offset_deletion(group_id, topic_ids)


def end(machine: GroupMachine, group_id: str, topic_ids: frozenset[bytes]) -> Decision:
    return machine.share.end_offset_deletion(group_id, topic_ids)


API = Api(messages=messages, handle=handle, versions=range(0, 1))
