"""The topology of a streams application, as its members send it and as the group's record has it.

It is kept in the form of the record. Checks that a topology is well-formed: `topology_of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import streams_group_heartbeat as asked
from headrace.wire.protocol.messages.streams_group_topology_value import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)

Topology = StreamsGroupTopologyValue
# All of a topology is looked at in one step, when a member joins or the group's topics change.
MOST_SUBTOPOLOGIES = 1_000
# The ids are repeated in the records of members. A record that is too large for the log would be
# tried again for ever when an assignment is due, before the deadlines of other groups.
LONGEST_ID = 249
MOST_ELEMENTS = 10_000  # names of topics, positions in copartition groups, settings


def topology_of(request: asked.Topology) -> Topology:
    """Returns the topology of a request; raises KafkaError if it is not well-formed."""
    if request.epoch < 0:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, "Topology epoch must be non-negative."
        )
    topology = Topology(request.epoch, [_subtopology(one) for one in request.subtopologies])
    if len({one.subtopology_id for one in topology.subtopologies}) < len(topology.subtopologies):
        raise invalid("Two subtopologies have the same id.")
    for subtopology in topology.subtopologies:
        _require_well_formed(subtopology)
    return topology


def require_small(request: asked.Topology) -> None:
    """Refuses a topology that would keep the other groups waiting. Call it before any other check
    of the topology."""
    count = len(request.subtopologies)
    if count > MOST_SUBTOPOLOGIES:
        raise invalid(f"{count} subtopologies; at most {MOST_SUBTOPOLOGIES} are taken.")
    if any(len(one.subtopology_id) > LONGEST_ID for one in request.subtopologies):
        raise invalid(f"A subtopology has an id of more than {LONGEST_ID} characters.")
    count = sum(map(_elements, request.subtopologies))
    if count > MOST_ELEMENTS:
        raise invalid(
            f"The topology names {count} topics and settings; at most {MOST_ELEMENTS} are taken."
        )


def _elements(one: asked.Subtopology) -> int:
    topics = (*one.state_changelog_topics, *one.repartition_source_topics)
    groups = one.copartition_groups
    return (
        len(one.source_topics)
        + len(one.repartition_sink_topics)
        + sum(1 + len(topic.topic_configs) for topic in topics)
        + sum(1 + len(g.source_topics) + len(g.repartition_source_topics) for g in groups)
    )


def invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)


def _require_well_formed(subtopology: Subtopology) -> None:
    for topic in subtopology.state_changelog_topics:
        if topic.partitions:
            raise invalid(
                f"Changelog topic {topic.name} must have an undefined partition count, but it is "
                f"set to {topic.partitions}."
            )
    for topic in subtopology.repartition_source_topics:
        if topic.partitions < 0:
            raise invalid(f"Topic {topic.name} cannot have {topic.partitions} partitions.")
    if not subtopology.source_topics and not subtopology.repartition_source_topics:
        raise invalid(f"No source topics found for subtopology {subtopology.subtopology_id}")
    counts = len(subtopology.source_topics), len(subtopology.repartition_source_topics)
    for group in subtopology.copartition_groups:
        for positions, count in zip(
            (group.source_topics, group.repartition_source_topics), counts, strict=True
        ):
            if not all(0 <= position < count for position in positions):
                raise invalid(
                    f"A copartition group of subtopology {subtopology.subtopology_id} names a "
                    "topic that the subtopology does not have."
                )


def _subtopology(one: asked.Subtopology) -> Subtopology:
    return Subtopology(
        one.subtopology_id,
        one.source_topics,
        one.source_topic_regex,
        [_topic_info(topic) for topic in one.state_changelog_topics],
        one.repartition_sink_topics,
        [_topic_info(topic) for topic in one.repartition_source_topics],
        [
            CopartitionGroup(
                group.source_topics, group.source_topic_regex, group.repartition_source_topics
            )
            for group in one.copartition_groups
        ],
    )


def _topic_info(topic: asked.TopicInfo) -> TopicInfo:
    configs = [TopicConfig(config.key, config.value) for config in topic.topic_configs]
    return TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)


def by_id(topology: Topology) -> Mapping[str, Subtopology]:
    return {one.subtopology_id: one for one in topology.subtopologies}


def is_same(one: Topology, other: Topology) -> bool:
    """The order of the subtopologies does not matter."""
    return one.epoch == other.epoch and by_id(one) == by_id(other)


def source_names(subtopology: Subtopology) -> Iterator[str]:
    """Yields the topics whose records the subtopology processes."""
    yield from subtopology.source_topics
    for topic in subtopology.repartition_source_topics:
        yield topic.name


def subtopology_by_source(topology: Topology) -> Mapping[str, str]:
    """Returns the ids of subtopologies by the names of their source topics."""
    return {
        name: one.subtopology_id for one in topology.subtopologies for name in source_names(one)
    }


def required_names(topology: Topology) -> frozenset[str]:
    """Returns the topics that have to exist: sources, repartition topics and changelogs."""
    return frozenset(
        name
        for one in topology.subtopologies
        for name in (*source_names(one), *(topic.name for topic in one.state_changelog_topics))
    )


class NamesTopics(Protocol):
    """A topology in a request or in a description."""

    @property
    def subtopologies(self) -> Sequence[Any] | None: ...


def all_names(topology: NamesTopics) -> list[str]:
    """Returns all topics that the topology names, each once, in order."""
    names: dict[str, None] = {}
    for one in topology.subtopologies or ():
        for name in (
            *one.source_topics,
            *one.repartition_sink_topics,
            *(topic.name for topic in one.repartition_source_topics),
            *(topic.name for topic in one.state_changelog_topics),
        ):
            names[name] = None
    return list(names)
