"""ReadShareGroupStateSummary, v0-1: where a share group is in a partition, without its batches.

A state that was never initialized has the start offset -1. v1 how many records behind it are done.
The answer leaves when it is committed (`share_state_answers.py`). Needs CLUSTER_ACTION on the
cluster.
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.share_state_access import SUMMARY
from headrace.node.broker.coordinators.share_state_answers import answer_state
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.wire.protocol.messages import read_share_group_state_summary as messages
from headrace.wire.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)


def handle(
    broker: Broker, request: ReadShareGroupStateSummaryRequest, call: Call
) -> ReadShareGroupStateSummaryResponse | WaitingRequest:
    answer: ReadShareGroupStateSummaryResponse | WaitingRequest = answer_state(
        broker, SUMMARY, request, call
    )
    return answer


API = Api(messages=messages, handle=handle, versions=range(0, 2))
