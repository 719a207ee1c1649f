"""The replicas that this broker has, by topic and partition.

Two dictionaries and a list per topic: the look-up of every produce and fetch. Kept equal to the
committed metadata image by `broker.py`; nothing else changes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.node.metadata.topic_names import INTERNAL_TOPICS
from headrace.node.replication.replica import PartitionLeader, PartitionReplica
from headrace.wire.protocol.errors import ErrorCode, KafkaError

NONE: frozenset[int] = frozenset()


class Topic:
    __slots__ = ("name", "id", "replicas", "offline", "acknowledgements", "is_internal")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.id = topic_id
        self.replicas: list[PartitionReplica | None] = []  # by partition; None: no replica here
        self.offline = NONE  # partitions whose replicas here are in a failed data folder
        self.acknowledgements: dict[int, tuple[bytes, bytes]] = {}  # see acknowledgements.py
        self.is_internal = name in INTERNAL_TOPICS  # a topic of the coordinators

    def has(self, index: int) -> bool:
        return index < len(self.replicas) and self.replicas[index] is not None

    def here(self) -> Iterator[PartitionReplica]:
        """The replicas on this broker, as leader or follower."""
        return (replica for replica in self.replicas if replica is not None)

    def leader(self, index: int) -> PartitionLeader:
        """Returns the leader; raises NOT_LEADER_OR_FOLLOWER if this broker does not lead the
        partition."""
        if 0 <= index < len(self.replicas):
            replica = self.replicas[index]
            if replica is None or replica.led_since < 0:
                raise self._not_here(index)
            return replica
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def replica(self, index: int) -> PartitionReplica:
        """Returns the leader or follower; raises NOT_LEADER_OR_FOLLOWER if this broker has no
        replica."""
        if 0 <= index < len(self.replicas):
            replica = self.replicas[index]
            if replica is None:
                raise self._not_here(index)
            return replica
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _not_here(self, index: int) -> KafkaError:
        if index in self.offline:
            why = f"the data folder of {self.name}-{index} on this broker is offline"
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def leader_if_here(self, index: int) -> PartitionLeader | None:
        replica = self.replicas[index] if 0 <= index < len(self.replicas) else None
        return replica if replica is not None and replica.leads else None


class Topics:
    __slots__ = ("by_name", "by_id")

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}

    def add(self, topic: Topic) -> None:
        self.by_name[topic.name] = topic
        self.by_id[topic.id] = topic

    def remove(self, topic: Topic) -> None:
        self.by_id.pop(topic.id, None)
        if self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name]

    def leader(self, name: str, index: int) -> PartitionLeader:
        topic = self.by_name.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.leader(index)

    def leader_by_id(self, topic_id: bytes, index: int) -> PartitionLeader:
        topic = self.by_id.get(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return topic.leader(index)
