"""The settings of groups, by Kafka's names; read again when an operator changes one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

MINUTE_MS = 60_000
# The settings of a single consumer group, with the prefix "consumer."; the broker's have the prefix
# "group.consumer.", as do the bounds.
SESSION_TIMEOUT = "session.timeout.ms"
HEARTBEAT_INTERVAL = "heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "assignment.interval.ms"

_DURATION = re.compile(
    r"P(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?"
)
_SECONDS = (86_400, 3_600, 60, 1)


# Settings of share groups that have bounds: the group's, and the broker's least and most.
_BOUNDED = {
    "session_timeout_ms": (
        "share.session.timeout.ms",
        "group.share.min.session.timeout.ms",
        "group.share.max.session.timeout.ms",
    ),
    "heartbeat_interval_ms": (
        "share.heartbeat.interval.ms",
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    "assignment_interval_ms": (
        "share.assignment.interval.ms",
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
    "record_lock_ms": (
        "share.record.lock.duration.ms",
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    "delivery_limit": (
        "share.delivery.count.limit",
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    "max_record_locks": (
        "share.partition.max.record.locks",
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
}


@dataclass(slots=True, frozen=True)
class ShareGroupSettings:
    """The settings of one share group; the broker's if it has none of its own."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    record_lock_ms: int = 30_000
    delivery_limit: int = 5  # how often a record is delivered
    max_record_locks: int = 2_000  # of one partition at a time
    offset_reset: str = "latest"  # or earliest, or by_duration
    offset_reset_ms: int = 0  # the duration
    reads_committed: bool = False
    renews: bool = True  # a member may ask for more time with a record
    backoff_ms: int = 0  # wait of a released record, doubled with each delivery; 0: none
    backoff_max_ms: int = 60_000
    dead_letter_topic: str = ""  # empty: records that are given up are not kept

    @classmethod
    def from_values(cls, group: Mapping[str, Any], broker: Mapping[str, Any]) -> ShareGroupSettings:
        """A group's value beyond the broker's present bounds is replaced by the bound."""
        bounded = {
            field: int(min(max(group[own], broker[least]), broker[most]))
            for field, (own, least, most) in _BOUNDED.items()
        }
        reset, _, duration = group["share.auto.offset.reset"].partition(":")
        return cls(
            offset_reset=reset,
            offset_reset_ms=_milliseconds(duration),
            reads_committed=group["share.isolation.level"] == "read_committed",
            renews=group["share.renew.acknowledge.enable"],
            backoff_ms=group["headrace.share.release.backoff.ms"],
            backoff_max_ms=group["headrace.share.release.backoff.max.ms"],
            dead_letter_topic=group["errors.deadletterqueue.topic.name"],
            **bounded,
        )


