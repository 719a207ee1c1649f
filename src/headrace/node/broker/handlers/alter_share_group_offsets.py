"""AlterShareGroupOffsets, v0: a share group without members begins at other offsets.

The states of the partitions begin again with the new start offset; the group is made if it is not
there. Needs READ on the group and on each topic.
"""

from __future__ import annotations

from typing import Any

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.groups import require_group_id
from headrace.node.broker.coordinators.replies import ask_each
from headrace.node.broker.coordinators.share_group_states import initialized, topics_of
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.coordination.group.share import Initialization
from headrace.node.coordination.shard import Decision
from headrace.node.coordination.share.state_key import SharePartitionKey
from headrace.node.serving.api import Api, Call, WaitingRequest, require_few_partitions
from headrace.node.serving.chain import chain
from headrace.node.serving.rights import GROUP, TOPIC, may, require
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import alter_share_group_offsets as messages
from headrace.wire.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from headrace.wire.protocol.uuids import ZERO_ID

Part = AlterShareGroupOffsetsResponsePartition


def handle(
    broker: Broker, request: AlterShareGroupOffsetsRequest, call: Call
) -> AlterShareGroupOffsetsResponse | WaitingRequest:
    require_few_partitions(messages.NAME, sum(len(topic.partitions) for topic in request.topics))
    if not broker.share_groups_served:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    require(broker, call, Operation.READ, GROUP, request.group_id)
    require_group_id(request.group_id)
    offsets: dict[SharePartitionKey, int] = {}
    names: dict[SharePartitionKey, str] = {}
    response = AlterShareGroupOffsetsResponse()
    for topic in request.topics:
        found = broker.image.topics.get(topic.topic_name)
        topic_id = ZERO_ID if found is None else found.id
        allowed = may(broker, call, Operation.READ, TOPIC, topic.topic_name)
        parts = []
        for part in topic.partitions:
            code = ErrorCode.NONE
            if not allowed:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif found is None or not 0 <= part.partition_index < len(found.partitions):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                key = SharePartitionKey(request.group_id, topic_id, part.partition_index)
                offsets[key], names[key] = part.start_offset, topic.topic_name
            parts.append(_part(part.partition_index, code))
        response.responses.append(
            AlterShareGroupOffsetsResponseTopic(topic.topic_name, topic_id, parts)
        )
    answer: AlterShareGroupOffsetsResponse | WaitingRequest = alter(
        broker, request.group_id, offsets, names, response, call
    )
    return answer


def _part(index: int, code: ErrorCode) -> Part:
    return Part(index, code, code.description if code else None)


def alter(
    broker: Broker,
    group_id: str,
    offsets: dict[SharePartitionKey, int],
    names: dict[SharePartitionKey, str],
    response: AlterShareGroupOffsetsResponse,
    call: Call,
) -> Any | WaitingRequest:
    topics = topics_of(names)

    def begin_states(state_epoch: int) -> Any | WaitingRequest:
        asked = ask_each(
            broker,
            offsets,
            lambda key, reply: broker.share_states.initialize(
                key, state_epoch, offsets[key], reply
            ),
        )

        def record(results: dict[SharePartitionKey, Any]) -> Any | WaitingRequest:
            note_refusals(response, group_id, results)
            done = {
                key: name
                for key, name in names.items()
                if key in results and not results[key].error_code
            }
            initialization = Initialization(group_id, state_epoch, topics_of(done))
            recorded = broker.groups.ask(group_id, broker.now, initialized, initialization, True)
            return chain(broker.purgatory, recorded, lambda _: response)

        return chain(broker.purgatory, asked, record)

    epoch = broker.groups.ask(group_id, call.now, begin, group_id, topics)
    return chain(broker.purgatory, epoch, begin_states)


def begin(machine: GroupMachine, group_id: str, topics: Any) -> Decision:
    machine.require_share_name(group_id)
    return machine.share.alter(group_id, topics)


def note_refusals(
    response: AlterShareGroupOffsetsResponse,
    group_id: str,
    results: dict[SharePartitionKey, Any],
) -> None:
    for topic in response.responses:
        for part in topic.partitions:
            key = SharePartitionKey(group_id, topic.topic_id, part.partition_index)
            result = results.get(key)
            if part.error_code:
                continue
            if result is None:
                code = ErrorCode.REQUEST_TIMED_OUT
                part.error_code, part.error_message = code, code.description
            elif result.error_code:
                part.error_code, part.error_message = result.error_code, result.error_message


API = Api(messages=messages, handle=handle, versions=range(0, 1))
