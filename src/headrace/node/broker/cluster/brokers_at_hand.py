"""The brokers that clients of a listener can reach, and the replicas that they cannot.

A client reaches a broker that is not fenced and has a listener of the same name as the client's
own. This broker's own addresses may differ from its registration: it knows listeners that no other
broker has (its delay service's).
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.broker.cluster.endpoint import Endpoint
from headrace.node.metadata.image import (
    MIGRATING_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    PartitionImage,
)
from headrace.wire.protocol.errors import ErrorCode


def endpoint_of(broker: Broker, node_id: int, listener: str) -> Endpoint | None:
    """Returns None if clients of this listener cannot reach it."""
    found = broker.image.brokers.get(node_id)
    if node_id != broker.node_id and (found is None or found.fenced):
        return None
    return registered_endpoint(broker, node_id, listener)


def registered_endpoint(broker: Broker, node_id: int, listener: str) -> Endpoint | None:
    """The registered endpoint, also of a fenced broker."""
    if node_id == broker.node_id:
        return broker.endpoints.get(listener)
    found = broker.image.brokers.get(node_id)
    for endpoint in () if found is None else found.endpoints:
        if endpoint.name == listener:
            return Endpoint(endpoint.host, endpoint.port)
    return None


NO_CONTROLLER = -1
# The directory of a replica whose broker has not assigned it to a data folder yet.
NOT_CHOSEN = frozenset((UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY))
NOWHERE: frozenset[bytes] = frozenset()


class BrokersAtHand:
    """All brokers that clients of one listener can reach; made once per image."""

    __slots__ = ("_broker", "_directories", "endpoints")

    def __init__(self, broker: Broker, listener: str) -> None:
        found = ((each, endpoint_of(broker, each, listener)) for each in broker.image.brokers)
        self._broker = broker
        self.endpoints = {each: endpoint for each, endpoint in found if endpoint is not None}
        # The directories of each of them whose replicas can be read.
        self._directories = {
            each: NOT_CHOSEN.union(broker.image.brokers[each].log_dirs) for each in self.endpoints
        }

    @property
    def controller_id(self) -> int:
        """Returns the broker to which clients send requests for the controller: any broker that
        they reach, since it forwards them. -1: they reach none."""
        own = self._broker.node_id
        return own if own in self.endpoints else min(self.endpoints, default=NO_CONTROLLER)

    def leader_of(
        self, partition: PartitionImage, *, tells_listeners_apart: bool
    ) -> tuple[ErrorCode, int]:
        """Returns an error code and the leader, as sent to clients."""
        leader = partition.leader
        if leader in self.endpoints:
            return ErrorCode.NONE, leader
        found = self._broker.image.brokers.get(leader)
        if tells_listeners_apart and found is not None and not found.fenced:
            return ErrorCode.LISTENER_NOT_FOUND, NO_LEADER
        return ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER

    def offline(self, partition: PartitionImage) -> list[int]:
        """Returns the replicas whose broker cannot be reached, or whose data folder is lost."""
        pairs = zip(partition.replicas, partition.directories, strict=False)
        online = self._directories
        return [
            replica for replica, directory in pairs if directory not in online.get(replica, NOWHERE)
        ]


def brokers_at_hand(broker: Broker, listener: str) -> BrokersAtHand:
    found = broker.at_hand.get(listener)
    if found is None:
        found = broker.at_hand[listener] = BrokersAtHand(broker, listener)
    return found
