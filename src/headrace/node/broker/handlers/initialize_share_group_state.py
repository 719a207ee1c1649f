"""InitializeShareGroupState, v0: the state of a share partition begins, or begins again.

The group coordinator asks it for partitions that a group begins to read, or whose offsets are
reset. A lower state epoch than the known one is refused. The answer leaves when it is committed
(`share_state_answers.py`). Needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.share_state_access import INITIALIZE
from headrace.node.broker.coordinators.share_state_answers import answer_state
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.wire.protocol.messages import initialize_share_group_state as messages
from headrace.wire.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)


def handle(
    broker: Broker, request: InitializeShareGroupStateRequest, call: Call
) -> InitializeShareGroupStateResponse | WaitingRequest:
    answer: InitializeShareGroupStateResponse | WaitingRequest = answer_state(
        broker, INITIALIZE, request, call
    )
    return answer


API = Api(messages=messages, handle=handle, versions=range(0, 1))
