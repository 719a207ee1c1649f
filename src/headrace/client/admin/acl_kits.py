"""The rights of a producer or consumer, as in Apache's kafka-acls: --producer, --consumer; and the
operations, in words."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.admin.acls import number, word
from headrace.wire.protocol.acls import (
    CLUSTER_NAME,
    OPERATIONS_ON,
    WILDCARD,
    Operation,
    ResourceType,
)

Kit = Mapping[ResourceType, tuple[Operation, ...]]

CLUSTER = CLUSTER_NAME  # the only resource of its type
ANYTHING = WILDCARD  # any resource, any host

FOR_PRODUCERS: Kit = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
FOR_CONSUMERS: Kit = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}


def operations_of(kit: Kit, resource_type: str) -> list[str]:
    """The rights of the kit on a resource of this type; none on some."""
    return [word(Operation, one) for one in kit.get(number(ResourceType, resource_type), ())]


def operations_on(resource_type: str) -> list[str]:
    """The operations on a resource of this type, besides `all`."""
    return [word(Operation, one) for one in OPERATIONS_ON[number(ResourceType, resource_type)]]
