"""Producer ids in blocks of a thousand: a broker asks rarely and hands them out one by one.

The rest of a block is never used when its broker stops; 64 bits are enough for that.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.node.metadata.image import MetadataImage
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.producer_ids_record import ProducerIdsRecord

BLOCK_SIZE = 1_000  # Apache's
LAST_PRODUCER_ID = 2**63 - 1


class Block(NamedTuple):
    first: int
    size: int


def allocate_block(
    image: MetadataImage, broker_id: int, broker_epoch: int
) -> tuple[Block, ProducerIdsRecord]:
    require_current_broker(image, broker_id, broker_epoch)
    first = image.next_producer_id
    if first > LAST_PRODUCER_ID - BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been used.")
    record = ProducerIdsRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Block(first, BLOCK_SIZE), record


def require_current_broker(image: MetadataImage, broker_id: int, broker_epoch: int) -> None:
    """Only the latest incarnation of a registered broker may ask for something. As in Apache Kafka,
    an unregistered broker gets the same error as an old incarnation."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} is not registered.")
    if broker.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {broker_id} has epoch {broker.epoch}, the request says {broker_epoch}.",
        )
