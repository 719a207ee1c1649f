"""CreatePartitions, v0-3: topics get more partitions, never fewer.

`count` is how many there shall be in all. Without assignments the brokers take turns; with them
there is one list of brokers for each new partition. Not done: throttling (v3).
"""

from __future__ import annotations

from headrace.controller import topics
from headrace.controller.controller import Controller
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import create_partitions as messages
from headrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from headrace.serving.api import Api, Call, Parked


def handle(
    controller: Controller, request: CreatePartitionsRequest, call: Call
) -> CreatePartitionsResponse | Parked:
    decision = topics.create_partitions(controller.image, request)
    if request.timeout_ms <= 0:
        return _not_begun(decision.response)
    return controller.commit(
        decision.records, decision.response, call.now, timeout_ms=request.timeout_ms, late=_late
    )


def _not_begun(response: CreatePartitionsResponse) -> CreatePartitionsResponse:
    """As Apache's controller does with a request that has no time left."""
    for topic in response.results:
        topic.error_code = ErrorCode.REQUEST_TIMED_OUT
        topic.error_message = None
    return response


def _late(response: CreatePartitionsResponse) -> CreatePartitionsResponse:
    for topic in response.results:
        topic.error_code = topic.error_code or ErrorCode.REQUEST_TIMED_OUT
    return response


API = Api(messages=messages, handle=handle, versions=range(0, 4), owner="controller")
