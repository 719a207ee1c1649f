"""AlterConfigs, v0-2: replace all settings of a resource; what is not named is deleted.

The older way, kept for older clients: two of them at a time undo each other's changes, which is why
IncrementalAlterConfigs came (KIP-339). Loggers are not changed by it. v2 flexible. Needs the same
rights as that.
"""

from __future__ import annotations

from typing import Any

from headrace.controller.configurations import (
    Alteration,
    Alterations,
    Operation,
    Outcome,
    Resource,
    alter,
    is_large,
    late,
    refuse_all,
    refused_by_this_broker,
    replaced,
)
from headrace.controller.controller import Controller
from headrace.controller.handlers.incremental_alter_configs import judge_of
from headrace.protocol.errors import KafkaError
from headrace.protocol.messages import alter_configs as messages
from headrace.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from headrace.protocol.steps import Steps
from headrace.serving.api import Api, Call, Parked


def handle(
    controller: Controller, request: AlterConfigsRequest, call: Call
) -> AlterConfigsResponse | Parked | Steps:
    resources, judge = _resources(request), judge_of(controller, call)
    arguments = controller.settings.given, resources, replaced, judge, request.validate_only
    if is_large(resources):
        return _handle_large(controller, resources, call, arguments)
    try:
        decided = alter(controller.image, *arguments)
        controller.append(decided.records, call.now)
    except KafkaError as refusal:
        return _response(refuse_all(resources, refusal))
    return _answer(controller, decided, call)


def _handle_large(
    controller: Controller, resources: list[Resource], call: Call, arguments: tuple[Any, ...]
) -> Steps:
    try:
        decided = yield from controller.decide_in_slices(alter, call.now, *arguments)
    except KafkaError as refusal:
        return _response(refuse_all(resources, refusal))
    return _answer(controller, decided, call)


def _answer(
    controller: Controller, decided: Alterations, call: Call
) -> AlterConfigsResponse | Parked:
    return controller.answer(
        _response(decided.outcomes),
        call.now,
        late=lambda _: _response(late(decided.outcomes)),
    )


def refused_ahead(
    controller: Controller, request: AlterConfigsRequest, call: Call
) -> AlterConfigsResponse | None:
    """What the broker that was asked refuses by itself, before the active controller decides."""
    outcomes = refused_by_this_broker(
        controller.image,
        controller.settings.given,
        _resources(request),
        replaced,
        judge_of(controller, call),
    )
    return None if outcomes is None else _response(outcomes)


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


API = Api(messages=messages, handle=handle, versions=range(0, 3), owner="controller")
