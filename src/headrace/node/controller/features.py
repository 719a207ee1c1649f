"""Decisions about feature levels: the levels of a new cluster, and their changes.

A level may rise as far as this controller and every registered broker support it, and not for
features that are not served. It may fall only if the client asks for that explicitly, and
metadata.version not at all: lower levels have no fields for some of the records of higher ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headrace.node.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
)
from headrace.node.metadata.image import BROKER_RESOURCE, MetadataImage
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.begin_transaction_record import BeginTransactionRecord
from headrace.wire.protocol.messages.config_record import ConfigRecord
from headrace.wire.protocol.messages.end_transaction_record import EndTransactionRecord
from headrace.wire.protocol.messages.feature_level_record import FeatureLevelRecord

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
MIN_IN_SYNC_REPLICAS = "min.insync.replicas"


def bootstrap_records(bootstrap: Iterable[Any], min_in_sync_replicas: int) -> list[Any]:
    """Returns the first batch of a cluster, all or nothing: Apache's sequence."""
    records = list(bootstrap)
    if any(_enables_eligible_leaders(record) for record in records):
        records.append(_cluster_minimum(min_in_sync_replicas))
    return [BeginTransactionRecord(name="Bootstrap records"), *records, EndTransactionRecord()]


def metadata_version_in(records: Sequence[Any]) -> int:
    return max(
        (
            record.feature_level
            for record in records
            if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION
        ),
        default=0,
    )


def _enables_eligible_leaders(record: Any) -> bool:
    return (
        isinstance(record, FeatureLevelRecord)
        and record.name == ELIGIBLE_LEADER_REPLICAS_VERSION
        and record.feature_level > 0
    )


def _cluster_minimum(min_in_sync_replicas: int) -> ConfigRecord:
    """With eligible leaders all brokers need the same minimum: it is set for the cluster."""
    return ConfigRecord(
        resource_type=BROKER_RESOURCE,
        resource_name="",
        name=MIN_IN_SYNC_REPLICAS,
        value=str(min_in_sync_replicas),
    )


def change_level(
    image: MetadataImage,
    name: str,
    level: int,
    upgrade_type: int,
    *,
    kraft_version: int,
    min_in_sync_replicas: int,
) -> list[Any]:
    """Returns the records that set the feature to `level`; none if it has that level already.

    The level of kraft.version belongs to the quorum; no metadata record has it.
    """
    current = kraft_version if name == KRAFT_VERSION else image.features.get(name, 0)
    fault = _fault_of(image, name, level, upgrade_type, current)
    if fault is not None:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"No level was changed: {fault}",
        )
    if level == current:
        return []
    records: list[Any] = [FeatureLevelRecord(name=name, feature_level=level)]
    cluster = image.config(BROKER_RESOURCE, "")
    if _enables_eligible_leaders(records[0]) and MIN_IN_SYNC_REPLICAS not in cluster:
        records.append(_cluster_minimum(min_in_sync_replicas))
    return records


def _fault_of(
    image: MetadataImage, name: str, level: int, upgrade_type: int, current: int
) -> str | None:
    if name == METADATA_VERSION and _is_metadata_downgrade(level, upgrade_type, current):
        reason = (
            "it could lose metadata that the lower level has no records for."
            if upgrade_type == SAFE_DOWNGRADE
            else "that is not supported yet."
        )
        return f"metadata.version cannot go down from {current} to {level}: {reason}"
    fault = _general_fault_of(image, name, level, upgrade_type, current)
    return None if fault is None else f"{name} cannot have level {level}: {fault}"


def _is_metadata_downgrade(level: int, upgrade_type: int, current: int) -> bool:
    lowest = SUPPORTED_FEATURES[METADATA_VERSION].lowest
    return lowest <= level < current and upgrade_type in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE)


def _general_fault_of(
    image: MetadataImage, name: str, level: int, upgrade_type: int, current: int
) -> str | None:
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "the kind of change is not known."
    fault = _unsupported_by_some_member(image, name, level)
    if fault is not None:
        return fault
    if name == KRAFT_VERSION and level < current:
        return "this feature's level never goes down."
    if name == KRAFT_VERSION and level > current:
        return "this quorum's voters are configured, and that cannot be changed yet."
    if level < current and upgrade_type == UPGRADE:
        return "it would go down, which has to be asked for as a downgrade, safe or unsafe."
    if level > current and upgrade_type != UPGRADE:
        return "that is up, and a downgrade was asked for."
    return None


def _unsupported_by_some_member(image: MetadataImage, name: str, level: int) -> str | None:
    if level < 0:
        return "levels begin at 0."
    known = SUPPORTED_FEATURES.get(name)
    if known is None:
        return "this feature is unknown."
    if not known.lowest <= level <= known.highest:
        return f"levels {known.lowest} to {known.highest} are supported."
    for broker in image.brokers.values():
        levels = broker.features.get(name)
        if level and (levels is None or not levels.lowest <= level <= levels.highest):
            return f"broker {broker.id} does not support that level."
    return None
