"""IncrementalAlterConfigs, v0-1: set, delete, append to or subtract from single settings (KIP-339).

Each resource is answered with its own code, in the order of the request. Settings of brokers take
effect when they are committed. v1 flexible. Needs ALTER_CONFIGS on the topic or group, for
everything else on the cluster. Not done: levels of loggers (there is none to change).
"""

from __future__ import annotations

from headrace.node.controller.config_requests import Kind
from headrace.node.controller.configurations import Alteration, Outcome, Resource, changed
from headrace.node.controller.controller import Controller
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.steps import Steps
from headrace.wire.protocol.messages import incremental_alter_configs as messages
from headrace.wire.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def handle(
    controller: Controller, request: IncrementalAlterConfigsRequest, call: Call
) -> IncrementalAlterConfigsResponse | WaitingRequest | Steps:
    return KIND.handle(controller, request, call, validate_only=request.validate_only)


def _resources(request: IncrementalAlterConfigsRequest) -> list[Resource]:
    return [
        Resource(
            wanted.resource_type,
            wanted.resource_name,
            [Alteration(c.name, c.config_operation, c.value) for c in wanted.configs],
        )
        for wanted in request.resources
    ]


def _response(outcomes: list[Outcome]) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=outcome.code,
                error_message=outcome.message,
                resource_type=outcome.type,
                resource_name=outcome.name,
            )
            for outcome in outcomes
        ]
    )


KIND = Kind(changed, _resources, _response)
refused_ahead = KIND.refused_ahead
API = Api(messages=messages, handle=handle, versions=range(0, 2), owner="controller")
