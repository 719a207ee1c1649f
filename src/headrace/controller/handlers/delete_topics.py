"""DeleteTopics, v1-6: topics go, each answered on its own.

v6 takes topic ids too. The answer leaves when the deletion is committed; the files of the
partitions are removed later. `delete.topic.enable=false` refuses all. Not done: throttling.
"""

from __future__ import annotations

from headrace.controller import topics
from headrace.controller.controller import Controller
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import delete_topics as messages
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from headrace.serving.api import Api, Call, Parked


def handle(
    controller: Controller, request: DeleteTopicsRequest, call: Call
) -> DeleteTopicsResponse | Parked:
    decision = topics.delete_topics(
        controller.image, request, call.version, controller.settings.topic_rules
    )
    if request.timeout_ms <= 0:
        return _not_begun(decision.response)
    return controller.commit(
        decision.records, decision.response, call.now, timeout_ms=request.timeout_ms, late=_late
    )


def _not_begun(response: DeleteTopicsResponse) -> DeleteTopicsResponse:
    """As Apache's controller does with a request that has no time left."""
    for topic in response.responses:
        topic.error_code = ErrorCode.REQUEST_TIMED_OUT
        topic.error_message = None
    return response


def _late(response: DeleteTopicsResponse) -> DeleteTopicsResponse:
    for topic in response.responses:
        topic.error_code = topic.error_code or ErrorCode.REQUEST_TIMED_OUT
    return response


API = Api(messages=messages, handle=handle, versions=range(1, 7), owner="controller")
