"""The sticky assignor of tasks: each member keeps what it has, as far as the load stays even.

A process (an application instance) has a member for each of its threads. A task and its standbys
are in different processes. Active tasks first: to the member that had it, to one that has its state
as a standby, else to the process with the least load. Then standbys, in the same way. Pure and
deterministic; the rules are those of Apache Kafka 4.3's `StickyTaskAssignor`, which breaks ties by
the order of hash tables and we by ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from headrace.node.coordination.group.streams.internal_topics import (
    MOST_TASKS,
    ConfiguredSubtopology,
)
from headrace.node.coordination.group.streams.tasks import TaskId, Tasks, by_subtopology, ids_of


class TaskMember(NamedTuple):
    process_id: str
    last: Tasks  # its last target


class _Process:
    __slots__ = ("id", "counts", "tasks")

    def __init__(self, process_id: str) -> None:
        self.id = process_id
        self.counts: dict[str, int] = {}  # member id -> its tasks
        self.tasks: set[TaskId] = set()

    @property
    def load(self) -> float:
        return len(self.tasks) / len(self.counts)

    def least_loaded(self) -> str:
        return min(self.counts, key=lambda member: (self.counts[member], member))


class _Quota:
    """How many tasks a member may get, rounded up, among those that still have room."""

    __slots__ = ("_tasks", "_members", "per_member")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self._compute()

    def _compute(self) -> None:
        self.per_member = -(-self._tasks // self._members) if self._members else 0

    def count(self, has: int) -> None:
        """A member has so many tasks now: if it is full, the others share the rest."""
        if has == self.per_member:
            self._members -= 1
            self._tasks -= has
            self._compute()


class _Assigning:
    def __init__(
        self,
        members: Mapping[str, TaskMember],
        subtopologies: Mapping[str, ConfiguredSubtopology],
        standbys: int,
    ) -> None:
        self.standbys = standbys
        self.active: dict[str, set[TaskId]] = {member: set() for member in members}
        self.standby: dict[str, set[TaskId]] = {member: set() for member in members}
        self.processes: dict[str, _Process] = {}
        self.process_of: dict[str, _Process] = {}
        self.had_active: dict[TaskId, str] = {}
        self.had_standby: dict[TaskId, list[str]] = {}
        for member_id, member in sorted(members.items()):
            process = self.processes.setdefault(member.process_id, _Process(member.process_id))
            process.counts[member_id] = 0
            self.process_of[member_id] = process
            for task in ids_of(member.last.active):
                self.had_active[task] = member_id
            for task in ids_of(member.last.standby):
                self.had_standby.setdefault(task, []).append(member_id)
        self.tasks = [(name, n) for name, one in subtopologies.items() for n in range(one.tasks)]
        self.stateful = [task for task in self.tasks if subtopologies[task[0]].is_stateful]
        self.active_quota = _Quota(len(self.tasks), len(members))
        self.quota = _Quota(len(self.tasks) + standbys * len(self.stateful), len(members))

    def give(self, member_id: str, task: TaskId, *, active: bool) -> None:
        process = self.process_of[member_id]
        process.tasks.add(task)
        process.counts[member_id] += 1
        (self.active if active else self.standby)[member_id].add(task)
        if active:
            self.active_quota.count(process.counts[member_id])
        self.quota.count(process.counts[member_id])

    def has_room(self, member_id: str, quota: _Quota) -> bool:
        return self.process_of[member_id].counts[member_id] < quota.per_member

    def assign_active(self) -> None:
        left = []
        for task in sorted(self.tasks, key=lambda task: (task[1], task[0])):
            member_id = self.had_active.get(task)
            if member_id is None or not self.has_room(member_id, self.active_quota):
                left.append(task)
            else:
                self.give(member_id, task, active=True)
        new = []
        for task in left:
            member_id = self.former_standby(task)
            if member_id is None or not self.has_room(member_id, self.active_quota):
                new.append(task)
            else:
                self.give(member_id, task, active=True)
        heap = self.by_load()
        for task in sorted(new):
            process = self.processes[heappop(heap)[1]]
            self.give(process.least_loaded(), task, active=True)
            heappush(heap, (process.load, process.id))

    def by_load(self) -> list[tuple[float, str]]:
        heap = [(process.load, process.id) for process in self.processes.values()]
        heapify(heap)
        return heap

    def former_standby(self, task: TaskId) -> str | None:
        """Returns the least loaded member that had the task as a standby and whose process does not
        have it now."""
        free = [
            member_id
            for member_id in self.had_standby.get(task, ())
            if task not in self.process_of[member_id].tasks
        ]
        return min(free, key=self.load_of, default=None)

    def load_of(self, member_id: str) -> tuple[float, int, str]:
        process = self.process_of[member_id]
        return process.load, process.counts[member_id], member_id

    def assign_standbys(self) -> None:
        left: list[tuple[TaskId, int]] = []
        for task in sorted(self.stateful, key=lambda task: (task[1], task[0]), reverse=True):
            for given in range(self.standbys):
                member_id = self.keeper_of_state(task)
                if member_id is None:
                    left.append((task, self.standbys - given))
                    break
                self.give(member_id, task, active=False)
        heap = self.by_load()
        for task, count in sorted(left, reverse=True):
            for _ in range(count):
                if not self.give_standby_to_least_loaded(heap, task):
                    break

    def keeper_of_state(self, task: TaskId) -> str | None:
        """Returns a member that has the state of the task, as its active task or as a standby, and
        has room."""
        was_active = self.had_active.get(task)
        if (
            was_active is not None
            and task not in self.process_of[was_active].tasks
            and self.has_room(was_active, self.quota)
        ):
            return was_active
        was_standby = self.former_standby(task)
        if was_standby is not None and self.has_room(was_standby, self.quota):
            return was_standby
        return None

    def give_standby_to_least_loaded(self, heap: list[tuple[float, str]], task: TaskId) -> bool:
        """Returns False if every process has the task already."""
        passed = []
        found = False
        while heap and not found:
            entry = heappop(heap)
            process = self.processes[entry[1]]
            if task in process.tasks:
                passed.append(entry)
                continue
            self.give(process.least_loaded(), task, active=False)
            passed.append((process.load, process.id))
            found = True
        for entry in passed:
            heappush(heap, entry)
        return found


def assign_tasks(
    members: Mapping[str, TaskMember],
    subtopologies: Mapping[str, ConfiguredSubtopology],
    standbys: int,
) -> dict[str, Tasks]:
    """Returns the target of each member. Standbys that no process is left for are not assigned, nor
    are those beyond MOST_TASKS."""
    if not members:
        return {}
    standbys = min(standbys, _affordable(subtopologies))
    state = _Assigning(members, subtopologies, standbys)
    state.assign_active()
    if standbys:
        state.assign_standbys()
    return {
        member_id: Tasks(
            by_subtopology(state.active[member_id]), by_subtopology(state.standby[member_id])
        )
        for member_id in members
    }


def _affordable(subtopologies: Mapping[str, ConfiguredSubtopology]) -> int:
    """Returns how many standbys each stateful task can have."""
    tasks = sum(one.tasks for one in subtopologies.values())
    stateful = sum(one.tasks for one in subtopologies.values() if one.is_stateful)
    return max(MOST_TASKS - tasks, 0) // max(stateful, 1)
