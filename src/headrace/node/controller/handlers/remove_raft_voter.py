"""RemoveRaftVoter, v0: a voter of the quorum becomes an observer, or leaves (KIP-853).

A leader may remove itself; the last voter stays. Needs ALTER on the cluster.
"""

from __future__ import annotations

from typing import Any

from headrace.node.controller.controller import Controller
from headrace.node.controller.quorum_requests import ask_quorum
from headrace.node.serving.api import Api, Call
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.messages import remove_raft_voter as messages
from headrace.wire.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
)


def handle(controller: Controller, request: RemoveRaftVoterRequest, call: Call) -> Any:
    require_on_cluster(controller, call, Operation.ALTER)
    return ask_quorum(controller, messages, request, call)


API = Api(messages=messages, handle=handle, versions=range(0, 1), owner="controller")
