"""Vote, v0-2: another voter stands for the quorum's leader, or asks whether it might.

v1 names the directories of both voters (KIP-853), v2 has pre-votes (KIP-996). Between nodes only:
needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from typing import Any

from headrace.controller.controller import Controller
from headrace.controller.quorum_requests import ask_quorum
from headrace.protocol.acls import Operation
from headrace.protocol.messages import vote as messages
from headrace.protocol.messages.vote import VoteRequest
from headrace.serving.api import Api, Call
from headrace.serving.rights import require_on_cluster


def handle(controller: Controller, request: VoteRequest, call: Call) -> Any:
    require_on_cluster(controller, call, Operation.CLUSTER_ACTION)
    return ask_quorum(controller, messages, request, call)


API = Api(messages=messages, handle=handle, versions=range(0, 3), owner="controller")
