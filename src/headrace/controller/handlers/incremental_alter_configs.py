"""IncrementalAlterConfigs, v0-1: set, delete, append to or subtract from single settings (KIP-339).

Each resource is answered with its own code, in the order of the request. Settings of brokers take
effect when they are committed. v1 flexible. Needs ALTER_CONFIGS on the topic or group, for
everything else on the cluster. Not done: levels of loggers (there is none to change).
"""

from __future__ import annotations

from typing import Any

from headrace.controller.configurations import (
    Alteration,
    Alterations,
    Judge,
    Outcome,
    Resource,
    alter,
    changed,
    is_large,
    late,
    refuse_all,
    refused_by_this_broker,
)
from headrace.controller.controller import Controller
from headrace.metadata.configs import ResourceType
from headrace.protocol.acls import CLUSTER_NAME, Operation
from headrace.protocol.errors import KafkaError
from headrace.protocol.messages import incremental_alter_configs as messages
from headrace.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.protocol.steps import Steps
from headrace.serving.api import Api, Call, Parked
from headrace.serving.rights import CLUSTER, GROUP, TOPIC, require

# What rights are asked on; everything else is the cluster's.
OF_THEIR_OWN = {int(ResourceType.TOPIC): TOPIC, int(ResourceType.GROUP): GROUP}


def handle(
    controller: Controller, request: IncrementalAlterConfigsRequest, call: Call
) -> IncrementalAlterConfigsResponse | Parked | Steps:
    resources, judge = _resources(request), judge_of(controller, call)
    arguments = controller.settings.given, resources, changed, judge, request.validate_only
    if is_large(resources):
        return _handle_large(controller, resources, call, arguments)
    try:
        decided = alter(controller.image, *arguments)
        controller.append(decided.records, call.now)
    except KafkaError as refusal:
        return _response(refuse_all(resources, refusal))
    return _answer(controller, decided, call)


def refused_ahead(
    controller: Controller, request: IncrementalAlterConfigsRequest, call: Call
) -> IncrementalAlterConfigsResponse | None:
    """What the broker that was asked refuses by itself, before the active controller decides."""
    outcomes = refused_by_this_broker(
        controller.image,
        controller.settings.given,
        _resources(request),
        changed,
        judge_of(controller, call),
    )
    return None if outcomes is None else _response(outcomes)


def _resources(request: IncrementalAlterConfigsRequest) -> list[Resource]:
    return [
        Resource(
            wanted.resource_type,
            wanted.resource_name,
            [Alteration(c.name, c.config_operation, c.value) for c in wanted.configs],
        )
        for wanted in request.resources
    ]


def judge_of(controller: Controller, call: Call) -> Judge:
    return Judge(
        lambda resource: require_may_alter(controller, call, resource), controller.require_usable
    )


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
) -> IncrementalAlterConfigsResponse | Parked:
    return controller.answer(
        _response(decided.outcomes),
        call.now,
        late=lambda _: _response(late(decided.outcomes)),
    )


def require_may_alter(controller: Controller, call: Call, resource: Resource) -> None:
    kind = OF_THEIR_OWN.get(resource.type, CLUSTER)
    name = CLUSTER_NAME if kind is CLUSTER else resource.name
    require(controller, call, Operation.ALTER_CONFIGS, kind, name)


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


API = Api(messages=messages, handle=handle, versions=range(0, 2), owner="controller")
