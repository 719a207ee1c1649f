"""Moves a member of a streams group from its present to its target tasks: one step per heartbeat.

Pure: a member, its target and the tasks that processes have in; the member after the step out. Like
`reconciliation.py` for partitions: first it gives up, and keeps its epoch until it has; then it
gets what is free. An active task is free if no member has it and its own process has no copy of it;
a standby task, if its own process does not have the task in any form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain

from headrace.node.coordination.group.reconciliation import difference
from headrace.node.coordination.group.streams.streams_group import StreamsMember, TaskMemberState
from headrace.node.coordination.group.streams.tasks import (
    NOTHING,
    TaskId,
    Tasks,
    TaskSet,
    ids_of,
)
from headrace.wire.protocol.errors import ErrorCode, KafkaError

IsFree = Callable[[TaskId], bool]


class Holders:
    """Which tasks the members have now, or are giving up."""

    __slots__ = ("_active", "_by_process")

    def __init__(self, members: Iterable[StreamsMember]) -> None:
        self._active: set[TaskId] = set()
        self._by_process: dict[str, set[TaskId]] = {}
        for member in members:
            of_process = self._by_process.setdefault(member.process_id, set())
            for tasks in (member.assigned, member.revoking):
                self._active.update(ids_of(tasks.active))
                of_process.update(chain.from_iterable(map(ids_of, tasks)))

    def checks_for(self, process_id: str) -> tuple[IsFree, IsFree, IsFree]:
        """Returns what decides whether a task is free: as active, standby and warm-up task."""
        here = self._by_process.get(process_id, set())

        def as_active(task: TaskId) -> bool:
            return task not in self._active and task not in here

        def as_copy(task: TaskId) -> bool:
            return task not in here

        return as_active, as_copy, as_copy


def next_step(
    member: StreamsMember,
    target_epoch: int,
    target: Tasks,
    owned: Tasks | None,
    members: Mapping[str, StreamsMember],
) -> StreamsMember:
    """`owned` is what the member reports to have; None: it did not report. `members` are those of
    the group as recorded."""
    if member.has_reached(target_epoch):
        return member
    epoch = member.epoch
    if member.state is TaskMemberState.UNREVOKED_TASKS:
        if owned is None or owned.has_any_of(member.revoking):
            return member
        epoch += 1
    elif member.state is TaskMemberState.UNKNOWN:
        if owned is None or owned != NOTHING:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The streams group member is in a unknown state. "
                "The member must abandon all its tasks and rejoin.",
            )
        epoch = target_epoch
    return _towards(member, epoch, target_epoch, target, owned, Holders(members.values()))


def _towards(
    member: StreamsMember,
    epoch: int,
    target_epoch: int,
    target: Tasks,
    owned: Tasks | None,
    holders: Holders,
) -> StreamsMember:
    kept: list[TaskSet] = []
    given_up: list[TaskSet] = []
    got: list[TaskSet] = []
    must_wait = False
    checks = holders.checks_for(member.process_id)
    for has, wanted, is_free in zip(member.assigned, target, checks, strict=True):
        keeps, gives_up, gets, waits = difference(has, wanted, is_free)
        must_wait = must_wait or waits
        kept.append(keeps)
        given_up.append(gives_up)
        got.append(gets)
    revoking = Tasks(*given_up)
    if revoking != NOTHING and (owned is None or owned.has_any_of(revoking)):
        state = TaskMemberState.UNREVOKED_TASKS
        return _stepped(member, state, epoch, Tasks(*kept), revoking, target_epoch)
    assigned = Tasks(*(_both(keeps, gets) for keeps, gets in zip(kept, got, strict=True)))
    state = TaskMemberState.UNRELEASED_TASKS if must_wait else TaskMemberState.STABLE
    return _stepped(member, state, target_epoch, assigned, NOTHING, target_epoch)


def _stepped(
    member: StreamsMember,
    state: TaskMemberState,
    epoch: int,
    assigned: Tasks,
    revoking: Tasks,
    target_epoch: int,
) -> StreamsMember:
    """A task that the member keeps or gives up keeps its epoch; a new one has the target's."""
    tasks = (*ids_of(assigned.active), *ids_of(revoking.active))
    had = frozenset(ids_of(member.assigned.active))
    since = {task: member.since[task] if task in had else target_epoch for task in tasks}
    return member.copy(
        state=state,
        epoch=epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking=revoking,
        since=since,
    )


def _both(one: TaskSet, other: TaskSet) -> TaskSet:
    return {
        name: one.get(name, frozenset()) | other.get(name, frozenset()) for name in {**one, **other}
    }
