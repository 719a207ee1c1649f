"""ReadShareGroupState, v0: a partition's new leader reads the progress of a share group.

The leader's epoch is kept: reads and writes with a lower one are refused from then on. The answer
leaves when it is committed (`share_state_answers.py`). Needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.share_state_access import READ
from headrace.node.broker.coordinators.share_state_answers import answer_state
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.wire.protocol.messages import read_share_group_state as messages
from headrace.wire.protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
)


def handle(
    broker: Broker, request: ReadShareGroupStateRequest, call: Call
) -> ReadShareGroupStateResponse | WaitingRequest:
    answer: ReadShareGroupStateResponse | WaitingRequest = answer_state(broker, READ, request, call)
    return answer


API = Api(messages=messages, handle=handle, versions=range(0, 1))
