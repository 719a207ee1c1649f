"""The settings of a group and of a client-metrics subscription: those of Kafka 4.3, and our own.

A group's setting that is not set takes the value of the broker's `group.<name>`. Streams groups and
client metrics are not served yet: their settings are kept and shown, and have no effect.
"""

from __future__ import annotations

import re
from dataclasses import replace

from headrace.node.metadata.config_definitions.definition import Definition, Synonym
from headrace.node.metadata.config_definitions.rows import (
    at_least,
    between,
    boolean,
    integer,
    listing,
    one_of,
    string,
    without_effect,
)
from headrace.node.metadata.topic_names import require_legal
from headrace.wire.contract.companions import DEAD_SUFFIX
from headrace.wire.protocol.errors import KafkaError

# The wait of released records, which Kafka does not have.
SHARE_BACKOFF = "headrace.share.release.backoff.ms"
SHARE_BACKOFF_MAX = "headrace.share.release.backoff.max.ms"
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"  # KIP-1191, which Kafka 4.3 does not have

_DURATION = re.compile(r"P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?")


def _offset_reset(value: str) -> str | None:
    start, _, duration = value.partition(":")
    if value in ("latest", "earliest"):
        return None
    if start == "by_duration" and _DURATION.fullmatch(duration):
        return None
    return "must be latest, earliest or by_duration:<ISO 8601 duration such as PT1H>"


def _dead_letter_topic(value: str) -> str | None:
    if not value:
        return None
    if not value.endswith(DEAD_SUFFIX):
        return (
            f"must end in {DEAD_SUFFIX}, such as <topic>.<group>{DEAD_SUFFIX}: brokers write there "
            "without the rights of a client"
        )
    try:
        require_legal(value)
    except KafkaError as refusal:
        return f"must be the name of a topic: {refusal.message}"
    return None


# fmt: off
_CONSUMER = (
    integer("consumer.session.timeout.ms", 45_000, at_least(1),
        "A member of the group that is silent for so long has left."),
    integer("consumer.heartbeat.interval.ms", 5_000, at_least(1),
        "How often the group's members are told to send a heartbeat."),
    *without_effect("partitions are shared out at once",
        integer("consumer.assignment.interval.ms", 1_000, at_least(0),
            "Least time between two new assignments of the group."),
    ),
)
_SHARE = (
    integer("share.session.timeout.ms", 45_000, at_least(1),
        "A member of the share group that is silent for so long has left."),
    integer("share.heartbeat.interval.ms", 5_000, at_least(1),
        "How often the share group's members are told to send a heartbeat."),
    integer("share.record.lock.duration.ms", 30_000, at_least(1_000),
        "How long a record is reserved for the member that fetched it."),
    integer("share.delivery.count.limit", 5, at_least(2),
        "How often a record is handed out before it is given up."),
    integer("share.partition.max.record.locks", 2_000, at_least(100),
        "How many records of one partition may be handed out at a time."),
    string("share.auto.offset.reset", "latest", _offset_reset,
        "Where a new share group begins: latest, earliest, or a duration before now."),
    string("share.isolation.level", "read_uncommitted",
        one_of("read_committed", "read_uncommitted"),
        "Whether records of open and aborted transactions are handed out."),
    boolean("share.renew.acknowledge.enable", True,
        "Whether a member may ask for more time with a record."),
    integer("share.assignment.interval.ms", 1_000, at_least(0),
        "Least time between two new assignments of the share group."),
    string(DEAD_LETTER_TOPIC, "", _dead_letter_topic,
        "Topic for records that the share group rejects or cannot handle; empty: they are given "
        "up. The name ends in .dead."),
    integer(SHARE_BACKOFF, 0, between(0, 3_600_000),
        "How long a record waits that was released or whose lock ran out; doubled with each "
        "delivery, up to a fifth shorter; 0: not at all."),
    integer(SHARE_BACKOFF_MAX, 60_000, between(1, 86_400_000),
        "Longest wait of such a record."),
)
_STREAMS = (
    integer("streams.session.timeout.ms", 45_000, at_least(1),
        "A member of the streams group that is silent for so long has left."),
    integer("streams.heartbeat.interval.ms", 5_000, at_least(1),
        "How often the streams group's members are told to send a heartbeat."),
    integer("streams.num.standby.replicas", 0, at_least(0),
        "Standby copies of each task's state."),
    integer("streams.initial.rebalance.delay.ms", 3_000, at_least(0),
        "How long a new streams group waits for further members before tasks are assigned."),
    integer("streams.assignment.interval.ms", 1_000, at_least(0),
        "Least time between two new assignments of the streams group."),
)
_CLIENT_METRICS = without_effect("client metrics are not collected yet",
    listing("metrics", (), None,
        "Prefixes of the metric names that clients shall send; * is all, nothing is none."),
    integer("interval.ms", 300_000, None,
        "How often clients shall send them, from 100 ms to an hour."),
    listing("match", (), None,
        "Which clients: a list of name=regular expression, such as client_id=billing-.*"),
)
# fmt: on

# Settings without a synonym among the broker's settings: these apply to the group alone.
_WITHOUT_SYNONYM = {
    "share.auto.offset.reset",
    "share.isolation.level",
    "share.renew.acknowledge.enable",
    SHARE_BACKOFF,
    SHARE_BACKOFF_MAX,
    DEAD_LETTER_TOPIC,
}

GROUP_SETTINGS: dict[str, Definition] = {
    row.name: row
    if row.name in _WITHOUT_SYNONYM
    else replace(row, synonyms=(Synonym(f"group.{row.name}"),))
    for row in (*_CONSUMER, *_SHARE, *_STREAMS)
}

CLIENT_METRICS_SETTINGS: dict[str, Definition] = {row.name: row for row in _CLIENT_METRICS}

SHORTEST_METRICS_INTERVAL_MS = 100
LONGEST_METRICS_INTERVAL_MS = 3_600_000
CLIENT_MATCHERS = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