@dataclass(slots=True, frozen=True)
class StreamsGroupSettings:
    """The settings of one streams group; the broker's if it has none of its own."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    initial_delay_ms: int = 3_000  # of a new group's first assignment
    standbys: int = 0  # copies of each task's state

    @classmethod
    def from_values(
        cls, group: Mapping[str, Any], broker: Mapping[str, Any]
    ) -> StreamsGroupSettings:
        """A group's value beyond the broker's present bounds is replaced by the bound."""

        def bounded(name: str) -> int:
            least, most = broker[f"group.streams.min.{name}"], broker[f"group.streams.max.{name}"]
            return int(min(max(group[f"streams.{name}"], least), most))

        return cls(
            session_timeout_ms=bounded("session.timeout.ms"),
            heartbeat_interval_ms=bounded("heartbeat.interval.ms"),
            assignment_interval_ms=bounded("assignment.interval.ms"),
            initial_delay_ms=group["streams.initial.rebalance.delay.ms"],
            standbys=min(
                group["streams.num.standby.replicas"], broker["group.streams.max.standby.replicas"]
            ),
        )


def _milliseconds(duration: str) -> int:
    found = _DURATION.fullmatch(duration)
    if found is None:
        return 0
    parts = zip(found.groups(), _SECONDS, strict=True)
    return int(sum(float(number) * seconds for number, seconds in parts if number) * 1_000)


def _nothing_of_its_own(_: str) -> Mapping[str, Any]:
    return {}


def _defaults_of_share_groups(_: str) -> ShareGroupSettings:
    return ShareGroupSettings()


def _defaults_of_streams_groups(_: str) -> StreamsGroupSettings:
    return StreamsGroupSettings()


@dataclass(slots=True)
class GroupSettings:
    """The defaults are those of a node without other nodes."""

    initial_rebalance_delay_ms: int = 0
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    offsets_check_interval_ms: int = 600_000
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 0
    # The least and the most that a group may set for itself, by the same names.
    consumer_bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    share_max_size: int = 200
    share_initialize_retry_ms: int = 30_000
    streams_max_size: int = 2**31 - 1
    protocols: tuple[str, ...] = ("classic", "consumer", "streams")
    of_share_group: Callable[[str], ShareGroupSettings] = _defaults_of_share_groups
    of_streams_group: Callable[[str], StreamsGroupSettings] = _defaults_of_streams_groups
    # The settings of one group, typed: "consumer.session.timeout.ms" and others.
    of_group: Callable[[str], Mapping[str, Any]] = _nothing_of_its_own

    @classmethod
    def from_values(
        cls,
        values: Mapping[str, Any],
        of_group: Callable[[str], Mapping[str, Any]],
        of_share_group: Callable[[str], ShareGroupSettings],
        of_streams_group: Callable[[str], StreamsGroupSettings],
    ) -> GroupSettings:
        return cls(
            initial_rebalance_delay_ms=values["group.initial.rebalance.delay.ms"],
            min_session_timeout_ms=values["group.min.session.timeout.ms"],
            max_session_timeout_ms=values["group.max.session.timeout.ms"],
            max_size=values["group.max.size"],
            offset_metadata_max_bytes=values["offset.metadata.max.bytes"],
            offsets_retention_ms=values["offsets.retention.minutes"] * MINUTE_MS,
            offsets_check_interval_ms=values["offsets.retention.check.interval.ms"],
            consumer_session_timeout_ms=values["group.consumer.session.timeout.ms"],
            consumer_heartbeat_interval_ms=values["group.consumer.heartbeat.interval.ms"],
            consumer_assignment_interval_ms=values["group.consumer.assignment.interval.ms"],
            consumer_bounds={
                name: (values[f"group.consumer.min.{name}"], values[f"group.consumer.max.{name}"])
                for name in (SESSION_TIMEOUT, HEARTBEAT_INTERVAL, ASSIGNMENT_INTERVAL)
            },
            consumer_max_size=values["group.consumer.max.size"],
            consumer_assignors=tuple(values["group.consumer.assignors"]),
            consumer_migration_policy=values["group.consumer.migration.policy"].lower(),
            share_max_size=values["group.share.max.size"],
            share_initialize_retry_ms=values["group.share.initialize.retry.interval.ms"],
            streams_max_size=values["group.streams.max.size"],
            protocols=tuple(values["group.coordinator.rebalance.protocols"]),
            of_group=of_group,
            of_share_group=of_share_group,
            of_streams_group=of_streams_group,
        )

    def of_consumer_group(self, group_id: str, name: str) -> int:
        """Returns the group's own value, within the present bounds; else the broker's."""
        own: int | None = self.of_group(group_id).get(f"consumer.{name}")
        if own is None:
            return self._of_all(name)
        least, most = self.consumer_bounds.get(name, (own, own))
        return min(max(own, least), most)

    def _of_all(self, name: str) -> int:
        if name == SESSION_TIMEOUT:
            return self.consumer_session_timeout_ms
        if name == HEARTBEAT_INTERVAL:
            return self.consumer_heartbeat_interval_ms
        return self.consumer_assignment_interval_ms
