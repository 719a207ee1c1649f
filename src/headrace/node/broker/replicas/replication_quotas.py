"""Replication quotas: how many bytes per second of throttled replicas a broker sends and fetches.

For moves of partitions that must not take the network from clients (KIP-73): an operator names
replicas in a topic's `leader.replication.throttled.replicas` and `follower....` (`partition:broker`
pairs, or `*`), and a rate for each broker; `kafka-reassign-partitions --throttle` does both. An
in-sync replica is never throttled, since acks=all waits for it; its bytes are counted. Rates as in
Apache Kafka: over `replication.quota.window.num` samples, and over one at least.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.node.metadata.config_definitions.definition import LONG_MAX
from headrace.node.metadata.configs import ALL_BROKERS, Configs, ResourceType
from headrace.node.serving.rates import Rate

EVERY_PARTITION = "*"
_NOTHING: Mapping[str, str] = {}


LIMITS_MOVES = "replica.alter.log.dirs.io.max.bytes.per.second"


class ReplicationQuota:
    """The quota of one role: what this broker sends as a leader, or fetches as a follower."""

    __slots__ = ("named_by", "limited_by", "limit", "topics", "_rate")

    def __init__(self, named_by: str, limited_by: str, samples: int, sample_ms: int) -> None:
        self.named_by = named_by  # the setting of topics that names the replicas
        self.limited_by = limited_by  # the setting of brokers that limits the rate
        self.limit = LONG_MAX  # bytes per second
        # Partitions that have a throttled replica here; None: all of the topic. Mostly it is empty:
        # callers test that first.
        self.topics: dict[str, frozenset[int] | None] = {}
        self._rate = Rate(samples, sample_ms, least_ms=sample_ms)

    def is_throttled(self, topic: str, index: int) -> bool:
        partitions = self.topics.get(topic, ())
        return partitions is None or index in partitions

    def is_exceeded(self, now_ms: int) -> bool:
        return self._rate.measure(now_ms)[0] > self.limit

    def record(self, size: int, now_ms: int) -> None:
        self._rate.record(size, now_ms)


class ReplicationQuotas:
    """The quotas of both roles of one broker, according to the metadata."""

    __slots__ = ("leader", "follower", "_node_id", "_configs")

    def __init__(self, node_id: int, samples: int, sample_ms: int) -> None:
        self.leader = ReplicationQuota(
            "leader.replication.throttled.replicas",
            "leader.replication.throttled.rate",
            samples,
            sample_ms,
        )
        self.follower = ReplicationQuota(
            "follower.replication.throttled.replicas",
            "follower.replication.throttled.rate",
            samples,
            sample_ms,
        )
        self._node_id = node_id
        self._configs: Configs = {}

    def follow(self, configs: Configs) -> None:
        """Apply new settings; looks only at what has changed."""
        before, self._configs = self._configs, configs
        for key in before.keys() | configs.keys():
            if before.get(key) is configs.get(key):
                continue
            kind, name = key
            if kind == ResourceType.TOPIC:
                for quota in (self.leader, self.follower):
                    self._follow_topic(quota, name, configs.get(key, _NOTHING))
        for quota in (self.leader, self.follower):
            quota.limit = self._limit(quota.limited_by)

    def _follow_topic(
        self, quota: ReplicationQuota, topic: str, settings: Mapping[str, str]
    ) -> None:
        text = settings.get(quota.named_by, "")
        quota.topics.pop(topic, None)
        if text == EVERY_PARTITION:
            quota.topics[topic] = None
        elif partitions := partitions_of(text, self._node_id):
            quota.topics[topic] = partitions

    def moves_limit(self) -> int:
        """Returns the bytes per second of moves between data folders."""
        return self._limit(LIMITS_MOVES)

    def _limit(self, name: str) -> int:
        for broker in (str(self._node_id), ALL_BROKERS):
            text = self._configs.get((ResourceType.BROKER, broker), _NOTHING).get(name)
            if text is not None and text.isdecimal():
                return int(text)
        return LONG_MAX


def partitions_of(text: str, node_id: int) -> frozenset[int]:
    """Returns one broker's partitions from `partition:broker` pairs; skips what is not a pair."""
    found = set()
    for pair in text.split(","):
        partition, _, broker = pair.strip().partition(":")
        if partition.isdecimal() and broker == str(node_id):
            found.add(int(partition))
    return frozenset(found)
