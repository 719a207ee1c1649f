"""FetchSnapshot, v0-1: a piece of a snapshot of the metadata, for a replica far behind.

v1 names the directory of the replica (KIP-853). Between nodes only: needs CLUSTER_ACTION on the
cluster.
"""

from __future__ import annotations

from typing import Any

from headrace.node.controller.controller import Controller
from headrace.node.controller.quorum_requests import ask_quorum
from headrace.node.serving.api import Api, Call
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.messages import fetch_snapshot as messages
from headrace.wire.protocol.messages.fetch_snapshot import FetchSnapshotRequest


def handle(controller: Controller, request: FetchSnapshotRequest, call: Call) -> Any:
    require_on_cluster(controller, call, Operation.CLUSTER_ACTION)
    return ask_quorum(controller, messages, request, call)


API = Api(messages=messages, handle=handle, versions=range(0, 2), owner="controller")
