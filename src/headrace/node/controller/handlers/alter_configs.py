"""AlterConfigs, v0-2: replace all settings of a resource; settings that are not named are deleted.

Kept for older clients: two concurrent requests undo each other's changes, and therefore
IncrementalAlterConfigs was added (KIP-339). Does not change loggers. v2 flexible. Needs the same
rights as IncrementalAlterConfigs.
"""

from __future__ import annotations

from headrace.node.controller.config_requests import Kind
from headrace.node.controller.configurations import (
    Alteration,
    Operation,
    Outcome,
    Resource,
    replaced,
)
from headrace.node.controller.controller import Controller
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.steps import Steps
from headrace.wire.protocol.messages import alter_configs as messages
from headrace.wire.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(
    controller: Controller, request: AlterConfigsRequest, call: Call
) -> AlterConfigsResponse | WaitingRequest | Steps:
    return KIND.handle(controller, request, call, validate_only=request.validate_only)


def _resources(request: AlterConfigsRequest) -> list[Resource]:
    return [
        Resource(
            wanted.resource_type,
            wanted.resource_name,
            [Alteration(c.name, Operation.SET, c.value) for c in wanted.configs],
        )
        for wanted in request.resources
    ]


def _response(outcomes: list[Outcome]) -> AlterConfigsResponse:
    return AlterConfigsResponse(
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


KIND = Kind(replaced, _resources, _response)
refused_ahead = KIND.refused_ahead
API = Api(messages=messages, handle=handle, versions=range(0, 3), owner="controller")
