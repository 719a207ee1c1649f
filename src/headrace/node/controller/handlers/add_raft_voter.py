"""AddRaftVoter, v0-1: an observer of the quorum becomes a voter (KIP-853).

It must have caught up first. v1 can be answered before the change is committed. Needs ALTER on the
cluster.
"""

from __future__ import annotations

from typing import Any

from headrace.node.controller.controller import Controller
from headrace.node.controller.quorum_requests import ask_quorum
from headrace.node.serving.api import Api, Call
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.messages import add_raft_voter as messages
from headrace.wire.protocol.messages.add_raft_voter import AddRaftVoterRequest


def handle(controller: Controller, request: AddRaftVoterRequest, call: Call) -> Any:
    require_on_cluster(controller, call, Operation.ALTER)
    return ask_quorum(controller, messages, request, call)


API = Api(messages=messages, handle=handle, versions=range(0, 2), owner="controller")
