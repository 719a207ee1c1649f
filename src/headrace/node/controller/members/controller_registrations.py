"""Decisions about controllers of other processes: the listeners of each (KIP-919).

Every voter registers once per start, so that tools and brokers find all controllers and the feature
levels that each supports; like Apache's controller it accepts any. An unchanged registration is not
written again.
"""

from __future__ import annotations

from typing import Any

from headrace.node.metadata.features import LevelRange
from headrace.node.metadata.image import ControllerImage, Endpoint, MetadataImage
from headrace.node.metadata.snapshot_records import controller_record
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.controller_registration import ControllerRegistrationRequest

# 3.7-IV0: the first metadata.version with registrations of controllers.
FIRST_METADATA_VERSION = 15


def register(image: MetadataImage, request: ControllerRegistrationRequest) -> list[Any]:
    if image.metadata_version < FIRST_METADATA_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata.version {image.metadata_version} has no registrations of controllers.",
        )
    features = {
        feature.name: LevelRange(feature.min_supported_version, feature.max_supported_version)
        for feature in request.features
    }
    wanted = ControllerImage(
        id=request.controller_id,
        incarnation_id=request.incarnation_id,
        endpoints=tuple(
            Endpoint(point.name, point.host, point.port, point.security_protocol)
            for point in request.listeners
        ),
        features=features,
        zk_migration_ready=request.zk_migration_ready,
    )
    if image.controllers.get(wanted.id) == wanted:
        return []
    return [controller_record(wanted)]
