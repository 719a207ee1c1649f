"""OffsetDelete, v0: forget a group's place in partitions that it does not read (KIP-496)."""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.broker.groups import require_group_id
from headrace.coordination.group import offset_rules
from headrace.coordination.group.machine import GroupMachine
from headrace.coordination.shard import Decision
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import offset_delete as messages
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from headrace.serving.api import Api, Call, Parked


def handle(
    broker: Broker, request: OffsetDeleteRequest, call: Call
) -> OffsetDeleteResponse | Parked:
    require_group_id(request.group_id)
    answer: OffsetDeleteResponse | Parked = broker.groups.ask(
        request.group_id, call.now, delete, broker, request
    )
    return answer


def delete(machine: GroupMachine, broker: Broker, request: OffsetDeleteRequest) -> Decision:
    wanted = [
        (topic.name, part.partition_index) for topic in request.topics for part in topic.partitions
    ]
    known = [place for place in wanted if is_there(broker, *place)]
    records, refused = offset_rules.delete_offsets(machine, request.group_id, known)
    response = OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                topic.name,
                [
                    OffsetDeleteResponsePartition(
                        part.partition_index,
                        refused.get((topic.name, part.partition_index), ErrorCode.NONE)
                        if is_there(broker, topic.name, part.partition_index)
                        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    return Decision(records, response)


def is_there(broker: Broker, name: str, index: int) -> bool:
    topic = broker.image.topics.get(name)
    return topic is not None and 0 <= index < len(topic.partitions)


API = Api(messages=messages, handle=handle, versions=range(0, 1))
