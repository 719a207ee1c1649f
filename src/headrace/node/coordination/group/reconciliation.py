"""Moves one member from its present to its target assignment: one step per heartbeat.

Pure: a member, its target and the owners of partitions in; the member after the step out.
Partitions that it has to revoke come first, and its epoch stays until it has revoked them; then it
gets the free partitions of its target; those that others still hold are left for later steps. This
is KIP-848's member state machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from headrace.node.coordination.group.assignors import Assignment
from headrace.node.coordination.group.consumer_group import ConsumerMember, Epochs, MemberState
from headrace.wire.protocol.errors import ErrorCode, KafkaError

IsFree = Callable[[tuple[bytes, int]], bool]
Key = TypeVar("Key", bytes, str)  # a topic's id, or the name of a subtopology
Parts = Mapping[Key, frozenset[int]]


def next_step(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_free: IsFree,
    *,
    reads_less: bool = False,
) -> ConsumerMember:
    """`owned` is what the member reports to have; None: it did not report. `reads_less`: the member
    reads other topics than when its target of this epoch was computed, and there is no new target
    yet."""
    if member.has_reached(target_epoch) and not reads_less:
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_has(owned, member.revoking):
        return _give_up_too(member, target) if reads_less else member
    if member.state is not MemberState.UNKNOWN:
        return _towards(member, member.epoch, target_epoch, target, owned, is_free)
    if owned is None or owned:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. "
            "The member must abandon all its partitions and rejoin.",
        )
    return _towards(member, target_epoch, target_epoch, target, owned, is_free)


def _towards(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_free: IsFree,
) -> ConsumerMember:
    keeps, gives_up, gets, must_wait = difference(member.assigned, target, is_free)
    if gives_up and _still_has(owned, gives_up):
        return _stepped(member, MemberState.UNREVOKED_PARTITIONS, epoch, keeps, gives_up)
    has_now = {topic: keeps.get(topic, frozenset()) | gets.get(topic, frozenset())
               for topic in {**keeps, **gets}}  # fmt: skip
    state = MemberState.UNRELEASED_PARTITIONS if must_wait else MemberState.STABLE
    return _stepped(member, state, target_epoch, has_now, {})


def difference(
    has: Parts[Key], wanted: Parts[Key], is_free: Callable[[tuple[Key, int]], bool]
) -> tuple[Parts[Key], Parts[Key], Parts[Key], bool]:
    """Returns what is kept, given up and gained, and whether something wanted is not free."""
    keeps: dict[Key, frozenset[int]] = {}
    gives_up: dict[Key, frozenset[int]] = {}
    gets: dict[Key, frozenset[int]] = {}
    must_wait = False
    for key in {**wanted, **has}:
        here, there = has.get(key, frozenset[int]()), wanted.get(key, frozenset[int]())
        new = there - here
        free = frozenset(index for index in new if is_free((key, index)))
        must_wait = must_wait or free != new
        for parts, found in ((keeps, here & there), (gives_up, here - there), (gets, free)):
            if found:
                parts[key] = found
    return keeps, gives_up, gets, must_wait


def _give_up_too(member: ConsumerMember, target: Assignment) -> ConsumerMember:
    """It has to revoke some partitions already, and now whole topics as well."""
    keeps = {topic: found for topic, found in member.assigned.items() if topic in target}
    revoking = {**member.revoking}
    for topic, found in member.assigned.items():
        if topic not in target:
            revoking[topic] = found | revoking.get(topic, frozenset())
    return _stepped(member, member.state, member.epoch, keeps, revoking)


def _stepped(
    member: ConsumerMember,
    state: MemberState,
    epoch: int,
    assigned: Assignment,
    revoking: Assignment,
) -> ConsumerMember:
    previous = member.epoch if epoch != member.epoch else member.previous_epoch
    return member.copy(
        state=state,
        epoch=epoch,
        previous_epoch=previous,
        assigned=assigned,
        revoking=revoking,
        since=_since(member, epoch, assigned, revoking),
    )


def _since(
    member: ConsumerMember, epoch: int, assigned: Assignment, revoking: Assignment
) -> Epochs:
    """A partition that a member keeps or has to revoke keeps its epoch; a new one has the epoch in
    which the member gets it."""
    found: dict[bytes, dict[int, int]] = {}
    for topic, indexes in assigned.items():
        had, known = member.assigned.get(topic, frozenset()), member.since.get(topic, {})
        found[topic] = {index: known[index] if index in had else epoch for index in indexes}
    for topic, indexes in revoking.items():
        known = member.since[topic]
        found.setdefault(topic, {}).update((index, known[index]) for index in indexes)
    return found


def _still_has(owned: Assignment | None, given_up: Assignment) -> bool:
    """A member that does not report its partitions is assumed to have all of them still."""
    if owned is None:
        return True
    return any(owned.get(topic, frozenset()) & found for topic, found in given_up.items())
