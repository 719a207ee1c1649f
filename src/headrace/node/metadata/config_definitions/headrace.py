"""Where Headrace departs from Kafka: defaults for a node that runs alone, and settings of its
own."""

from __future__ import annotations

from typing import Any

from headrace.node.metadata.config_definitions.definition import Definition
from headrace.node.metadata.config_definitions.rows import (
    CLUSTER_WIDE,
    at_least,
    double,
    long,
    one_of,
    string,
)

DAY_MS = 86_400_000
PAGE_CACHE = "page-cache"
DISK = "disk"
AUTO = "auto"
LOG = "log"
TOPIC = "topic"
OFF = "off"

OWN: tuple[Definition, ...] = (
    string(
        "headrace.durability",
        PAGE_CACHE,
        one_of(PAGE_CACHE, DISK),
        "What an answer to acks=all promises: page-cache, as Kafka does, survives the end of the "
        "process; disk waits for a flush that many requests share and survives a power cut.",
    ),
    string(
        "headrace.delay.service",
        AUTO,
        one_of(AUTO, OFF),
        "Whether the node runs the delay service beside it: auto does once there is a delayed "
        "topic; off leaves it to `headrace delay serve`.",
    ),
    string(
        "headrace.audit",
        AUTO,
        one_of(AUTO, OFF, LOG, TOPIC),
        "Where admin changes, failed logins and denied requests are noted, as lines of JSON: log "
        "is the node's log, topic is the log and the topic headrace.audit. auto is log on a node "
        "that asks who is there or has an authorizer, else off.",
    ),
    long(
        "headrace.stray.retention.ms",
        30 * DAY_MS,
        at_least(-1),
        "How long a folder that no topic owns (its name ends in -stray) is kept before it is "
        "removed; -1 keeps it for ever.",
    ),
    long(
        "headrace.scrub.interval.ms",
        7 * DAY_MS,
        at_least(-1),
        "How often every closed segment is read from the disk and its checksums are computed, in a "
        "process of its own, so that damage is found before somebody needs the records; -1: never.",
        CLUSTER_WIDE,
    ),
    double(
        "headrace.scrub.io.max.bytes.per.second",
        10.0 * 1024**2,
        at_least(1),
        "How fast closed segments are read for that; the default reads 6 TB in a week.",
        CLUSTER_WIDE,
    ),
    string(
        "headrace.first.users",
        None,
        None,
        "File with what is kept of the passwords of users that a cluster without any gets at its "
        "start; `headrace security init` writes one.",
    ),
)

# Settings that Kafka requires, or whose Kafka default does not suit a first try: its log.dir is in
# /tmp.
_SO_THAT_IT_STARTS: dict[str, Any] = {
    "process.roles": ("broker", "controller"),
    "node.id": 1,
    "controller.listener.names": ("CONTROLLER",),
    "listeners": ("PLAINTEXT://localhost:9092",),
    "log.dir": ("headrace-data",),
}

# Kafka's are for three brokers and more; a node of one could never create its internal topics.
_FOR_A_NODE_OF_ONE: dict[str, Any] = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    # When the first consumer of a try-out or a test joins, no others are about to join, and the
    # second one's partitions need not wait for more members.
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
}

# Bounds are on by default. 10,000 idle connections cost some 20 MB; a single address may hold half.
_BOUNDED: dict[str, Any] = {
    "max.connections": 20_000,
    "max.connections.per.ip": 10_000,
}

# -1 means the size that was measured to be best on loopback, and the system's own tuning elsewhere.
# With Kafka's 100 KiB a batch of 256 KiB arrives in three pieces, and a fetch of 1 MiB leaves in
# five or more.
_MEASURED: dict[str, Any] = {
    "socket.send.buffer.bytes": -1,
    "socket.receive.buffer.bytes": -1,
}

DEFAULTS: dict[str, Any] = {
    **_SO_THAT_IT_STARTS,
    **_FOR_A_NODE_OF_ONE,
    **_BOUNDED,
    **_MEASURED,
}
