"""FetchSnapshot, v0-1: a piece of a snapshot of the metadata, for a replica far behind.

v1 names the directory of the replica (KIP-853). Between nodes only: needs CLUSTER_ACTION on the
cluster.
"""

from __future__ import annotations

from typing import Any

from headrace.controller.controller import Controller
from headrace.controller.quorum_requests import ask_quorum
from headrace.protocol.acls import Operation
from headrace.protocol.messages import fetch_snapshot as messages
from headrace.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from headrace.serving.api import Api, Call
from headrace.serving.rights import require_on_cluster


def handle(controller: Controller, request: FetchSnapshotRequest, call: Call) -> Any:
    require_on_cluster(controller, call, Operation.CLUSTER_ACTION)
    return ask_quorum(controller, messages, request, call)


API = Api(messages=messages, handle=handle, versions=range(0, 2), owner="controller")
