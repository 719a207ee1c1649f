"""What a client that writes or reads needs, as in Apache's kafka-acls: --producer, --consumer."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.protocol.acls import Operation, ResourceType

Kit = Mapping[ResourceType, tuple[Operation, ...]]

FOR_PRODUCERS: Kit = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
FOR_CONSUMERS: Kit = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}
