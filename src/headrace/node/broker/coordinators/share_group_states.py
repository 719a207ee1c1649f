"""Requests of a share group's coordinator to the share coordinators: initialize, delete, read.

A state begins for partitions that members read (`GroupCoordinator` calls `begin_states` after the
heartbeat that found them), or when an administrator sets offsets. It ends with the group or when an
administrator deletes offsets. The group's own records say what is under way, so that a broker that
takes over, or a client that asks again, repeats what may not have been done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.node.broker.coordinators.replies import answered_once, ask_each, go_on_without_client
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.coordination.group.share import NO_OFFSET, Initialization
from headrace.node.coordination.group.share_group import SharedTopic
from headrace.node.coordination.shard import Decision
from headrace.node.coordination.share.state_key import SharePartitionKey
from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.chain import chain
from headrace.wire.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.node.broker.broker import Broker


def begin_states(broker: Broker, initialization: Initialization) -> None:
    """Request the states of a group's new partitions, and record the outcome."""
    group_id, state_epoch, topics = initialization
    keys = [
        SharePartitionKey(group_id, topic_id, index)
        for topic_id, topic in topics.items()
        for index in sorted(topic.partitions)
    ]
    asked = ask_each(
        broker,
        keys,
        lambda key, reply: broker.share_states.initialize(key, state_epoch, NO_OFFSET, reply),
    )

    def record(results: Any) -> Any | WaitingRequest:
        succeeded = all(key in results and not results[key].error_code for key in keys)
        return broker.groups.ask(group_id, broker.now, initialized, initialization, succeeded)

    try:
        go_on_without_client(broker.purgatory, chain(broker.purgatory, asked, record))
    except KafkaError:
        return  # another broker coordinates the group now, and requests them itself


def initialized(machine: GroupMachine, initialization: Initialization, succeeded: bool) -> Decision:
    return machine.share.initialized(initialization, succeeded)


def delete_share_group(broker: Broker, group_id: str) -> Any | WaitingRequest:
    """Returns True when the group is deleted, after the states of its partitions. Raises KafkaError
    if one of them cannot be deleted; the group stays then."""

    def delete_states(keys: list[SharePartitionKey]) -> Any | WaitingRequest:
        return chain(
            broker.purgatory, ask_each(broker, keys, broker.share_states.delete), delete_group
        )

    def delete_group(results: Any) -> Any | WaitingRequest:
        require_all(results)
        return broker.groups.ask(group_id, broker.now, end_deletion, group_id)

    begun = broker.groups.ask(group_id, broker.now, begin_deletion, group_id)
    return answered_once(chain(broker.purgatory, begun, delete_states))


def begin_deletion(machine: GroupMachine, group_id: str) -> Decision:
    return machine.share.begin_deletion(group_id)


def end_deletion(machine: GroupMachine, group_id: str) -> Decision:
    return machine.share.delete(group_id)


def require_all(results: dict[SharePartitionKey, Any]) -> None:
    for result in results.values():
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code), result.error_message)


def topics_of(keys: dict[SharePartitionKey, str]) -> dict[bytes, SharedTopic]:
    """The partitions of keys by topic; the values are the names of the topics."""
    found: dict[bytes, SharedTopic] = {}
    for key, name in keys.items():
        had = found.get(key.topic_id, SharedTopic(name, frozenset()))
        found[key.topic_id] = had._replace(partitions=had.partitions | {key.partition})
    return found
