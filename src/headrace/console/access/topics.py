"""Questions about topics: the list a page at a time, one topic, and changing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.client.admin.group_lags import GroupLag
from headrace.client.admin.placement.log_folders import Sizes, sizes_by_partition
from headrace.client.admin.setting_words import words_of_topic_settings
from headrace.client.admin.topics import (
    BROKER_DECIDES,
    Setting,
    TopicDescription,
    Topics,
    TopicSummary,
)
from headrace.client.connection import ClientSettings
from headrace.client.delay.delayed_topics import DelayedTopics
from headrace.client.errors import ClientError
from headrace.console.access.held_connection import HeldClientSettings
from headrace.console.access.parts import Part, part
from headrace.operations.group_lags import Looked, groups_of_topic
from headrace.operations.topics import grouped
from headrace.wire.contract.companions import with_companions

Spans = dict[str, dict[int, tuple[int, int]]]

ON_ONE_PAGE = 25
# A broker that does not answer leaves a page without sizes, not without an end.
PATIENCE_S = 2.0


@dataclass(slots=True)
class TopicList:
    """One page of the topics that match."""

    topics: list[TopicSummary] = field(default_factory=list)
    companions: dict[str, list[str]] = field(default_factory=dict)  # ends of names, by topic
    spans: Spans = field(default_factory=dict)
    sizes: Sizes = field(default_factory=dict)
    matching: int = 0
    there: int = 0  # the user's topics, or all topics
    hidden: int = 0  # topics of the cluster, of services, and companions


def list_topics(
    connection: HeldClientSettings, contains: str, everything: bool, page: int
) -> TopicList:
    topics = Topics(connection)
    found = topics.all()
    peoples = grouped(found, internal=everything)
    own = found if everything else peoples.own
    matching = [each for each in own if contains.lower() in each.name.lower()]
    shown = matching[page * ON_ONE_PAGE : (page + 1) * ON_ONE_PAGE]
    names = [each.name for each in shown]
    partitions = {name: sorted(topics.cluster.topics[name].partitions) for name in names}
    return TopicList(
        shown,
        {name: peoples.companions.get(name, []) for name in names},
        topics.spans(names),
        sizes_by_partition(connection.hasty(PATIENCE_S), topics.broker_addresses(), partitions)
        if names
        else {},
        len(matching),
        len(own),
        len(found) - len(own),
    )


@dataclass(slots=True)
class TopicFacts:
    topic: TopicDescription
    sizes: Sizes
    companions: list[str]  # whole names
    is_delayed: bool
    readers: Part[Looked]


def one_topic(
    connection: HeldClientSettings, name: str, sampled: Mapping[str, GroupLag] | None = None
) -> TopicFacts:
    topics = Topics(connection)
    [found] = topics.describe([name])
    places = {name: [each.partition for each in found.partitions]}
    ends = with_companions(topics.cluster.topics).get(name, [])
    return TopicFacts(
        found,
        sizes_by_partition(connection.hasty(PATIENCE_S), topics.broker_addresses(), places),
        [name + end for end in ends],
        ".delay" in ends,
        part(lambda: groups_of_topic(connection, name, sampled)),
    )


def settings_of(connection: ClientSettings, name: str) -> tuple[dict[str, Setting], dict[str, str]]:
    """Returns the values, and the cluster's own description of each; older clusters send none."""
    topics = Topics(connection)
    settings = topics.settings_of(name)
    try:
        said = words_of_topic_settings(connection, topics.broker_addresses()[0], name)
    except ClientError:
        said = {}
    return settings, said


def create_topic(
    connection: ClientSettings,
    name: str,
    partitions: int | None,
    settings: Mapping[str, str],
    delayed: bool,
) -> None:
    Topics(connection).create(name, partitions=partitions or BROKER_DECIDES, settings=settings)
    if delayed:
        DelayedTopics(connection).enable(name, is_new=True)


def change_settings(
    connection: ClientSettings, name: str, to: Mapping[str, str], remove: list[str]
) -> None:
    Topics(connection).change_settings(name, to=to, remove=remove)


def grow_topic(connection: ClientSettings, name: str, partitions: int) -> None:
    Topics(connection).grow(name, partitions=partitions)


def empty_topic(connection: ClientSettings, name: str) -> int:
    """Deletes all records that are there now. Returns how many offsets that were."""
    return Topics(connection).empty(name)


def delete_topic(connection: ClientSettings, name: str) -> list[str]:
    """Deletes the topic. Returns its companions that are left."""
    return Topics(connection).delete(name)
