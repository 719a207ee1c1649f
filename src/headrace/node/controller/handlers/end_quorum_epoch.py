"""EndQuorumEpoch, v0-1: the leader of the quorum resigns and names its preferred successors.

v1 names the successors with their directories (KIP-853). Between nodes only: needs CLUSTER_ACTION
on the cluster.
"""

from __future__ import annotations

from typing import Any

from headrace.node.controller.controller import Controller
from headrace.node.controller.quorum_requests import ask_quorum
from headrace.node.serving.api import Api, Call
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.messages import end_quorum_epoch as messages
from headrace.wire.protocol.messages.end_quorum_epoch import (
    EndQuorumEpochRequest,
)


def handle(controller: Controller, request: EndQuorumEpochRequest, call: Call) -> Any:
    require_on_cluster(controller, call, Operation.CLUSTER_ACTION)
    return ask_quorum(controller, messages, request, call)


API = Api(messages=messages, handle=handle, versions=range(0, 2), owner="controller")
