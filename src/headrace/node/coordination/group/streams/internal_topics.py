"""Which internal topics a topology needs, and whether the topics that exist fit it.

The number of partitions of a repartition topic is that of the topology, or follows from the topics
that its writers read; topics of one copartition group have the same number. A changelog has as many
as its subtopology has tasks. Pure: a topology and an image in, a `Configured` out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from heapq import heappop, heappush
from typing import NamedTuple

from headrace.node.coordination.group.streams.topology import (
    Topology,
    invalid,
    required_names,
    source_names,
)
from headrace.node.metadata.image import MetadataImage
from headrace.wire.protocol.messages.streams_group_topology_value import Subtopology, TopicInfo

MOST_NAMES_SHOWN = 3
# All tasks of a group are assigned at once, so their number is limited.
MOST_TASKS = 10_000
AS_CONFIGURED = -1  # the replication factor of the broker's settings

Counts = dict[str, int]


class StatusCode(IntEnum):
    """What a member learns beside its tasks."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Status(NamedTuple):
    code: StatusCode
    detail: str


class InternalTopic(NamedTuple):
    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]


class ConfiguredSubtopology(NamedTuple):
    tasks: int
    sources: tuple[str, ...]  # all topics that it reads
    is_stateful: bool


class Configured(NamedTuple):
    """`problem` is None if tasks can be assigned."""

    subtopologies: Mapping[str, ConfiguredSubtopology]
    internal: Mapping[str, InternalTopic]
    missing: tuple[InternalTopic, ...]
    problem: Status | None


class _Misfit(Exception):
    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(code, detail)


def configure(topology: Topology, image: MetadataImage) -> Configured:
    """Raises KafkaError if the topology makes no sense with any topics."""
    try:
        return _configured(topology, image)
    except _Misfit as misfit:
        return Configured({}, {}, (), misfit.status)


def _configured(topology: Topology, image: MetadataImage) -> Configured:
    existing = {
        name: len(image.topics[name].partitions)
        for name in required_names(topology)
        if name in image.topics
    }
    sources = {name for one in topology.subtopologies for name in one.source_topics}
    absent = sorted(sources - existing.keys())
    if absent:
        raise _Misfit(
            StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {summary(absent)} are missing."
        )
    decided = _repartition_counts(topology, existing)

    def count_of(name: str) -> int:
        return existing[name] if name in existing else decided[name]

    is_fixed = {
        topic.name: bool(topic.partitions)
        for one in topology.subtopologies
        for topic in one.repartition_source_topics
    }
    for one in topology.subtopologies:
        for group in _copartition_groups(one):
            decided.update(_copartitioned(group, is_fixed, count_of))
    internal: dict[str, InternalTopic] = {}
    subtopologies: dict[str, ConfiguredSubtopology] = {}
    for one in sorted(topology.subtopologies, key=lambda each: each.subtopology_id):
        tasks = max(count_of(name) for name in source_names(one))
        for topic in one.repartition_source_topics:
            internal[topic.name] = _internal(topic, topic.partitions or decided[topic.name])
        for topic in one.state_changelog_topics:
            internal[topic.name] = _internal(topic, tasks)
        subtopologies[one.subtopology_id] = ConfiguredSubtopology(
            tasks, tuple(dict.fromkeys(source_names(one))), bool(one.state_changelog_topics)
        )
    for name in sorted(required_names(topology)):
        if name in internal and name in existing and existing[name] != internal[name].partitions:
            raise _Misfit(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected "
                f"{internal[name].partitions}, found {existing[name]}",
            )
    tasks = sum(one.tasks for one in subtopologies.values())
    if tasks > MOST_TASKS:
        raise _Misfit(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"The topology has {tasks} tasks, one for each partition of each subtopology; a group "
            f"can have {MOST_TASKS} at most",
        )
    missing = tuple(topic for name, topic in sorted(internal.items()) if name not in existing)
    problem = None
    if missing:
        names = summary([topic.name for topic in missing])
        problem = Status(
            StatusCode.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}"
        )
    return Configured(subtopologies, internal, missing, problem)


