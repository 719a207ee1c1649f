"""DeleteTopics, v1-6: topics are deleted, each with its own result.

v6 takes topic ids too. The answer leaves when the deletion is committed; the files of the
partitions are removed later. `delete.topic.enable=false` refuses all. A quota of
changes counts the partitions; versions before 5 do not know its error.
"""

from __future__ import annotations

from collections import Counter

from headrace.node.controller import topics
from headrace.node.controller.controller import Controller
from headrace.node.serving.api import Api, Call, WaitingRequest, require_few
from headrace.node.serving.quotas import admission
from headrace.node.serving.rights import REFUSAL_OF, TOPIC, may, may_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import delete_topics as messages
from headrace.wire.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headrace.wire.protocol.primitives import ZERO_ID

FIRST_VERSION_WITH_IDS = 6
FIRST_VERSION_WITH_QUOTAS = 5  # KIP-599


def handle(
    controller: Controller, request: DeleteTopicsRequest, call: Call
) -> DeleteTopicsResponse | WaitingRequest:
    require_few(messages.NAME, len(request.topics) + len(request.topic_names), "topics")
    denied = _take_out_denied(controller, request, call)
    decision = topics.delete_topics(
        controller.image,
        request,
        call.version,
        controller.settings.topic_rules,
        admission(call, strict_from=FIRST_VERSION_WITH_QUOTAS),
    )
    decision.response.responses += denied
    if request.timeout_ms <= 0:
        return _not_begun(decision.response)
    try:
        return controller.commit(
            decision.records, decision.response, call.now, timeout_ms=request.timeout_ms, late=_late
        )
    except KafkaError as refusal:
        return _refused(decision.response, refusal.code)


def _take_out_denied(
    controller: Controller, request: DeleteTopicsRequest, call: Call
) -> list[DeletableTopicResult]:
    """Removes topics that the client may not delete from the request, for refusals in the answer.

    A client that may not describe a topic does not learn whether it exists, nor the name of an id.
    """
    if (
        controller.authorizer is None
        or not controller.settings.topic_rules.delete_topic_enable
        or may_on_cluster(controller, call, Operation.DELETE, quietly=True)
    ):
        return []
    denied: list[DeletableTopicResult] = []
    by_id = call.version >= FIRST_VERSION_WITH_IDS
    asked = request.topics if by_id else [DeleteTopicState(name) for name in request.topic_names]
    times = Counter((topic.name, topic.topic_id) for topic in asked)
    kept: list[DeleteTopicState] = []
    for topic in asked:
        clear = times[topic.name, topic.topic_id] == 1 and (
            (topic.name is None) != (topic.topic_id == ZERO_ID)
        )
        refusal = _refusal(controller, topic, call) if clear else None
        if refusal is None:
            kept.append(topic)
        else:
            denied.append(refusal)
    if by_id:
        request.topics = kept
    else:
        request.topic_names = [topic.name for topic in kept if topic.name is not None]
    return denied


def _refusal(
    controller: Controller, topic: DeleteTopicState, call: Call
) -> DeletableTopicResult | None:
    """Returns None if the topic may be deleted, or does not exist and the client may know that."""
    image, name = controller.image, topic.name
    there = name in image.topics
    if name is None:
        found = image.topics_by_id.get(topic.topic_id)
        if found is None:
            return None
        name, there = found.name, True
    visible = may(controller, call, Operation.DESCRIBE, TOPIC, name)
    if visible and (not there or may(controller, call, Operation.DELETE, TOPIC, name)):
        return None
    shown = name if visible or topic.name is not None else None
    code = REFUSAL_OF[TOPIC]
    return DeletableTopicResult(shown, topic.topic_id, code, code.description)


def _not_begun(response: DeleteTopicsResponse) -> DeleteTopicsResponse:
    """Answers a request without time left as Apache's controller does."""
    for topic in response.responses:
        topic.error_code = ErrorCode.REQUEST_TIMED_OUT
        topic.error_message = None
    return response


def _late(response: DeleteTopicsResponse) -> DeleteTopicsResponse:
    return _refused(response, ErrorCode.REQUEST_TIMED_OUT)


def _refused(response: DeleteTopicsResponse, code: ErrorCode) -> DeleteTopicsResponse:
    for topic in response.responses:
        topic.error_code = topic.error_code or code
    return response


API = Api(messages=messages, handle=handle, versions=range(1, 7), owner="controller")
