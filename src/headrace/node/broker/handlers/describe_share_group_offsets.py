"""DescribeShareGroupOffsets, v0-1: where share groups are in their partitions.

The states are read from the share coordinators. If no topics are named, all those of which the
group has a state are described. v1 the lag: records that are not done, counted to the high
watermark. Needs DESCRIBE on each group and each topic; topics of a group that is described whole
are left out without it.
"""

from __future__ import annotations

from typing import Any

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.end_offsets import Place, end_offsets
from headrace.node.broker.coordinators.replies import ask_each
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.coordination.shard import Decision
from headrace.node.coordination.share.state_key import SharePartitionKey
from headrace.node.coordination.share.state_machine import NOT_KNOWN
from headrace.node.serving.api import Api, Call, WaitingRequest, require_few_partitions
from headrace.node.serving.chain import all_of, chain, or_refused
from headrace.node.serving.rights import GROUP, TOPIC, may, refusal, require
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import describe_share_group_offsets as messages
from headrace.wire.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from headrace.wire.protocol.uuids import ZERO_ID

Topic = DescribeShareGroupOffsetsResponseTopic
Part = DescribeShareGroupOffsetsResponsePartition
NO_EPOCH = 0
Wanted = dict[tuple[str, bytes], list[int]]  # topic's name and id -> partitions


def handle(
    broker: Broker, request: DescribeShareGroupOffsetsRequest, call: Call
) -> DescribeShareGroupOffsetsResponse | WaitingRequest:
    count = sum(len(topic.partitions) for group in request.groups for topic in group.topics or ())
    require_few_partitions(messages.NAME, count)
    groups = [describe_or_refuse(broker, group, call) for group in request.groups]
    answer: DescribeShareGroupOffsetsResponse | WaitingRequest = all_of(
        groups, lambda found: DescribeShareGroupOffsetsResponse(groups=found)
    )
    return answer


def describe_or_refuse(
    broker: Broker, group: DescribeShareGroupOffsetsRequestGroup, call: Call
) -> Any | WaitingRequest:
    def refused(
        code: ErrorCode, message: str | None = None
    ) -> DescribeShareGroupOffsetsResponseGroup:
        return DescribeShareGroupOffsetsResponseGroup(
            group.group_id, error_code=code, error_message=message or code.description
        )

    try:
        if not broker.share_groups_served:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        require(broker, call, Operation.DESCRIBE, GROUP, group.group_id)
        return or_refused(describe(broker, group, call), refused)
    except KafkaError as fault:
        return refused(fault.code, fault.message)


def describe(
    broker: Broker, group: DescribeShareGroupOffsetsRequestGroup, call: Call
) -> Any | WaitingRequest:
    if group.topics is None:
        known = broker.groups.read(group.group_id, call.now, look, group.group_id)

        def with_all(wanted: Wanted) -> Any | WaitingRequest:
            visible = {
                topic: parts
                for topic, parts in wanted.items()
                if may(broker, call, Operation.DESCRIBE, TOPIC, topic[0], quietly=True)
            }
            return read_states(broker, group.group_id, visible, [])

        return chain(broker.purgatory, known, with_all)
    wanted: Wanted = {}
    others: list[Topic] = []
    for topic in group.topics:
        found = broker.image.topics.get(topic.topic_name)
        if not may(broker, call, Operation.DESCRIBE, TOPIC, topic.topic_name):
            fault = refusal(TOPIC, Operation.DESCRIBE, topic.topic_name)
            parts = [
                Part(index, error_code=fault.code, error_message=fault.message)
                for index in topic.partitions
            ]
            others.append(Topic(topic.topic_name, ZERO_ID, parts))
        elif found is None:
            parts = [Part(index, NOT_KNOWN) for index in topic.partitions]
            others.append(Topic(topic.topic_name, ZERO_ID, parts))
        else:
            wanted[found.name, found.id] = list(dict.fromkeys(topic.partitions))
    return read_states(broker, group.group_id, wanted, others)


def look(machine: GroupMachine, group_id: str) -> Decision:
    """Returns the partitions of which the group has a state; an unknown group has none."""
    group = machine.share.groups.get(group_id)
    known = machine.share.image().topics_by_id
    wanted: Wanted = {}
    for topic_id, topic in {} if group is None else group.shared.initialized.items():
        if topic_id in known:
            wanted[known[topic_id].name, topic_id] = sorted(topic.partitions)
    return Decision(response=wanted)


def read_states(
    broker: Broker, group_id: str, wanted: Wanted, others: list[Topic]
) -> Any | WaitingRequest:
    keys = {
        SharePartitionKey(group_id, topic_id, index): (name, index)
        for (name, topic_id), parts in wanted.items()
        for index in parts
    }
    asked = ask_each(
        broker, keys, lambda key, reply: broker.share_states.summary(key, NO_EPOCH, reply)
    )

    def with_ends(states: dict[SharePartitionKey, Any]) -> Any | WaitingRequest:
        places = [place for key, place in keys.items() if _has_lag(states.get(key))]

        def finish(ends: dict[Place, int]) -> DescribeShareGroupOffsetsResponseGroup:
            topics = [
                Topic(
                    name,
                    topic_id,
                    [
                        _part(
                            index,
                            states.get(SharePartitionKey(group_id, topic_id, index)),
                            ends.get((name, index)),
                        )
                        for index in parts
                    ],
                )
                for (name, topic_id), parts in wanted.items()
            ]
            return DescribeShareGroupOffsetsResponseGroup(group_id, [*topics, *others])

        return chain(broker.purgatory, end_offsets(broker, places), finish)

    return chain(broker.purgatory, asked, with_ends)


def _has_lag(state: Any) -> bool:
    return (
        state is not None
        and not state.error_code
        and NOT_KNOWN not in (state.start_offset, state.delivery_complete_count)
    )


def _part(index: int, state: Any, end_offset: int | None) -> Part:
    if state is None or state.error_code:
        return Part(index, NOT_KNOWN)
    lag = -1
    if end_offset is not None and _has_lag(state):
        lag = max(end_offset - state.start_offset - state.delivery_complete_count, 0)
    return Part(index, state.start_offset, state.leader_epoch, lag)


API = Api(messages=messages, handle=handle, versions=range(0, 2))