def _repartition_counts(topology: Topology, existing: Mapping[str, int]) -> Counts:
    """A repartition topic without a number of its own gets the largest number of the topics that
    its writers read; those may be repartition topics too, so this goes on until all are known."""
    decided: Counts = {
        topic.name: topic.partitions
        for one in topology.subtopologies
        for topic in one.repartition_source_topics
        if topic.partitions
    }
    readers: dict[str, list[int]] = {}
    for position, one in enumerate(topology.subtopologies):
        for topic in one.repartition_source_topics:
            readers.setdefault(topic.name, []).append(position)
    # The order is that of rounds over all subtopologies, as in Apache Kafka; but each subtopology
    # is visited only when it can decide, so a long chain costs no more than a short one per link.
    visits = [
        (1, position)
        for position, one in enumerate(topology.subtopologies)
        if one.source_topics or any(t.name in decided for t in one.repartition_source_topics)
    ]
    seen = {position for _, position in visits}
    while visits:
        round_, position = heappop(visits)
        one = topology.subtopologies[position]
        new = [name for name in one.repartition_sink_topics if name not in decided]
        if not new:
            continue
        read = [existing[name] for name in one.source_topics]
        read += [decided[t.name] for t in one.repartition_source_topics if t.name in decided]
        decided.update(dict.fromkeys(new, max(read)))
        for reader in (reader for name in new for reader in readers.get(name, ())):
            if reader not in seen:
                seen.add(reader)
                heappush(visits, (round_ + (reader <= position), reader))
    if any(name not in decided for one in topology.subtopologies
           for name in one.repartition_sink_topics):  # fmt: skip
        raise invalid(
            "Failed to compute number of partitions for all repartition topics. There may be "
            "loops in the topology that cannot be resolved."
        )
    for one in topology.subtopologies:
        if any(topic.name not in decided for topic in one.repartition_source_topics):
            raise invalid(
                "Failed to compute number of partitions for all repartition topics, because a "
                "repartition source topic is never used as a sink topic."
            )
    return decided


def _copartition_groups(one: Subtopology) -> Iterable[frozenset[str]]:
    for group in one.copartition_groups:
        names = [one.source_topics[position] for position in group.source_topics]
        names += [
            one.repartition_source_topics[position].name
            for position in group.repartition_source_topics
        ]
        if names:
            yield frozenset(names)


def _copartitioned(
    group: frozenset[str], is_fixed: Mapping[str, bool], count_of: Callable[[str], int]
) -> Counts:
    """Returns the numbers of partitions of the group's repartition topics: that of the topics that
    users made, else the fixed number of one of them, else the largest. `is_fixed` has all
    repartition topics of the topology."""
    counts = {name: count_of(name) for name in sorted(group)}
    of_users = {name: count for name, count in counts.items() if name not in is_fixed}
    fixed = {name: count for name, count in counts.items() if is_fixed.get(name)}
    deciding = of_users or fixed
    if len(set(deciding.values())) > 1:
        found = ", ".join(f"{name}={count}" for name, count in deciding.items())
        raise _Misfit(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{found}}}]",
        )
    wanted = max((deciding or counts).values())
    for name, count in fixed.items():
        if count != wanted:
            raise _Misfit(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{count}] of repartition topic [{name}] doesn't match "
                f"number of partitions [{wanted}] of the source topic.",
            )
    return {name: wanted for name in group if name in is_fixed}


def _internal(topic: TopicInfo, partitions: int) -> InternalTopic:
    settings = {config.key: config.value for config in topic.topic_configs}
    return InternalTopic(
        topic.name, partitions, topic.replication_factor or AS_CONFIGURED, settings
    )


def summary(names: list[str]) -> str:
    """Returns the first names, and how many more there are."""
    shown = ", ".join(names[:MOST_NAMES_SHOWN])
    more = len(names) - MOST_NAMES_SHOWN
    return f"{shown} and {more} additional topics" if more > 0 else shown
