"""UpdateRaftVoter, v0: a voter says where it listens by now (KIP-853).

Between nodes only: needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from typing import Any

from headrace.controller.controller import Controller
from headrace.controller.quorum_requests import ask_quorum
from headrace.protocol.acls import Operation
from headrace.protocol.messages import update_raft_voter as messages
from headrace.protocol.messages.update_raft_voter import (
    UpdateRaftVoterRequest,
)
from headrace.serving.api import Api, Call
from headrace.serving.rights import require_on_cluster


def handle(controller: Controller, request: UpdateRaftVoterRequest, call: Call) -> Any:
    require_on_cluster(controller, call, Operation.CLUSTER_ACTION)
    return ask_quorum(controller, messages, request, call)


API = Api(messages=messages, handle=handle, versions=range(0, 1), owner="controller")
