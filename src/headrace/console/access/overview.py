"""The cluster at a glance, each part by itself: a part that fails does not hide the rest."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client.admin.cluster import Cluster, ClusterDescription
from headrace.client.admin.groups import GroupSummary
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.console.access.delay_service import running_service
from headrace.console.access.delayed import readable
from headrace.console.access.held_connection import HeldClientSettings
from headrace.console.access.parts import Part
from headrace.operations.delayed import report_of
from headrace.operations.group_lags import Looked
from headrace.operations.replicas import replica_facts
from headrace.operations.topics import grouped
from headrace.wire.contract.companions import DEAD_SUFFIX
from headrace.wire.contract.delay_topics import REGISTRY

MOST_DEAD_TOPICS = 200
DUE_SHOWN = 5
# A sample of rates asks for the end of each partition; beyond this only the first topics are.
MOST_PARTITIONS_SAMPLED = 2_000


@dataclass(slots=True)
class TopicCounts:
    topics: int  # of people's own
    partitions: int
    under_replicated: int
    without_leader: int
    dead: dict[str, int]  # records in dead-letter topics, also those already resent or discarded
    dead_topics_left_out: int


@dataclass(slots=True)
class Pending:
    """The waiting delayed messages."""

    waiting: int
    due_next_minute: int
    soonest: list[dict[str, object]]
    now_ms: int


@dataclass(slots=True)
class OverviewFacts:
    cluster: Part[ClusterDescription]
    topics: Part[TopicCounts]
    groups: Part[tuple[list[GroupSummary], Looked]]
    delayed: Part[Pending | None]  # None: no topic takes delayed messages


def cluster(connection: ClientSettings) -> ClusterDescription:
    return Cluster(connection).describe()


def topic_counts(connection: ClientSettings) -> TopicCounts:
    topics = Topics(connection)
    found = topics.all()
    replicas = replica_facts(topics)
    dead = [each.name for each in found if each.name.endswith(DEAD_SUFFIX)]
    spans = topics.spans(dead[:MOST_DEAD_TOPICS])
    return TopicCounts(
        len(grouped(found).own),
        replicas.partitions,
        replicas.under_replicated,
        replicas.without_leader,
        {name: sum(end - first for first, end in spans.get(name, {}).values()) for name in dead},
        max(len(dead) - MOST_DEAD_TOPICS, 0),
    )


def pending(connection: HeldClientSettings) -> Pending | None:
    if REGISTRY not in Topics(connection).cluster.topics:
        return None
    instances = running_service(connection)
    report = report_of(instances.stats())
    page = instances.pending(limit=DUE_SHOWN)
    allowed = set(readable(connection, [each.topic for each in report.topics]))
    topics = report.of(allowed)
    return Pending(
        sum(each.pending for each in topics),
        sum(each.due_next_minute for each in topics),
        [row for row in page.rows if row["topic"] in allowed],
        page.now_ms,
    )


def ends_of_topics(connection: ClientSettings) -> dict[str, int]:
    """Returns how many records topics have had, summed over their partitions; two samples give a
    rate."""
    topics = Topics(connection)
    chosen, partitions = [], 0
    for each in topics.all():
        partitions += each.partitions
        if each.internal:
            continue
        if partitions > MOST_PARTITIONS_SAMPLED:
            break
        chosen.append(each.name)
    return topics.written(chosen)
