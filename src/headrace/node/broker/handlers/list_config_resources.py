"""ListConfigResources, v0-1: the names of everything that can have settings (KIP-1142).

v0 knew subscriptions to client metrics only. v1 asks for types; none named are all of them. Topics
and brokers are listed whether or not something is set for them, groups and subscriptions if so.
Needs DESCRIBE_CONFIGS on the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from headrace.node.metadata.configs import ResourceType
from headrace.node.metadata.image import MetadataImage
from headrace.node.serving.api import Api, Call
from headrace.node.serving.rights import Guarded, require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import list_config_resources as messages
from headrace.wire.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

# The order in which Apache lists them.
ORDER = (
    ResourceType.GROUP,
    ResourceType.CLIENT_METRICS,
    ResourceType.BROKER_LOGGER,
    ResourceType.BROKER,
    ResourceType.TOPIC,
)


class BrokerWithImage(Guarded, Protocol):
    image: MetadataImage


def handle(
    broker: BrokerWithImage, request: ListConfigResourcesRequest, call: Call
) -> ListConfigResourcesResponse:
    require_on_cluster(broker, call, Operation.DESCRIBE_CONFIGS)
    if call.version == 0:
        wanted = {int(ResourceType.CLIENT_METRICS)}
    else:
        wanted = set(request.resource_types) or set(map(int, ORDER))
    if not wanted <= set(ORDER):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(name, kind)
            for kind in ORDER
            if kind in wanted
            for name in _names(broker.image, kind)
        ]
    )


def _names(image: MetadataImage, kind: ResourceType) -> Iterable[str]:
    if kind is ResourceType.TOPIC:
        return sorted(image.topics)
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return map(str, sorted(image.brokers))
    return sorted(name for resource_type, name in image.configs if resource_type == kind)


API = Api(messages=messages, handle=handle, versions=range(0, 2))
