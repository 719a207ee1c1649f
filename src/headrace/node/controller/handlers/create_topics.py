"""CreateTopics, v2-7: new topics, each with its own result.

`validate_only` decides everything and writes nothing. v5 answers partitions, replicas and the
settings of the new topic (KIP-525). v7 answers the topic's id. The answer leaves when the topics
are committed and this node's broker has them. A quota of
changes counts the new partitions; versions before 6 do not know its error. Not done: policies.
"""

from __future__ import annotations

from collections import Counter

from headrace.node.controller import topics
from headrace.node.controller.controller import Controller
from headrace.node.metadata.topic_names import METADATA_TOPIC
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.quotas import admission
from headrace.node.serving.rights import TOPIC, may, may_on_cluster
from headrace.node.steps import Steps
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import create_topics as messages
from headrace.wire.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

FIRST_VERSION_WITH_QUOTAS = 6  # KIP-599
# As Apache's controller does: a request without time left is not begun.
TIMED_OUT = KafkaError(ErrorCode.REQUEST_TIMED_OUT)


def handle(
    controller: Controller, request: CreateTopicsRequest, call: Call
) -> CreateTopicsResponse | WaitingRequest | Steps:
    if request.timeout_ms <= 0:
        return _refused(request, TIMED_OUT)
    denied = _take_out_denied(controller, request, call)
    admit = admission(call, strict_from=FIRST_VERSION_WITH_QUOTAS)
    # A quota may be charged only once for each topic, so the request must be decided once.
    if admit is None and topics.is_large(request.topics, controller.settings.topic_rules):
        return _handle_large(controller, request, call, denied)
    try:
        response = controller.create_topics(request, call.now, admit)
    except KafkaError as refusal:
        return _all_refused(request, refusal, denied)
    return _answer(controller, request, call, response, denied)


def _handle_large(
    controller: Controller,
    request: CreateTopicsRequest,
    call: Call,
    denied: list[CreatableTopicResult],
) -> Steps:
    try:
        response = yield from controller.create_topics_in_slices(request, call.now)
    except KafkaError as refusal:
        return _all_refused(request, refusal, denied)
    return _answer(controller, request, call, response, denied)


def _all_refused(
    request: CreateTopicsRequest, refusal: KafkaError, denied: list[CreatableTopicResult]
) -> CreateTopicsResponse:
    refused = _refused(request, refusal)
    refused.topics += denied
    return refused


def _answer(
    controller: Controller,
    request: CreateTopicsRequest,
    call: Call,
    response: CreateTopicsResponse,
    denied: list[CreatableTopicResult],
) -> CreateTopicsResponse | WaitingRequest:
    if controller.authorizer is not None:
        _hide_settings(controller, response, call)
    response.topics += denied
    return controller.answer(
        response, call.now, timeout_ms=request.timeout_ms, late=_late, with_files=True
    )


def _take_out_denied(
    controller: Controller, request: CreateTopicsRequest, call: Call
) -> list[CreatableTopicResult]:
    """Removes topics that the client may not create from the request, for refusals in the
    answer."""
    if may_on_cluster(controller, call, Operation.CREATE, quietly=True):
        return []
    times = Counter(topic.name for topic in request.topics)
    denied = {
        name
        for name, count in times.items()
        if count == 1
        and name != METADATA_TOPIC
        and not may(controller, call, Operation.CREATE, TOPIC, name)
    }
    request.topics = [topic for topic in request.topics if topic.name not in denied]
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return [_failed(name, code, "Authorization failed.") for name in times if name in denied]


def _hide_settings(controller: Controller, response: CreateTopicsResponse, call: Call) -> None:
    """Leaves only name and id of a new topic if the caller may not see settings (KIP-525)."""
    for topic in response.topics:
        shown = may(controller, call, Operation.DESCRIBE_CONFIGS, TOPIC, topic.name, quietly=True)
        if not topic.error_code and not shown:
            topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []


def _refused(request: CreateTopicsRequest, refusal: KafkaError) -> CreateTopicsResponse:
    """Refuses the whole request."""
    return CreateTopicsResponse(
        topics=[_failed(topic.name, refusal.code, refusal.message) for topic in request.topics]
    )


def _late(response: CreateTopicsResponse) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            topic if topic.error_code else _failed(topic.name, TIMED_OUT.code, None)
            for topic in response.topics
        ]
    )


def _failed(name: str, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


API = Api(messages=messages, handle=handle, versions=range(2, 8), owner="controller")
