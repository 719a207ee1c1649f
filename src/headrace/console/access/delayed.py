"""Questions about delayed messages: what waits, a page at a time; cancel one, deliver one now."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.delay import pending_rows
from headrace.client.delay.delayed_topics import DelayedTopics
from headrace.client.delay.instances import DelayInstances, Page, first_of
from headrace.client.delay.schedules import When
from headrace.client.errors import ClientError
from headrace.client.lookup.record_pages import Browser
from headrace.client.producer.producer import Producer
from headrace.console.access.delay_service import running_service
from headrace.console.access.held_connection import HeldClientSettings
from headrace.console.access.parts import Part, part
from headrace.operations.delayed import (
    Lateness,
    RejectedMessage,
    rejected_message,
    report_of,
    waiting_message,
)
from headrace.wire.contract.delay_topics import rejected_of

ON_ONE_PAGE = 25
IN_THE_CHART = 1_000


@dataclass(slots=True)
class Waiting:
    topics: list[str]  # that take delayed messages
    page: Part[Page] = field(default_factory=lambda: Part(None))
    chart: list[int] = field(default_factory=list)  # due times of the first, in ms
    chart_is_whole: bool = True
    service: Part[Service] = field(default_factory=lambda: Part(None))


def what_waits(
    connection: HeldClientSettings, wanted: Mapping[str, str | int | None], after: str | None
) -> Waiting:
    delayed = DelayedTopics(connection)
    topics = readable(connection, [pair.target for pair in delayed.all()])
    if not topics:
        return Waiting([])
    if wanted.get("topic"):
        require_readable(connection, str(wanted["topic"]))
    running = part(lambda: running_service(connection))
    if running.answer is None:
        return Waiting(topics, Part(None, running.missing))
    service = running.answer
    listed = part(lambda: service.pending(limit=IN_THE_CHART, **wanted))
    if listed.answer is None:
        return Waiting(topics, listed)
    first = listed.answer
    found = (
        Part(first_of(first, ON_ONE_PAGE))
        if after is None
        else part(lambda: service.pending(limit=ON_ONE_PAGE, after=after, **wanted))
    )
    if found.answer is not None:
        found.answer.rows = [row for row in found.answer.rows if row["topic"] in topics]
    due = [row["due_ms"] for row in first.rows if row["topic"] in topics]
    fares = part(lambda: how_it_fares(service, set(topics)))
    return Waiting(topics, found, due, first.next is None, fares)


def readable(connection: ClientSettings, topics: list[str]) -> list[str]:
    """Returns the topics that the user may read: the delay service itself answers all requests from
    its machine."""
    if not connection.is_secured:
        return topics
    allowed = Topics(connection).readable(topics)
    return [name for name in topics if name in allowed]


def require_readable(connection: ClientSettings, topic: str) -> None:
    DelayedTopics(connection).require(topic)
    if not readable(connection, [topic]):
        raise ClientError(f"You may not read {topic}, so its delayed messages are not shown.")


def cancel(connection: ClientSettings, topic: str, id: str, partition: int) -> str:
    """Cancels a message. Returns the outcome: cancelled, too-late or unknown."""
    delayed = DelayedTopics(connection)
    try:
        return delayed.cancel(topic, id, partition=partition).outcome
    finally:
        delayed.close()


def reschedule(
    connection: ClientSettings,
    producer: Producer[Any, Any],
    topic: str,
    id: str,
    partition: int,
    when: When,
) -> None:
    """Sends the message again under its id with another time; this replaces the waiting one."""
    require_readable(connection, topic)
    row, _ = waiting_message(connection, topic, id, partition=partition)
    pending_rows.reschedule(producer, row, when).result(connection.timeout_s)


@dataclass(slots=True)
class RejectedPage:
    topics: list[str]
    topic: str  # the one that is shown
    rows: list[RejectedMessage]  # the newest first
    is_whole: bool = True
    unread: dict[int, str] = field(default_factory=dict)


def rejected(connection: HeldClientSettings, topic: str) -> RejectedPage:
    """Returns the rejected messages of one topic; without a name, of the first topic."""
    topics = readable(connection, [pair.target for pair in DelayedTopics(connection).all()])
    if topic and topic not in topics:
        require_readable(connection, topic)
    chosen = topic or (topics[0] if topics else "")
    if not chosen:
        return RejectedPage(topics, "", [])
    with closing(Browser(connection, rejected_of(chosen))) as browser:
        page = browser.backwards(
            browser.ends(browser.partitions),
            want=ON_ONE_PAGE * 4,
        )
    rows = [rejected_message(seen.record) for seen in page.found]
    return RejectedPage(topics, chosen, rows, page.at_the_end, page.unread)


@dataclass(slots=True)
class Service:
    """The state of the service, all instances together, since they started."""

    instances: int
    waiting: int
    delivered: int
    rejected: int
    lateness: Lateness
    problems: list[str]


def how_it_fares(service: DelayInstances, topics: set[str]) -> Service:
    """Returns the state of the delay service for these topics, as far as it counts by topic."""
    report = report_of(service.stats())
    return Service(
        len(report.instances),
        sum(each.pending for each in report.of(topics)),
        sum(each.delivered for each in report.instances),
        sum(each.rejected for each in report.instances),
        report.lateness,
        [each.problem for each in report.instances if each.problem],
    )
