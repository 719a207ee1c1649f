"""DeleteShareGroupState, v0: a share group does not read a partition any more.

It is not an error if the state does not exist. The answer leaves when it is committed
(`share_state_answers.py`). Needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.share_state_access import DELETE
from headrace.node.broker.coordinators.share_state_answers import answer_state
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.wire.protocol.messages import delete_share_group_state as messages
from headrace.wire.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)


def handle(
    broker: Broker, request: DeleteShareGroupStateRequest, call: Call
) -> DeleteShareGroupStateResponse | WaitingRequest:
    answer: DeleteShareGroupStateResponse | WaitingRequest = answer_state(
        broker, DELETE, request, call
    )
    return answer


API = Api(messages=messages, handle=handle, versions=range(0, 1))
