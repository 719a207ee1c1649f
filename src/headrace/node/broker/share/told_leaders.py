"""The leaders in an answer, for a client that has asked a broker that does not lead."""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.broker.cluster.brokers_at_hand import endpoint_of
from headrace.node.broker.share.sessions import TopicPartition
from headrace.wire.protocol.errors import ErrorCode

NAMED_FOR = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class ToldLeaders:
    __slots__ = ("_broker", "_listener", "_named")

    def __init__(self, broker: Broker, listener: str) -> None:
        self._broker = broker
        self._listener = listener
        self._named: set[int] = set()

    def leader_of(self, key: TopicPartition, code: ErrorCode) -> tuple[int, int] | None:
        """Returns node and epoch; None if the refusal has another reason, or no leader is known."""
        if code not in NAMED_FOR:
            return None
        topic = self._broker.image.topics_by_id.get(key[0])
        if topic is None or not 0 <= key[1] < len(topic.partitions):
            return None
        partition = topic.partitions[key[1]]
        self._named.add(partition.leader)
        return partition.leader, partition.leader_epoch

    def endpoints(self) -> list[tuple[int, str, int, str | None]]:
        """Returns id, host, port and rack of the leaders that were named."""
        found = []
        for node_id in sorted(self._named):
            endpoint = endpoint_of(self._broker, node_id, self._listener)
            registered = self._broker.image.brokers.get(node_id)
            if endpoint is not None and registered is not None:
                found.append((node_id, endpoint.host, endpoint.port, registered.rack))
        return found
