"""AlterConfigs, v0-2: replace all settings of a resource; what is not named is deleted.

The older way, kept for older clients: two of them at a time undo each other's changes, which is why
IncrementalAlterConfigs came (KIP-339). Loggers are not changed by it. v2 flexible. Needs the same
rights as that.
"""

from __future__ import annotations

from headrace.controller.configurations import (
    Alteration,
    Operation,
    Outcome,
    Resource,
    late,
    refuse_all,
    replace_all,
)
from headrace.controller.controller import Controller
from headrace.controller.handlers.incremental_alter_configs import require_may_alter
from headrace.protocol.errors import KafkaError
from headrace.protocol.messages import alter_configs as messages
from headrace.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from headrace.serving.api import Api, Call, Parked


def handle(
    controller: Controller, request: AlterConfigsRequest, call: Call
) -> AlterConfigsResponse | Parked:
    resources = [
        Resource(
            wanted.resource_type,
            wanted.resource_name,
            [Alteration(c.name, Operation.SET, c.value) for c in wanted.configs],
        )
        for wanted in request.resources
    ]
    try:
        decided = replace_all(
            controller.image,
            controller.settings.given,
            resources,
            validate_only=request.validate_only,
            require_may=lambda resource: require_may_alter(controller, call, resource),
            require_usable=controller.require_usable,
        )
        controller.append(decided.records, call.now)
    except KafkaError as refusal:
        return _response(refuse_all(resources, refusal))
    return controller.answer(
        _response(decided.outcomes),
        call.now,
        late=lambda _: _response(late(decided.outcomes)),
    )


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


API = Api(messages=messages, handle=handle, versions=range(0, 3), owner="controller")
