"""The partitions this broker leads, by name and by id.

Two dictionaries and a list per topic: the look-up of every produce and fetch. Kept equal to the
committed metadata image by `broker.py`; nothing else changes it.
"""

from __future__ import annotations

from headrace.metadata.topic_names import INTERNAL_TOPICS
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.replication.replica import PartitionLeader


class Topic:
    __slots__ = ("name", "id", "leaders", "acknowledgements", "is_internal")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.id = topic_id
        self.leaders: list[PartitionLeader] = []
        self.acknowledgements: dict[int, tuple[bytes, bytes]] = {}  # see acknowledgements.py
        self.is_internal = name in INTERNAL_TOPICS  # the coordinators' own

    def leader(self, index: int) -> PartitionLeader:
        """Raises NOT_LEADER_OR_FOLLOWER where another broker leads, or nobody."""
        leader = self.replica(index)
        if leader.led_since < 0:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return leader

    def replica(self, index: int) -> PartitionLeader:
        if 0 <= index < len(self.leaders):
            return self.leaders[index]
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


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
