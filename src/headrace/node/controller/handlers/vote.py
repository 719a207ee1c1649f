"""Vote, v0-2: another voter is a candidate for leader of the quorum, or asks whether it could win.

v1 names the directories of both voters (KIP-853), v2 has pre-votes (KIP-996). Between nodes only:
needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from typing import Any

from headrace.node.controller.controller import Controller
from headrace.node.controller.quorum_requests import ask_quorum
from headrace.node.serving.api import Api, Call
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.messages import vote as messages
from headrace.wire.protocol.messages.vote import VoteRequest


def handle(controller: Controller, request: VoteRequest, call: Call) -> Any:
    require_on_cluster(controller, call, Operation.CLUSTER_ACTION)
    return ask_quorum(controller, messages, request, call)


API = Api(messages=messages, handle=handle, versions=range(0, 3), owner="controller")
