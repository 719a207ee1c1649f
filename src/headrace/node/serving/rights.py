"""Checks of rights by handlers, also on a node without an authorizer.

Without an authorizer every client may do everything, for the price of a comparison with None. `may`
and `rights` answer; `require_...` refuse with Kafka's code for the type of resource. A check with
`quietly` only shapes an answer (lists leave out what the client may not see) and is not counted as
a refusal.
"""

from __future__ import annotations

from typing import Protocol

from headrace.node.serving.api import Call
from headrace.node.serving.authorization import EVERYTHING, Authorizer
from headrace.wire.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.protocol.errors import ErrorCode, KafkaError

CLUSTER = ResourceType.CLUSTER
GROUP = ResourceType.GROUP
TOPIC = ResourceType.TOPIC
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID

LONGEST_NAME_TOLD = 249  # for the name of a topic; other names may be as long as a request

REFUSAL_OF = {
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Guarded(Protocol):
    """The broker or the controller."""

    @property
    def authorizer(self) -> Authorizer | None: ...


def may(
    owner: Guarded,
    call: Call,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    *,
    quietly: bool = False,
) -> bool:
    authorizer = owner.authorizer
    return authorizer is None or authorizer.allows(
        call.session, operation, resource_type, name, quietly=quietly
    )


def may_on_cluster(
    owner: Guarded, call: Call, operation: Operation, *, quietly: bool = False
) -> bool:
    return may(owner, call, operation, CLUSTER, CLUSTER_NAME, quietly=quietly)


def may_somewhere(
    owner: Guarded, call: Call, operation: Operation, resource_type: ResourceType
) -> bool:
    """Returns whether there may be a resource of the type on which the operation is allowed."""
    authorizer = owner.authorizer
    return authorizer is None or authorizer.allows_somewhere(call.session, operation, resource_type)


def rights(owner: Guarded, call: Call, resource_type: ResourceType, name: str) -> int:
    """Returns the allowed operations on a resource, a bit for each."""
    authorizer = owner.authorizer
    return (
        EVERYTHING if authorizer is None else authorizer.rights(call.session, resource_type, name)
    )


def refusal(
    resource_type: ResourceType, operation: Operation | None = None, name: str = ""
) -> KafkaError:
    """Returns a refusal that names the missing right, for answers with an error message."""
    code = REFUSAL_OF[resource_type]
    if operation is None:
        return KafkaError(code, code.description)
    kind = resource_type.name.lower().replace("_", " ")
    what = (
        f"the {kind} {name[:LONGEST_NAME_TOLD]}" if resource_type is not CLUSTER else "the cluster"
    )
    return KafkaError(code, f"{operation.name} on {what} is needed and not allowed.")


def require(
    owner: Guarded, call: Call, operation: Operation, resource_type: ResourceType, name: str
) -> None:
    if not may(owner, call, operation, resource_type, name):
        raise refusal(resource_type, operation, name)


def require_on_cluster(owner: Guarded, call: Call, operation: Operation) -> None:
    if not may_on_cluster(owner, call, operation):
        raise refusal(CLUSTER, operation)
