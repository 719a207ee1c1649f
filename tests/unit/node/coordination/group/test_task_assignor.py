"""The sticky assignor of tasks: even, sticky, and standbys in other processes."""

import pytest

from headrace.node.coordination.group.streams import task_assignor
from headrace.node.coordination.group.streams.internal_topics import ConfiguredSubtopology
from headrace.node.coordination.group.streams.task_assignor import TaskMember, assign_tasks
from headrace.node.coordination.group.streams.tasks import NOTHING, Tasks, ids_of

STATEFUL = {
    "0": ConfiguredSubtopology(4, ("lines",), False),
    "1": ConfiguredSubtopology(4, ("words",), True),
}


def members(**processes: str) -> dict[str, TaskMember]:
    return {member: TaskMember(process, NOTHING) for member, process in processes.items()}


def go_on(given: dict[str, Tasks], **processes: str) -> dict[str, TaskMember]:
    return {
        member: TaskMember(process, given.get(member, NOTHING))
        for member, process in processes.items()
    }


def active(given: dict[str, Tasks]) -> dict[str, int]:
    return {member: len(list(ids_of(tasks.active))) for member, tasks in given.items()}


def test_every_task_is_active_once_and_the_load_is_even() -> None:
    given = assign_tasks(members(a="p", b="p", c="q"), STATEFUL, 0)
    tasks = [task for one in given.values() for task in ids_of(one.active)]
    assert sorted(tasks) == [(name, n) for name in "01" for n in range(4)]
    assert sorted(active(given).values()) == [2, 3, 3]
    assert all(one.standby == {} for one in given.values())


def test_a_new_member_gets_its_part_and_the_others_keep_the_rest() -> None:
    before = assign_tasks(members(a="p", b="q"), STATEFUL, 0)
    after = assign_tasks(go_on(before, a="p", b="q", c="r"), STATEFUL, 0)
    assert sorted(active(after).values()) == [2, 3, 3]
    for member in ("a", "b"):
        assert set(ids_of(after[member].active)) <= set(ids_of(before[member].active))


def test_tasks_of_a_member_that_left_go_to_their_standbys() -> None:
    before = assign_tasks(members(a="p", b="q"), STATEFUL, 1)
    for mine, other in (("a", "b"), ("b", "a")):
        stateful = {task for task in ids_of(before[mine].active) if task[0] == "1"}
        assert set(ids_of(before[other].standby)) == stateful
    after = assign_tasks(go_on(before, a="p", c="r"), STATEFUL, 1)
    was_standby = set(ids_of(before["a"].standby))
    got = set(ids_of(after["a"].active)) - set(ids_of(before["a"].active))
    assert got <= was_standby


def test_no_process_has_a_task_twice() -> None:
    alone = assign_tasks(members(a="p", b="p"), STATEFUL, 1)
    assert all(one.standby == {} for one in alone.values()), "there is no other process"
    given = assign_tasks(members(a="p", b="p", c="q", d="r"), STATEFUL, 2)
    for process in (("a", "b"), ("c",), ("d",)):
        tasks = [task for m in process for part in given[m] for task in ids_of(part)]
        assert len(tasks) == len(set(tasks))
    copies = [task for one in given.values() for task in ids_of(one.standby)]
    assert sorted(copies) == sorted([("1", n) for n in range(4)] * 2)


def test_nothing_changes_when_nothing_has_changed() -> None:
    who = {"a": "p", "b": "q", "c": "r"}
    before = assign_tasks(members(**who), STATEFUL, 1)
    assert assign_tasks(go_on(before, **who), STATEFUL, 1) == before


def test_a_group_without_members_has_no_targets() -> None:
    assert assign_tasks({}, STATEFUL, 1) == {}


def test_fewer_standbys_are_assigned_if_there_would_be_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_assignor, "MOST_TASKS", 13)
    given = assign_tasks(members(a="p", b="q", c="r"), STATEFUL, 2)
    assert sum(len(list(ids_of(one.standby))) for one in given.values()) == 4
