"""The fields that every message of the quorum has besides its content: cluster, topic, partition,
leader.

All of the quorum's requests are about partition 0 of `__cluster_metadata`; a request about anything
else, or from another cluster, is refused here. Responses name the leader's address without its
listener: it is the listener on which the request went out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.node.consensus.quorum.messages import NOBODY, Response
from headrace.node.consensus.voters import VoterEndpoint
from headrace.node.metadata.topic_names import METADATA_TOPIC
from headrace.wire.protocol.errors import ErrorCode, KafkaError

R = TypeVar("R", bound=Response)
PARTITION = 0


@dataclass(slots=True)
class Names:
    cluster_id: str
    listener: str  # of the quorum, on which its members reach each other

    def require_cluster(self, cluster_id: str | None) -> None:
        """A request may leave the cluster out, as Apache allows."""
        if cluster_id is not None and cluster_id != self.cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"The request is for the cluster {cluster_id}, this is {self.cluster_id}.",
            )

    def endpoint_of_leader(self, leader_id: int, nodes: list[Any]) -> tuple[VoterEndpoint, ...]:
        """The leader's address in the `node_endpoints` of a response."""
        return tuple(
            VoterEndpoint(self.listener, node.host, node.port)
            for node in nodes
            if node.node_id == leader_id
        )


def only_partition(topics: list[Any], topic_field: str, partition_field: str) -> Any:
    """The one partition of a request or response; KafkaError if it is about another."""
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        topic, partition = topics[0], topics[0].partitions[0]
        if (getattr(topic, topic_field), getattr(partition, partition_field)) == (
            METADATA_TOPIC,
            PARTITION,
        ):
            return partition
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"Only partition {PARTITION} of {METADATA_TOPIC} has a quorum."
    )


def node_endpoints(kind: type[Any], response: Response) -> list[Any]:
    """The leader's address as `node_endpoints`; empty if the sender does not know it."""
    if response.leader_id == NOBODY:
        return []
    return [kind(node_id=response.leader_id, host=p.host, port=p.port) for p in response.endpoints]


def failed(kind: type[R], error_code: int) -> R:
    """A response without content: the whole request was refused."""
    return kind(error_of(error_code), NOBODY)


def error_of(code: int) -> ErrorCode:
    known = ErrorCode._value2member_map_.get(code)
    return known if isinstance(known, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
