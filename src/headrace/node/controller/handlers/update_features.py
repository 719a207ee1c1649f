"""UpdateFeatures, v0-2: change finalized feature levels, all of them or none.

v0 has `allow_downgrade`, v1 the kind of change (KIP-584, KIP-778). v2 answers no results for single
features: the first refusal is the answer to all. `validate_only` writes nothing. Needs ALTER on the
cluster.
"""

from __future__ import annotations

from typing import Any

from headrace.node.controller import features
from headrace.node.controller.controller import Controller
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import update_features as messages
from headrace.wire.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


def handle(
    controller: Controller, request: UpdateFeaturesRequest, call: Call
) -> UpdateFeaturesResponse | WaitingRequest:
    records: list[Any] = []
    try:
        require_on_cluster(controller, call, Operation.ALTER)
        for update in request.feature_updates:
            records += features.change_level(
                controller.image,
                update.feature,
                update.max_version_level,
                _upgrade_type(update, call.version),
                kraft_version=controller.log.kraft_version,
                min_in_sync_replicas=controller.settings.min_in_sync_replicas,
            )
    except KafkaError as refusal:
        return _refused(refusal)
    if request.validate_only:
        records = []
    response = UpdateFeaturesResponse(
        error_message=None,
        results=[
            # The message of a success is what Apache answers.
            UpdatableFeatureResult(feature=update.feature, error_message="NONE")
            for update in request.feature_updates
        ],
    )
    return controller.commit(records, response, call.now, late=_late)


def _upgrade_type(update: FeatureUpdateKey, version: int) -> int:
    if version > 0:
        return update.upgrade_type
    return features.UNSAFE_DOWNGRADE if update.allow_downgrade else features.UPGRADE


def _refused(refusal: KafkaError) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=refusal.code, error_message=refusal.message)


def _late(response: UpdateFeaturesResponse) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=None)


API = Api(messages=messages, handle=handle, versions=range(0, 3), owner="controller")
