"""Decisions about brokers of other processes: register, amend, unregister.

A registration belongs to one start of a broker (its incarnation) and gets a new epoch, the offset
of its record; the same incarnation may amend its own and keeps the epoch. While the last start has
a session, another one is refused: two processes with one id would write the same partitions. A new
start is fenced, so it leaves every ISR and leads nothing; one that cannot name the epoch at which
the last one stopped cleanly is distrusted too (`partition_elections.py`). Checks and codes are
Apache's.
"""

from __future__ import annotations

from typing import Any

from headrace.node.controller.decision import Decision
from headrace.node.controller.partitions.partition_changes import as_it_is, partition_change
from headrace.node.controller.partitions.partition_elections import (
    broker_is_distrusted,
    broker_leaves,
    partitions_of,
)
from headrace.node.metadata.features import METADATA_VERSION, LevelRange
from headrace.node.metadata.image import (
    BROKER_RESOURCE,
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    Endpoint,
    MetadataImage,
)
from headrace.node.metadata.snapshot_records import broker_record
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from headrace.wire.protocol.messages.config_record import ConfigRecord
from headrace.wire.protocol.messages.unregister_broker_record import UnregisterBrokerRecord

RESERVED_DIRECTORIES = (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY)
OLDEST_METADATA_VERSION = LevelRange(7, 7)  # of brokers that do not name one
FIRST_VERSION_WITH_PREVIOUS_EPOCH = 3
CORDONED_DIRECTORIES_FROM = 30
CORDON = "cordoned.log.dirs"


def register(
    image: MetadataImage,
    request: BrokerRegistrationRequest,
    version: int,
    *,
    epoch: int,
    has_session: bool,
    min_in_sync_replicas: int,
) -> Decision[BrokerRegistrationResponse]:
    """`epoch` is the offset of the first of the records; `has_session`: the broker that is
    registered with that id was heard from recently."""
    if request.cluster_id != image.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"This is cluster {image.cluster_id}, not {request.cluster_id}.",
        )
    existing = image.brokers.get(request.broker_id)
    is_amended = existing is not None and existing.incarnation_id == request.incarnation_id
    if has_session and not is_amended:
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker is registered as {request.broker_id}, and it is alive.",
        )
    if request.is_migrating_zk_broker:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, "Brokers of ZooKeeper are not registered."
        )
    _require_directories(image, request)
    features = _features(image, request)
    records: list[Any] = []
    if not is_amended:
        clean = _stopped_cleanly(existing, request, version)
        leaves = broker_leaves if clean else broker_is_distrusted
        records += leaves(image, request.broker_id, min_in_sync_replicas)
    broker = BrokerImage(
        id=request.broker_id,
        epoch=existing.epoch if existing is not None and is_amended else epoch,
        incarnation_id=request.incarnation_id,
        endpoints=tuple(
            Endpoint(point.name, point.host, point.port, point.security_protocol)
            for point in request.listeners
        ),
        features=features,
        rack=request.rack,
        fenced=existing.fenced if existing is not None and is_amended else True,
        in_controlled_shutdown=is_amended
        and existing is not None
        and existing.in_controlled_shutdown,
        log_dirs=tuple(request.log_dirs),
        cordoned_log_dirs=() if image.metadata_version >= CORDONED_DIRECTORIES_FROM else None,
    )
    records.append(broker_record(broker))
    return Decision(records, BrokerRegistrationResponse(broker_epoch=broker.epoch))


def _stopped_cleanly(
    existing: BrokerImage | None, request: BrokerRegistrationRequest, version: int
) -> bool:
    """Returns whether it names the last epoch of this id: then nothing was lost, and no other
    process had the id meanwhile."""
    return (
        existing is not None
        and version >= FIRST_VERSION_WITH_PREVIOUS_EPOCH
        and request.previous_broker_epoch == existing.epoch
    )


def _require_directories(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    fault = None
    if not request.log_dirs:
        fault = "A broker needs a data folder; none is named."
    elif any(directory in RESERVED_DIRECTORIES for directory in request.log_dirs):
        fault = "A reserved id is named as a data folder."
    elif len(set(request.log_dirs)) != len(request.log_dirs):
        fault = "A data folder is named twice."
    for broker in image.brokers.values():
        if broker.id != request.broker_id and set(broker.log_dirs) & set(request.log_dirs):
            fault = f"Broker {broker.id} is registered with one of the data folders."
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, fault)


def _features(image: MetadataImage, request: BrokerRegistrationRequest) -> dict[str, LevelRange]:
    """Refuses a broker that does not understand a level which the cluster has finalized."""
    named = {
        feature.name: LevelRange(feature.min_supported_version, feature.max_supported_version)
        for feature in request.features
    }
    if not named:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "The broker names no feature.")
    named.setdefault(METADATA_VERSION, OLDEST_METADATA_VERSION)
    finalized = image.finalized_features
    for name in named.keys() | finalized.keys():
        level = finalized.get(name, 0)
        known = named.get(name, LevelRange(0, 0))
        if not known.lowest <= level <= known.highest:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The cluster has finalized {name} at level {level}; the broker understands "
                f"levels {known.lowest} to {known.highest}.",
            )
    return named


def unregister(image: MetadataImage, broker_id: int, min_in_sync_replicas: int) -> list[Any]:
    """An operator removes the broker: it does not count for its partitions any more."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered."
        )
    records: list[Any] = []
    for topic, index, partition in partitions_of(image, broker_id):
        wanted = as_it_is(partition)
        if broker_id not in (*wanted.isr, *wanted.eligible):
            continue
        wanted.isr = [replica for replica in wanted.isr if replica != broker_id]
        record = partition_change(
            image,
            topic,
            index,
            wanted,
            min_in_sync_replicas=min_in_sync_replicas,
            without=(broker_id,),
        )
        if record is not None:
            records.append(record)
    if CORDON in image.config(BROKER_RESOURCE, str(broker_id)):
        # Another broker that gets this id later would hold nothing, for no visible reason.
        records.append(ConfigRecord(BROKER_RESOURCE, str(broker_id), CORDON, None))
    records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
    return records
