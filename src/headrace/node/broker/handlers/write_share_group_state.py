"""WriteShareGroupState, v0-1: a partition's leader stores the progress of a share group.

v1 how many records after the start offset are done. The answer leaves when it is committed
(`share_state_answers.py`). Needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.share_state_access import WRITE
from headrace.node.broker.coordinators.share_state_answers import answer_state
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.wire.protocol.messages import write_share_group_state as messages
from headrace.wire.protocol.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)


def handle(
    broker: Broker, request: WriteShareGroupStateRequest, call: Call
) -> WriteShareGroupStateResponse | WaitingRequest:
    answer: WriteShareGroupStateResponse | WaitingRequest = answer_state(
        broker, WRITE, request, call
    )
    return answer


API = Api(messages=messages, handle=handle, versions=range(0, 2))
