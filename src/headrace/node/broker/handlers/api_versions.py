"""ApiVersions, v0-4: the APIs and versions that this broker serves; every client asks first.

A version of the future is answered in version 0 with UNSUPPORTED_VERSION (KIP-511; `dispatch.py`).
v1 throttle time. v3 flexible body, client software name, features. v4 features may start at 0.
The APIs of share and streams groups are listed while share.version and streams.version say that
they are served.
librdkafka believes the list only if Produce starts at version 0, so it does, as Apache Kafka's.
"""

from __future__ import annotations

import re

from headrace.node.broker.broker import Broker
from headrace.node.metadata.features import SUPPORTED_FEATURES
from headrace.node.serving.api import Api, Call
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import api_versions as messages
from headrace.wire.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

# The APIs for members and admins, and those between brokers that keep the state.
APIS_OF_SHARE_GROUPS = frozenset({76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92})
APIS_OF_STREAMS_GROUPS = frozenset({88, 89})
NO_APIS = frozenset[int]()
SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(broker: Broker, request: ApiVersionsRequest | None, call: Call) -> ApiVersionsResponse:
    if call.version >= 3 and request is not None and not names_itself_properly(request):
        return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
    at_controller = call.session.listener in broker.controllers
    served = broker.served_by_controllers if at_controller else broker.served
    left_out = NO_APIS if broker.share_groups_served else APIS_OF_SHARE_GROUPS
    if not broker.streams_groups_served:
        left_out |= APIS_OF_STREAMS_GROUPS
    response = ApiVersionsResponse(
        ErrorCode.NONE,
        [ApiVersion(key, low, high) for key, low, high in served if key not in left_out],
    )
    if call.version >= 3:
        add_features(response, broker, call.version)
    return response


def names_itself_properly(request: ApiVersionsRequest) -> bool:
    return bool(
        SOFTWARE_NAME.fullmatch(request.client_software_name)
        and SOFTWARE_NAME.fullmatch(request.client_software_version)
    )


def add_features(response: ApiVersionsResponse, broker: Broker, version: int) -> None:
    image = broker.image
    # Before version 4 a client could not read a feature whose lowest level is 0.
    response.supported_features = [
        SupportedFeatureKey(name, low, high)
        for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
        if low > 0 or version >= 4
    ]
    response.finalized_features_epoch = image.offset
    response.finalized_features = [
        FinalizedFeatureKey(name, level, level)
        for name, level in sorted(image.finalized_features.items())
    ]


API = Api(messages=messages, handle=handle, versions=range(0, 5))
