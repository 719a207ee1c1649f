"""The topics of a pipeline before it runs: the source must exist, others are created.

The topic of dead letters is created for records as large as those of the source. Kafka's default
counts where the user may not see a topic's settings.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError, NoSuchTopic
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows import letter_size


@dataclass(slots=True)
class PreparedTopics:
    sources: dict[str, list[int]]  # the topics that are read, and their partitions
    letter_bytes: int = letter_size.DEFAULT_BYTES  # what the topic of dead letters takes


def prepare(
    connection: ClientSettings, pipeline: Pipeline, *, dead_letters: bool
) -> PreparedTopics:
    """Creates the topics of the sink and, with `dead_letters`, the one for them."""
    try:
        topics = Topics(connection)
        there = {name: sorted(one.partitions) for name, one in topics.cluster.topics.items()}
        found = PreparedTopics({})
        if (source := pipeline.topic) is not None:
            found.sources = {name: there[name] for name in there if source.matches(name)}
            if not found.sources:
                which = "that matches " if source.pattern else ""
                raise NoSuchTopic(f"There is no topic {which}{source.name}.")
        for name in pipeline.sink.topics_to_make:
            if name not in there:
                topics.create(name)
        if dead_letters:
            found.letter_bytes = _largest_letter(topics, pipeline.dead_topic, found.sources)
        return found
    except ClientError as failure:
        raise PipelineError(str(failure)) from failure


def _largest_letter(topics: Topics, dead: str, sources: Iterable[str]) -> int:
    """How large a letter may be, in bytes; creates their topic if it is missing."""

    def limit(name: str) -> int:
        settings = topics.settings_of(name) if topics.may_see_settings(name) else {}
        return letter_size.limit_of({key: one.value for key, one in settings.items()})

    if dead in topics.cluster.topics:
        return limit(dead)
    # A letter has a few headers more than its record.
    largest = max((limit(name) for name in sources), default=letter_size.DEFAULT_BYTES)
    more = largest + letter_size.HEADERS_BYTES
    larger = largest > letter_size.DEFAULT_BYTES
    topics.create(dead, settings={letter_size.SETTING: str(more)} if larger else {})
    return more if larger else limit(dead)
