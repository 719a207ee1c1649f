"""OffsetDelete, v0: forget a group's place in partitions that it does not read (KIP-496).

Needs DELETE on the group and READ on each topic.
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.groups import require_group_id
from headrace.node.coordination.group import offset_rules
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.coordination.shard import Decision
from headrace.node.serving.api import Api, Call, WaitingRequest, require_few_partitions
from headrace.node.serving.rights import GROUP, TOPIC, may, require
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import offset_delete as messages
from headrace.wire.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(
    broker: Broker, request: OffsetDeleteRequest, call: Call
) -> OffsetDeleteResponse | WaitingRequest:
    require_few_partitions(messages.NAME, sum(len(topic.partitions) for topic in request.topics))
    require(broker, call, Operation.DELETE, GROUP, request.group_id)
    require_group_id(request.group_id)
    denied = {
        topic.name
        for topic in request.topics
        if not may(broker, call, Operation.READ, TOPIC, topic.name)
    }
    answer: OffsetDeleteResponse | WaitingRequest = broker.groups.ask(
        request.group_id, call.now, delete, broker, request, denied
    )
    return answer


def delete(
    machine: GroupMachine, broker: Broker, request: OffsetDeleteRequest, denied: set[str]
) -> Decision:
    faults = {
        (topic.name, part.partition_index): fault_of(
            broker, topic.name, part.partition_index, denied
        )
        for topic in request.topics
        for part in topic.partitions
    }
    known = [place for place, fault in faults.items() if not fault]
    records, refused = offset_rules.delete_offsets(machine, request.group_id, known)
    faults.update(refused)
    response = OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                topic.name,
                [
                    OffsetDeleteResponsePartition(
                        part.partition_index, faults[topic.name, part.partition_index]
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    return Decision(records, response)


def fault_of(broker: Broker, name: str, index: int, denied: set[str]) -> ErrorCode:
    if name in denied:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = broker.image.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


API = Api(messages=messages, handle=handle, versions=range(0, 1))
