"""DescribeCluster, v0-2: the brokers, the cluster's id and the controller.

v1 endpoint type (brokers or controllers; KIP-919): each kind of listener lists its own kind. v2
fenced brokers (KIP-1073). The controller in the answer is a broker, as in Apache Kafka: each broker
forwards requests for the controller. Clients of a controller's listener get the active controller.
"""

from __future__ import annotations

from headrace.node.broker.authorized_operations import on_cluster
from headrace.node.broker.broker import Broker
from headrace.node.broker.cluster.brokers_at_hand import brokers_at_hand, registered_endpoint
from headrace.node.broker.cluster.endpoint import Endpoint
from headrace.node.serving.api import Api, Call
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import describe_cluster as messages
from headrace.wire.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


def handle(broker: Broker, request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    at_controller = broker.controllers.get(call.session.listener)
    kind = BROKERS if at_controller is None else CONTROLLERS
    if request.endpoint_type != kind:
        return wrong_endpoint(request.endpoint_type, kind)
    response = DescribeClusterResponse()
    response.cluster_id = broker.image.cluster_id
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = on_cluster(broker, call)
    if at_controller is not None:
        response.endpoint_type = CONTROLLERS
        response.controller_id = broker.active_controller_id()
        response.brokers = controllers_on(broker, call.session.listener, at_controller)
        return response
    response.controller_id = brokers_at_hand(broker, call.session.listener).controller_id
    response.brokers = [
        DescribeClusterBroker(node_id, endpoint.host, endpoint.port, found.rack, found.fenced)
        for node_id, found in broker.image.brokers.items()
        if (endpoint := registered_endpoint(broker, node_id, call.session.listener)) is not None
        and (request.include_fenced_brokers or not found.fenced)
    ]
    return response


def controllers_on(broker: Broker, listener: str, own: Endpoint) -> list[DescribeClusterBroker]:
    """Returns all controllers that have registered with a listener of this name; this node knows
    its own listener."""
    found = {
        controller.id: DescribeClusterBroker(controller.id, point.host, point.port)
        for controller in broker.image.controllers.values()
        for point in controller.endpoints
        if point.name == listener
    }
    found[broker.node_id] = DescribeClusterBroker(broker.node_id, *own)
    return [found[node_id] for node_id in sorted(found)]


def wrong_endpoint(endpoint_type: int, kind: int) -> DescribeClusterResponse:
    response = DescribeClusterResponse()
    if endpoint_type in (BROKERS, CONTROLLERS):
        here, there = ("broker", "controllers") if kind == BROKERS else ("controller", "brokers")
        response.error_code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        response.error_message = f"This is a {here}'s listener; {there} do not answer here."
    else:
        response.error_code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        response.error_message = f"Endpoint type {endpoint_type} is not known."
    return response


API = Api(messages=messages, handle=handle, versions=range(0, 3))
