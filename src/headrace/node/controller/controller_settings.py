"""The settings of a controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.node.controller.topics import TopicRules


@dataclass(slots=True)
class ControllerSettings:
    """Named after Kafka's settings, with its defaults unless noted otherwise."""

    node_id: int = 1
    # There are no other nodes: this node's broker is registered at the start, all others are
    # fenced.
    alone: bool = True
    topic_rules: TopicRules = field(default_factory=TopicRules)
    # The settings that the node was started with; passwords are among them.
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    min_in_sync_replicas: int = 1
    session_timeout_ms: int = 9_000  # broker.session.timeout.ms
    balance_leaders: bool = True  # auto.leader.rebalance.enable
    balance_interval_ms: int = 300_000  # leader.imbalance.check.interval.seconds
    # Names of the controller's listeners that this node opens; mostly none in a cluster of one.
    open_listeners: frozenset[str] = frozenset()
    snapshot_after_bytes: int = 20 << 20  # metadata.log.max.record.bytes.between.snapshots
    snapshot_after_ms: int = 3_600_000  # metadata.log.max.snapshot.interval.ms
    retention_bytes: int = 100 << 20  # metadata.max.retention.bytes
    retention_ms: int = 7 * 24 * 3600 * 1000  # metadata.max.retention.ms
    # metadata.max.idle.interval.ms; Apache writes a NoOp each 500 ms so that followers can tell
    # that they are up to date. A node alone has none, so it is off there: no flush while idle.
    idle_interval_ms: int = 0
