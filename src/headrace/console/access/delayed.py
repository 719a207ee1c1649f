"""Questions about delayed messages: what waits, a page at a time; cancel one, deliver one now."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.client.connection import Connection
from headrace.client.delay_instances import DelayInstances, Page
from headrace.client.delayed_topics import DelayedTopics
from headrace.client.errors import ClientError
from headrace.client.producer import Producer
from headrace.console.access.delay_service import running_service
from headrace.console.access.held_connection import HeldConnection
from headrace.console.access.parts import Part, part
from headrace.contract import headers

ON_ONE_PAGE = 25
IN_THE_CHART = 1_000


@dataclass(slots=True)
class Waiting:
    topics: list[str]  # that take delayed messages
    page: Part[Page] = field(default_factory=lambda: Part(None))
    chart: list[int] = field(default_factory=list)  # due times of the first, in ms
    chart_is_whole: bool = True


def what_waits(
    connection: HeldConnection, wanted: Mapping[str, str | int | None], after: str | None
) -> Waiting:
    delayed = DelayedTopics(connection)
    topics = [pair.target for pair in delayed.all()]
    if not topics:
        return Waiting([])
    if wanted.get("topic"):
        delayed.require(str(wanted["topic"]))
    found = part(
        lambda: running_service(connection).pending(limit=ON_ONE_PAGE, after=after, **wanted)
    )
    if found.answer is None:
        return Waiting(topics, found)
    chart = part(lambda: running_service(connection).pending(limit=IN_THE_CHART, **wanted))
    rows = chart.answer.rows if chart.answer else []
    is_whole = chart.answer is None or chart.answer.next is None
    return Waiting(topics, found, [row["due_ms"] for row in rows], is_whole)


def cancel(connection: Connection, topic: str, id: str, partition: int) -> str:
    """What became of it: cancelled, too-late or unknown."""
    delayed = DelayedTopics(connection)
    try:
        return delayed.cancel(topic, id, partition=partition).outcome
    finally:
        delayed.close()


def deliver_now(
    connection: Connection, producer: Producer[Any, Any], topic: str, id: str, partition: int
) -> None:
    """Sent again under its id without a wait, which replaces what waits."""
    DelayedTopics(connection).require(topic)
    found = DelayInstances(connection).pending(
        limit=1, topic=topic, id=id, partition=partition, values="1"
    )
    if not found.rows:
        raise ClientError(f"Nothing waits in {topic} under {id}: it was delivered or cancelled.")
    [row] = found.rows
    kept = [(header["name"], field_bytes(header, "value")) for header in row["headers"]]
    if row["target_partition"] != row["partition"]:
        kept.append((headers.PARTITION, str(row["target_partition"]).encode()))
    producer.send(
        topic,
        field_bytes(row, "value"),
        key=field_bytes(row, "key"),
        headers=kept,
        partition=row["partition"],
        delay="0ms",
        id=id,
    ).result(connection.timeout_s)


def field_bytes(row: Mapping[str, Any], name: str) -> bytes | None:
    """A key or value of an answer in JSON, as the bytes that it is."""
    packed = row.get(f"{name}_base64")
    if packed is not None:
        return base64.b64decode(packed)
    found = row.get(name)
    return None if found is None else str(found).encode()
