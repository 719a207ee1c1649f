"""Decides and answers AlterConfigs and IncrementalAlterConfigs, which have different messages.

They differ in the effect on settings that a request does not name (`Kind.change`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headrace.node.controller.configurations import (
    Alterations,
    Change,
    Judge,
    Outcome,
    Resource,
    alter,
    alter_in_steps,
    is_large,
    late,
    refuse_all,
    refused_by_this_broker,
)
from headrace.node.controller.controller import Controller
from headrace.node.metadata.configs import ResourceType
from headrace.node.serving.api import Call, WaitingRequest
from headrace.node.serving.rights import CLUSTER, GROUP, TOPIC, require
from headrace.node.steps import Steps
from headrace.wire.protocol.acls import CLUSTER_NAME, Operation
from headrace.wire.protocol.errors import KafkaError

Request = TypeVar("Request")
Response = TypeVar("Response")

# The resources on which rights are checked; everything else is the cluster's.
OF_THEIR_OWN = {int(ResourceType.TOPIC): TOPIC, int(ResourceType.GROUP): GROUP}


@dataclass(frozen=True, slots=True)
class Kind(Generic[Request, Response]):
    change: Change
    resources_of: Callable[[Request], list[Resource]]
    response_of: Callable[[list[Outcome]], Response]

    def handle(
        self, controller: Controller, request: Request, call: Call, *, validate_only: bool
    ) -> Response | WaitingRequest | Steps:
        resources, judge = self.resources_of(request), judge_of(controller, call)
        arguments = controller.settings.given, resources, self.change, judge, validate_only
        if is_large(resources):
            return self._handle_large(controller, resources, call, arguments)
        try:
            decided = alter(controller.image, *arguments)
            controller.append(decided.records, call.now)
        except KafkaError as refusal:
            return self.response_of(refuse_all(resources, refusal))
        return self._answer(controller, decided, call)

    def _handle_large(
        self,
        controller: Controller,
        resources: list[Resource],
        call: Call,
        arguments: tuple[Any, ...],
    ) -> Steps:
        try:
            decided = yield from controller.decide_in_slices(alter_in_steps, call.now, *arguments)
        except KafkaError as refusal:
            return self.response_of(refuse_all(resources, refusal))
        return self._answer(controller, decided, call)

    def _answer(
        self, controller: Controller, decided: Alterations, call: Call
    ) -> Response | WaitingRequest:
        return controller.answer(
            self.response_of(decided.outcomes),
            call.now,
            late=lambda _: self.response_of(late(decided.outcomes)),
        )

    def refused_ahead(
        self, controller: Controller, request: Request, call: Call
    ) -> Response | None:
        """Returns the refusal of changes that the receiving broker refuses before the controller
        decides."""
        outcomes = refused_by_this_broker(
            controller.image,
            controller.settings.given,
            self.resources_of(request),
            self.change,
            judge_of(controller, call),
        )
        return None if outcomes is None else self.response_of(outcomes)


def judge_of(controller: Controller, call: Call) -> Judge:
    return Judge(
        lambda resource: require_may_alter(controller, call, resource), controller.require_usable
    )


def require_may_alter(controller: Controller, call: Call, resource: Resource) -> None:
    kind = OF_THEIR_OWN.get(resource.type, CLUSTER)
    name = CLUSTER_NAME if kind is CLUSTER else resource.name
    require(controller, call, Operation.ALTER_CONFIGS, kind, name)
