"""Checks which member of a consumer group sends a request, and whether its epoch is current."""

from __future__ import annotations

from headrace.node.coordination.group.assignors import Assignment
from headrace.node.coordination.group.consumer_group import ConsumerGroup, ConsumerMember
from headrace.wire.protocol.errors import ErrorCode, KafkaError

JOINS = 0  # the epoch of a member that wants to join


def known_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    if instance_id is not None:
        if instance_id not in group.static:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if group.static[instance_id] != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{group.static[instance_id]}.",
            )
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member_id} is not a member of group {group.id}.",
        )
    return member


def require_epoch(member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
    """Refuses a wrong epoch. A member may be one answer behind, if it has nothing beyond its
    assignment."""
    if epoch == member.epoch:
        return
    if epoch < member.epoch and epoch == member.previous_epoch and _within(owned, member.assigned):
        return
    size = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def _within(owned: Assignment | None, assigned: Assignment) -> bool:
    if owned is None:
        return False
    return all(found <= assigned.get(topic, frozenset()) for topic, found in owned.items())
