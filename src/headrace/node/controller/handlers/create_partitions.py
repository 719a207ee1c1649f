"""CreatePartitions, v0-3: topics get more partitions, never fewer.

`count` is the new total. Without assignments the brokers take turns; with them there is one list of
brokers for each new partition. A quota of changes counts the new partitions; versions before 3 do
not know its error.
"""

from __future__ import annotations

from collections import Counter

from headrace.node.controller import topics
from headrace.node.controller.controller import Controller
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.quotas import admission
from headrace.node.serving.rights import TOPIC, may
from headrace.node.steps import Steps
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import create_partitions as messages
from headrace.wire.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

FIRST_VERSION_WITH_QUOTAS = 3  # KIP-599


def handle(
    controller: Controller, request: CreatePartitionsRequest, call: Call
) -> CreatePartitionsResponse | WaitingRequest | Steps:
    denied = _take_out_denied(controller, request, call)
    admit = admission(call, strict_from=FIRST_VERSION_WITH_QUOTAS)
    # A quota may be charged only once for each topic, so the request must be decided once.
    if admit is None and request.timeout_ms > 0 and topics.adds_many(controller.image, request):
        return _handle_large(controller, request, call, denied)
    decision = topics.create_partitions(controller.image, request, admit)
    decision.response.results += denied
    if request.timeout_ms <= 0:
        return _not_begun(decision.response)
    try:
        controller.append(decision.records, call.now)
    except KafkaError as refusal:
        return _refused(decision.response, refusal.code)
    return _answer(controller, request, call, decision.response)


def _handle_large(
    controller: Controller,
    request: CreatePartitionsRequest,
    call: Call,
    denied: list[CreatePartitionsTopicResult],
) -> Steps:
    try:
        decision = yield from controller.decide_in_slices(
            topics.create_partitions_in_steps, call.now, request
        )
    except KafkaError as refusal:
        names = {topic.name: None for topic in request.topics}
        results = [CreatePartitionsTopicResult(name, refusal.code, None) for name in names]
        return CreatePartitionsResponse(results=results + denied)
    decision.response.results += denied
    return _answer(controller, request, call, decision.response)


def _answer(
    controller: Controller,
    request: CreatePartitionsRequest,
    call: Call,
    response: CreatePartitionsResponse,
) -> CreatePartitionsResponse | WaitingRequest:
    return controller.answer(
        response, call.now, timeout_ms=request.timeout_ms, late=_late, with_files=True
    )


def _take_out_denied(
    controller: Controller, request: CreatePartitionsRequest, call: Call
) -> list[CreatePartitionsTopicResult]:
    """Removes topics that the client may not alter from the request, for refusals in the answer."""
    times = Counter(topic.name for topic in request.topics)
    denied = {
        name
        for name, count in times.items()
        if count == 1 and not may(controller, call, Operation.ALTER, TOPIC, name)
    }
    request.topics = [topic for topic in request.topics if topic.name not in denied]
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return [CreatePartitionsTopicResult(name, code, None) for name in times if name in denied]


def _not_begun(response: CreatePartitionsResponse) -> CreatePartitionsResponse:
    """Answers a request without time left as Apache's controller does."""
    for topic in response.results:
        topic.error_code = ErrorCode.REQUEST_TIMED_OUT
        topic.error_message = None
    return response


def _late(response: CreatePartitionsResponse) -> CreatePartitionsResponse:
    return _refused(response, ErrorCode.REQUEST_TIMED_OUT)


def _refused(response: CreatePartitionsResponse, code: ErrorCode) -> CreatePartitionsResponse:
    for topic in response.results:
        topic.error_code = topic.error_code or code
    return response


API = Api(messages=messages, handle=handle, versions=range(0, 4), owner="controller")
