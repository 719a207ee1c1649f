"""Decisions about the members of the cluster: register, unfence, leave.

A broker is fenced until it has caught up with the metadata; its epoch is the offset of the batch
that registers it, so every start has a larger one. A broker that stops in an orderly way transfers
its leaderships first (controlled shutdown). Brokers of other processes: `broker_registrations.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.node.controller.partitions.partition_elections import broker_leaves, broker_returns
from headrace.node.metadata.features import (
    METADATA_VERSION,
    SERVED_FEATURES,
    SUPPORTED_FEATURES,
    LevelRange,
)
from headrace.node.metadata.image import BrokerImage, ControllerImage, Endpoint, MetadataImage
from headrace.node.metadata.snapshot_records import broker_record, controller_record
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.broker_registration_change_record import (
    BrokerRegistrationChangeRecord,
)

FENCE, UNFENCE = 1, -1
# From this metadata.version on a registration names directories that take no new replicas.
CORDONED_DIRECTORIES_FROM = 30


@dataclass(slots=True)
class Membership:
    """The registrations of this node when it joins: as a broker, and as a controller."""

    node_id: int
    incarnation_id: bytes  # a new one for each start
    endpoints: tuple[Endpoint, ...]
    controller_endpoints: tuple[Endpoint, ...]
    log_dirs: tuple[bytes, ...]
    rack: str | None = None
    controller_incarnation_id: bytes = field(default=bytes(16))


def register_controller(membership: Membership) -> list[Any]:
    return [
        controller_record(
            ControllerImage(
                id=membership.node_id,
                incarnation_id=membership.controller_incarnation_id,
                endpoints=membership.controller_endpoints,
                features=SERVED_FEATURES,
            )
        )
    ]


def register_broker(image: MetadataImage, membership: Membership, epoch: int) -> list[Any]:
    """`epoch` is the offset of the first of the records."""
    require_features(image)
    cordons = image.metadata_version >= CORDONED_DIRECTORIES_FROM
    broker = BrokerImage(
        id=membership.node_id,
        epoch=epoch,
        incarnation_id=membership.incarnation_id,
        endpoints=membership.endpoints,
        features=_features(image),
        rack=membership.rack,
        fenced=True,
        in_controlled_shutdown=False,
        log_dirs=membership.log_dirs,
        cordoned_log_dirs=() if cordons else None,
    )
    return [broker_record(broker)]


def _features(image: MetadataImage) -> dict[str, LevelRange]:
    """What this node serves; in a folder with a higher level, what it understands."""
    return {
        name: SERVED_FEATURES.get(name, levels)
        for name, levels in SUPPORTED_FEATURES.items()
        if name in SERVED_FEATURES or image.features.get(name)
    }


def require_features(image: MetadataImage) -> None:
    """Refuses a cluster with a level that we do not know: we could lose what it means."""
    for name, level in image.features.items():
        known = SUPPORTED_FEATURES.get(name)
        if known is None or not (level <= known.highest and level >= known.lowest):
            limit = "no level" if known is None else f"levels {known.lowest} to {known.highest}"
            hint = " (written by a later release)" if name == METADATA_VERSION else ""
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The cluster has finalized {name} at level {level}; "
                f"this node understands {limit} of it{hint}.",
            )


def unfence(image: MetadataImage, broker_id: int) -> list[Any]:
    broker = image.brokers[broker_id]
    back = replace(broker, fenced=False)
    after = replace(image, brokers={**image.brokers, broker_id: back})
    return [registration_change(broker, fenced=UNFENCE), *broker_returns(after, broker_id)]


def controlled_shutdown(
    image: MetadataImage, broker_id: int, min_in_sync_replicas: int
) -> Iterator[Any]:
    broker = image.brokers[broker_id]
    yield registration_change(broker, in_controlled_shutdown=1)
    yield from broker_leaves(image, broker_id, min_in_sync_replicas)


def fence(image: MetadataImage, broker_id: int, min_in_sync_replicas: int) -> Iterator[Any]:
    """Fence a broker that is gone: partitions elect other leaders and do not wait for it."""
    broker = image.brokers[broker_id]
    gone = replace(broker, fenced=True)
    after = replace(image, brokers={**image.brokers, broker_id: gone})
    yield from broker_leaves(after, broker_id, min_in_sync_replicas)
    yield registration_change(broker, fenced=FENCE)


def registration_change(
    broker: BrokerImage,
    *,
    fenced: int = 0,
    in_controlled_shutdown: int = 0,
    cordoned: Sequence[bytes] | None = None,
) -> BrokerRegistrationChangeRecord:
    """`cordoned`: the directories that take no new replicas; None: as before."""
    record = BrokerRegistrationChangeRecord()
    record.broker_id = broker.id
    record.broker_epoch = broker.epoch
    record.fenced = fenced
    record.in_controlled_shutdown = in_controlled_shutdown
    record.cordoned_log_dirs = None if cordoned is None else list(cordoned)
    return record
