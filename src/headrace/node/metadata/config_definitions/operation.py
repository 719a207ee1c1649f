"""The broker's settings of quotas, metrics, policies and plug-ins.

`REPLICATION_RATES` can only be set while a broker runs: Kafka does not take them from a file.
"""

from __future__ import annotations

from headrace.node.metadata.config_definitions.definition import LONG_MAX, Definition
from headrace.node.metadata.config_definitions.rows import (
    CLUSTER_WIDE,
    at_least,
    integer,
    java_class,
    listing,
    long,
    string,
    unsupported,
    without_effect,
)

# fmt: off
_CLIENT_QUOTAS = (
    integer("quota.window.num", 11, at_least(1),
        "Windows over which clients' rates are measured."),
    integer("quota.window.size.seconds", 1, at_least(1),
        "Length of each of these windows."),
    integer("controller.quota.window.num", 11, at_least(1),
        "Windows over which the rate of changes to topics is measured."),
    integer("controller.quota.window.size.seconds", 1, at_least(1),
        "Length of each of these windows."),
)
_REPLICATION_QUOTAS = (
    integer("replication.quota.window.num", 11, at_least(1),
        "Windows over which replication's rate is measured."),
    integer("replication.quota.window.size.seconds", 1, at_least(1),
        "Length of each of these windows."),
)
_MOVE_QUOTAS = without_effect("the rate of moves holds for each look at them, 20 times a second",
    integer("alter.log.dirs.replication.quota.window.num", 11, at_least(1),
        "Windows over which the rate of moves between data folders is measured."),
    integer("alter.log.dirs.replication.quota.window.size.seconds", 1, at_least(1),
        "Length of each of these windows."),
)
_METRICS = (
    *without_effect("metrics are served to Prometheus with start --metrics",
        integer("metrics.num.samples", 2, at_least(1),
            "Windows over which metrics are computed."),
        long("metrics.sample.window.ms", 30_000, at_least(1),
            "Length of each of these windows."),
        string("metrics.recording.level", "INFO", None,
            "Which metrics are recorded."),
        integer("kafka.metrics.polling.interval.secs", 10, at_least(1),
            "How often older reporters look at metrics."),
    ),
    *unsupported("metrics reporters that are Java classes",
        listing("metric.reporters", ("org.apache.kafka.common.metrics.JmxReporter",), None,
            "Classes that are told of metrics.", CLUSTER_WIDE),
        listing("kafka.metrics.reporters", (), None,
            "Older classes that are told of metrics."),
    ),
    *without_effect("client metrics are not collected yet",
        integer("telemetry.max.bytes", 1024**2, at_least(1),
            "Most bytes of metrics that a client may send at a time."),
    ),
)
_PLUG_INS = (
    *unsupported("policies that are Java classes",
        java_class("create.topic.policy.class.name", None,
            "Class that may refuse the creation of a topic."),
        java_class("alter.config.policy.class.name", None,
            "Class that may refuse the change of a setting."),
    ),
    *unsupported("quotas by a Java class",
        java_class("client.quota.callback.class", None,
            "Class that decides clients' quotas."),
    ),
    *unsupported("config providers",
        listing("config.providers", (), None,
            "Names of classes that fill in ${...} in values.", CLUSTER_WIDE),
    ),
)
_RATES = (
    long("leader.replication.throttled.rate", LONG_MAX, at_least(0),
        "Most bytes per second that leaders send to throttled replicas.", CLUSTER_WIDE),
    long("follower.replication.throttled.rate", LONG_MAX, at_least(0),
        "Most bytes per second that throttled replicas fetch.", CLUSTER_WIDE),
    long("replica.alter.log.dirs.io.max.bytes.per.second", LONG_MAX, at_least(0),
        "Most bytes per second of moves between data folders.", CLUSTER_WIDE),
)
# fmt: on

OPERATION: tuple[Definition, ...] = (
    *_CLIENT_QUOTAS,
    *_REPLICATION_QUOTAS,
    *_MOVE_QUOTAS,
    *_METRICS,
    *_PLUG_INS,
)

REPLICATION_RATES: dict[str, Definition] = {row.name: row for row in _RATES}
