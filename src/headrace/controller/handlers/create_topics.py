"""CreateTopics, v2-7: new topics, each answered on its own.

`validate_only` decides everything and writes nothing. v5 answers partitions, replicas and the
settings of the new topic (KIP-525). v7 answers the topic's id. The answer leaves when the topics
are committed and this node's broker has them. Not done: policies, throttling.
"""

from __future__ import annotations

from headrace.controller.controller import Controller
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.messages import create_topics as messages
from headrace.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.serving.api import Api, Call, Parked

# As Apache's controller does: a request without time left is not begun.
TIMED_OUT = KafkaError(ErrorCode.REQUEST_TIMED_OUT)


def handle(
    controller: Controller, request: CreateTopicsRequest, call: Call
) -> CreateTopicsResponse | Parked:
    if request.timeout_ms <= 0:
        return _refused(request, TIMED_OUT)
    try:
        response = controller.create_topics(request, call.now)
    except KafkaError as refusal:
        return _refused(request, refusal)
    return controller.answer(response, call.now, timeout_ms=request.timeout_ms, late=_late)


def _refused(request: CreateTopicsRequest, refusal: KafkaError) -> CreateTopicsResponse:
    """The whole request at once."""
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
