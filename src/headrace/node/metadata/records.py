"""Records of `__cluster_metadata`: message <-> the value of a record in the log.

A value is the frame version (always 1), the record's type and its version as unsigned varints, then
the body. All 26 types of Apache Kafka 4.3 are known; a type of a later release is kept as
`UnknownRecord` so that a snapshot loses nothing. Which version is written depends on the finalized
metadata.version, so that every member of the cluster can read it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from headrace.environment import Buffer
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.messages import (
    abort_transaction_record,
    access_control_entry_record,
    begin_transaction_record,
    broker_registration_change_record,
    clear_elr_record,
    client_quota_record,
    config_record,
    delegation_token_record,
    end_transaction_record,
    feature_level_record,
    fence_broker_record,
    no_op_record,
    partition_change_record,
    partition_record,
    producer_ids_record,
    register_broker_record,
    register_controller_record,
    remove_access_control_entry_record,
    remove_delegation_token_record,
    remove_topic_record,
    remove_user_scram_credential_record,
    topic_record,
    unfence_broker_record,
    unregister_broker_record,
    user_scram_credential_record,
    zk_migration_state_record,
)
from headrace.wire.protocol.messages.broker_registration_change_record import (
    BrokerRegistrationChangeRecord,
)
from headrace.wire.protocol.primitives import read_uvarint

FRAME_VERSION = 1

MODULES: tuple[ModuleType, ...] = (
    abort_transaction_record,
    access_control_entry_record,
    begin_transaction_record,
    broker_registration_change_record,
    clear_elr_record,
    client_quota_record,
    config_record,
    delegation_token_record,
    end_transaction_record,
    feature_level_record,
    fence_broker_record,
    no_op_record,
    partition_change_record,
    partition_record,
    producer_ids_record,
    register_broker_record,
    register_controller_record,
    remove_access_control_entry_record,
    remove_delegation_token_record,
    remove_topic_record,
    remove_user_scram_credential_record,
    topic_record,
    unfence_broker_record,
    unregister_broker_record,
    user_scram_credential_record,
    zk_migration_state_record,
)

# metadata.version from which a version of a record type may be written, highest first.
# 8: brokers that migrate from ZooKeeper; 17: directories of replicas (KIP-858); 23: eligible leader
# replicas (KIP-966); 30: cordoned log directories.
_VERSIONS_BY_LEVEL: dict[str, tuple[tuple[int, int], ...]] = {
    "RegisterBrokerRecord": ((30, 4), (17, 3), (8, 2), (0, 1)),
    "PartitionRecord": ((23, 2), (17, 1), (0, 0)),
    "PartitionChangeRecord": ((23, 2), (17, 1), (0, 0)),
}


@dataclass(slots=True, frozen=True)
class UnknownRecord:
    """A record of a later release: kept as it was, applied to nothing."""

    record_type: int
    value: bytes  # with its frame


def encode(record: Any, metadata_version: int) -> bytes:
    """The value of the record in the log."""
    if type(record) is UnknownRecord:
        return record.value
    module = _MODULE_OF_CLASS[type(record).__name__]
    version = version_to_write(record, metadata_version)
    # The frame's three varints are single bytes: types end at 28, versions at 4.
    pieces: list[Any] = [bytes((FRAME_VERSION, module.API_KEY, version))]
    module.ENCODE[version](record, pieces.append)
    return b"".join(pieces)


def version_to_write(record: Any, metadata_version: int) -> int:
    by_level = _VERSIONS_BY_LEVEL.get(type(record).__name__)
    if by_level is not None:
        return next(version for level, version in by_level if metadata_version >= level)
    if type(record) is BrokerRegistrationChangeRecord:
        # As Apache does: the lowest version that has the fields in use.
        if record.cordoned_log_dirs is not None:
            return 3
        if record.log_dirs:
            return 2
        return 1 if record.in_controlled_shutdown else 0
    return 0


def decode(value: Buffer) -> Any:
    """The record in a value; raises MalformedMessage for bytes that are none."""
    view = memoryview(value)
    if len(view) < 3 or view[0] != FRAME_VERSION:
        raise MalformedMessage("not a metadata record: its frame version is not 1")
    decoder = _DECODERS.get((view[1], view[2]))
    if decoder is None:
        return _unknown(view)
    record, end = decoder(view, 3)
    if end != len(view):
        raise MalformedMessage(f"{len(view) - end} bytes behind a metadata record")
    return record


def _unknown(view: memoryview) -> UnknownRecord:
    """A type of a later release, or a version of a known type that we must not guess at."""
    try:
        record_type, at = read_uvarint(view, 1)
        version, _ = read_uvarint(view, at)
    except IndexError as error:
        raise MalformedMessage("a metadata record that ends in its frame") from error
    module = _MODULE_OF_TYPE.get(record_type)
    if module is not None:
        raise MalformedMessage(f"version {version} of a {module.NAME} is not known here")
    return UnknownRecord(record_type, view.tobytes())


# By type and version, as their varints are in the frame: each is a single byte.
_DECODERS: dict[tuple[int, int], Callable[[memoryview, int], tuple[Any, int]]] = {
    (module.API_KEY, version): decoder
    for module in MODULES
    for version, decoder in module.DECODE.items()
}
_MODULE_OF_TYPE: dict[int, Any] = {module.API_KEY: module for module in MODULES}
_MODULE_OF_CLASS: dict[str, Any] = {module.NAME: module for module in MODULES}
