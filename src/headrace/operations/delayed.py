"""Delayed messages: a report over all instances of the service, rejected messages, a waiting one.

Percentiles come from histograms, so they are upper bounds.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.client.connection import ClientSettings
from headrace.client.delay.instances import DelayInstances, Instance
from headrace.client.errors import ClientError
from headrace.client.records import Record
from headrace.wire.contract import headers

# A message that was just sent is listed within this time: as soon as the service has read it.
SOON_KNOWN_S = 2.0
LOOK_AGAIN_S = 0.1

Lateness = dict[int | None, int]  # number of messages by upper bound in ms; None: no bound


@dataclass(slots=True)
class DelayedTopic:
    topic: str
    pending: int = 0
    due_next_minute: int = 0
    # The reports of the instances, each with its instance.
    partitions: list[dict[str, Any]] = field(default_factory=list)

    @property
    def states(self) -> list[str]:
        """The different states of its partitions; none if no instance has any."""
        return sorted({partition["state"] for partition in self.partitions})


@dataclass(slots=True)
class InstanceReport:
    instance: str
    address: str | None
    up_ms: int
    partitions: dict[str, list[int]]  # by topic
    delivered: int
    outcomes: int
    rejected: int
    aborted: int
    problem: str | None


@dataclass(slots=True)
class DelayReport:
    topics: list[DelayedTopic]  # by name
    lateness: Lateness
    instances: list[InstanceReport]

    def of(self, topics: Iterable[str]) -> list[DelayedTopic]:
        wanted = set(topics)
        return [each for each in self.topics if each.topic in wanted]


def report_of(
    answers: Sequence[tuple[Instance, Mapping[str, Any]]], registered: Iterable[str] = ()
) -> DelayReport:
    """One report over all instances. `registered` topics are in it even without an instance."""
    topics = {name: DelayedTopic(name) for name in registered}
    lateness: Lateness = {}
    for _, one in answers:
        for topic in one["topics"]:
            known = topics.setdefault(topic["topic"], DelayedTopic(topic["topic"]))
            known.pending += topic["pending"]
            known.due_next_minute += topic["due_next_minute"]
            known.partitions += [
                {**partition, "instance": one["instance"]} for partition in topic["partitions"]
            ]
        for bound, count in one["lateness_ms"]:
            lateness[bound] = lateness.get(bound, 0) + (count or 0)
    for each in topics.values():
        each.partitions.sort(key=lambda partition: int(partition["partition"]))
    return DelayReport(
        [topics[name] for name in sorted(topics)],
        lateness,
        [_instance(instance, one) for instance, one in answers],
    )


def _instance(instance: Instance, told: Mapping[str, Any]) -> InstanceReport:
    return InstanceReport(
        told["instance"],
        instance.address,
        told["now_ms"] - told["started_at_ms"],
        {
            topic["topic"]: [each["partition"] for each in topic["partitions"]]
            for topic in told["topics"]
        },
        told["delivered"],
        told["outcomes"],
        told["rejected"],
        told["aborted"],
        told["problem"],
    )


def latest_of(lateness: Lateness, percent: float) -> int | None:
    """The number of ms within which this share was delivered; None: later than the last bound. The
    histogram must not be empty."""
    wanted, seen = sum(lateness.values()) * percent / 100, 0
    assert wanted > 0, "nothing was delivered, so there is no percentile"
    for bound, count in lateness.items():
        seen += count
        if seen >= wanted:
            return bound
    return None


@dataclass(slots=True)
class RejectedMessage:
    """A delayed message that the service refused, and why."""

    at_ms: int | None
    reason: bytes | None
    source: bytes | None  # the record, as topic, partition and offset
    id: bytes | None
    key: bytes | None
    value: bytes | None


def rejected_message(record: Record) -> RejectedMessage:
    """A record of the topic of rejected messages."""
    return RejectedMessage(
        record.timestamp_ms,
        record.header(headers.REJECTED_REASON),
        record.header(headers.SOURCE),
        record.header(headers.ID) or record.header(headers.CANCEL),
        record.key,
        record.value,
    )


def waiting_message(
    connection: ClientSettings,
    topic: str,
    id: str,
    *,
    key: str | None = None,
    partition: int | None = None,
) -> tuple[dict[str, Any], int]:
    """The one message that waits under an id, with its value, and the service's time in ms."""
    instances = DelayInstances(connection)
    deadline = time.monotonic() + SOON_KNOWN_S
    while True:
        found = instances.pending(
            limit=2, topic=topic, id=id, key=key, partition=partition, values="1"
        )
        if found.rows or time.monotonic() > deadline:
            break
        time.sleep(LOOK_AGAIN_S)
    if not found.rows:
        raise ClientError(
            f"Nothing waits in {topic} under {id}: it was delivered or cancelled, or never sent. "
            "`headrace delay list` shows what waits."
        )
    if len(found.rows) > 1:
        places = ", ".join(str(row["partition"]) for row in found.rows)
        raise ClientError(
            f"{id} waits in partitions {places}: say which with --key or --partition."
        )
    return found.rows[0], found.now_ms
