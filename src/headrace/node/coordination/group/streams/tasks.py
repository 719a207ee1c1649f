"""Tasks of a streams group: a subtopology and one of its partitions.

A member has active tasks, which process records, and standby tasks, which keep a copy of the state.
Warm-up tasks are in the records and messages, and Apache Kafka 4.3 assigns none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

TaskSet = Mapping[str, frozenset[int]]  # subtopology -> partitions; no empty sets
NO_TASKS: TaskSet = {}
TaskId = tuple[str, int]


class Tasks(NamedTuple):
    active: TaskSet = NO_TASKS
    standby: TaskSet = NO_TASKS
    warmup: TaskSet = NO_TASKS

    def has_any_of(self, other: Tasks) -> bool:
        return any(
            found & mine.get(subtopology, frozenset())
            for mine, theirs in zip(self, other, strict=True)
            for subtopology, found in theirs.items()
        )

    def is_within(self, other: Tasks) -> bool:
        return all(
            found <= theirs.get(subtopology, frozenset())
            for mine, theirs in zip(self, other, strict=True)
            for subtopology, found in mine.items()
        )


NOTHING = Tasks()


def task_set(parts: Iterable[Any]) -> TaskSet:
    """Returns the tasks of a list in a message or a record."""
    return {part.subtopology_id: frozenset(part.partitions) for part in parts if part.partitions}


def ids_of(tasks: TaskSet) -> Iterator[TaskId]:
    for subtopology, partitions in tasks.items():
        for partition in partitions:
            yield subtopology, partition


def by_subtopology(ids: Iterable[TaskId]) -> TaskSet:
    found: dict[str, set[int]] = {}
    for subtopology, partition in ids:
        found.setdefault(subtopology, set()).add(partition)
    return {subtopology: frozenset(partitions) for subtopology, partitions in found.items()}
