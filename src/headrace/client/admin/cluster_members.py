"""Who is in a cluster, and how its controllers are reached: what a node that joins has to know.

Asks any broker (DescribeCluster and DescribeQuorum), also of Apache Kafka. `require_controller`
then proves that a controller of that cluster answers from this machine.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from headrace.client.admin.cluster import METADATA_TOPIC
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError, LoginRefused, Unreachable
from headrace.client.wire import Wire, require_no_error
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import describe_cluster, describe_quorum

OF_CONTROLLERS = 2  # DescribeCluster's endpoint type (KIP-919)
PATIENCE_WITH_A_CONTROLLER_S = 3.0
ASKS_FOR_A_LOGIN = "If it asks for a login or TLS, say how with --client-config FILE."


@dataclass(slots=True)
class ControllerAddress:
    node: int
    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(slots=True)
class ClusterMembers:
    id: str
    brokers: set[int] = field(default_factory=set)  # registered, also those that are stopped
    controllers: list[ControllerAddress] = field(default_factory=list)  # the voters
    observers: set[int] = field(default_factory=set)  # they fetch the metadata and do not vote

    @property
    def nodes(self) -> set[int]:
        return self.brokers | self.observers | {each.node for each in self.controllers}


def free_node_id(taken: Collection[int]) -> int:
    """One above the highest: the number of a node that has left is not given to another."""
    return max(taken, default=0) + 1


def read_members(connection: ClientSettings, address: tuple[str, int]) -> ClusterMembers:
    """Raises ClientError if no broker answers at this address."""
    request = describe_cluster.DescribeClusterRequest()
    partition = describe_quorum.RequestTopicData(
        METADATA_TOPIC, [describe_quorum.RequestPartitionData(0)]
    )
    with Wire(connection, address) as wire:
        try:
            request.include_fenced_brokers = wire.version_of(describe_cluster) >= 2
            described = wire.ask(describe_cluster, request)
        except ClientError as refusal:  # a listener that wants a login or TLS closes it
            if connection.is_secured:
                raise
            raise ClientError(f"{refusal} {ASKS_FOR_A_LOGIN}") from refusal
        if described.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE:
            raise ClientError(
                f"{address[0]}:{address[1]} is the address of a controller: name that of a broker, "
                "where clients connect."
            )
        require_no_error(described.error_code, described.error_message)
        answer = wire.ask(describe_quorum, describe_quorum.DescribeQuorumRequest([partition]))
    require_no_error(answer.error_code, answer.error_message)
    state = answer.topics[0].partitions[0]
    require_no_error(state.error_code, state.error_message)
    voters = {voter.replica_id for voter in state.current_voters}
    return ClusterMembers(
        described.cluster_id,
        {broker.broker_id for broker in described.brokers},
        [
            ControllerAddress(node.node_id, each.name, each.host, each.port)
            for node in sorted(answer.nodes, key=lambda node: int(node.node_id))
            if node.node_id in voters
            for each in node.listeners[:1]
        ],
        {observer.replica_id for observer in state.observers} - voters,
    )


def require_controller(connection: ClientSettings, members: ClusterMembers) -> None:
    """Raise unless a controller of this cluster answers. `connection` has the login of nodes."""
    refusals = []
    for controller in members.controllers:
        try:
            found = _cluster_of(connection, controller)
        except LoginRefused as refusal:
            raise ClientError(f"The controller at {controller}: {refusal}") from refusal
        except Unreachable as refusal:
            refusals.append(str(refusal))
            continue
        except ClientError as refusal:
            raise ClientError(
                f"The controller at {controller} does not talk to this node: {refusal} It may ask "
                "for a login or TLS: put the settings of the cluster's nodes into a file for "
                "--config. The controllers of `headrace start --brokers` let other nodes in with "
                "--controller-listen HOST:PORT --insecure only."
            ) from refusal
        if found == members.id:
            return
        refusals.append(f"At {controller} is a controller of another cluster, {found}.")
    if not refusals:
        refusals = ["It names no addresses of controllers."]
    raise ClientError(
        f"No controller of the cluster {members.id} can be reached from here: {refusals[0]} Start "
        "its first node with `headrace start --controller-listen HOST:PORT --insecure`, then join "
        "again."
    )


def _cluster_of(connection: ClientSettings, controller: ControllerAddress) -> str:
    address = (controller.host, controller.port)
    with Wire(connection, address, timeout_s=PATIENCE_WITH_A_CONTROLLER_S) as wire:
        request = describe_cluster.DescribeClusterRequest(endpoint_type=OF_CONTROLLERS)
        answer = wire.ask(describe_cluster, request)
    require_no_error(answer.error_code, answer.error_message)
    return str(answer.cluster_id)
