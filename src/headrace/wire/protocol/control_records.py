"""Control records: marks in a log that are not data of any user.

Transactions end with a marker in every partition they wrote to; the metadata log marks changes of
the leader, its KRaft version, its voters, and the first and last batch of a snapshot. A control
batch has the control bit and its records a key of two shorts, format version and kind.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Any

from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.messages import (
    kraft_version_record,
    leader_change_message,
    snapshot_footer_record,
    snapshot_header_record,
    voters_record,
)
from headrace.wire.protocol.record_batch import NO_LEADER_EPOCH, Record, build

_KEY = Struct(">hh")  # version of the key's format, kind
_END_TXN_MARKER = Struct(">hi")  # version of the value's format, coordinator epoch


class ControlKind(IntEnum):
    """The contents of a control record."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_MESSAGES: dict[int, Any] = {
    ControlKind.LEADER_CHANGE: leader_change_message,
    ControlKind.SNAPSHOT_HEADER: snapshot_header_record,
    ControlKind.SNAPSHOT_FOOTER: snapshot_footer_record,
    ControlKind.KRAFT_VERSION: kraft_version_record,
    ControlKind.KRAFT_VOTERS: voters_record,
}
_KINDS = {messages.NAME: kind for kind, messages in _MESSAGES.items()}


def kind_of(record: Record) -> int:
    """The kind in a control record's key; kinds that are not known here are passed through."""
    if record.key is None or len(record.key) < _KEY.size:
        raise MalformedMessage("control record: its key is too short")
    version, kind = _KEY.unpack_from(record.key)
    if version < 0:
        raise MalformedMessage(f"control record: version {version} of its key is not valid")
    return int(kind)


def end_txn_marker(*, commit: bool, coordinator_epoch: int, timestamp: int) -> Record:
    """The record that ends a transaction in one partition."""
    kind = ControlKind.COMMIT if commit else ControlKind.ABORT
    return Record(
        _KEY.pack(0, kind), _END_TXN_MARKER.pack(0, coordinator_epoch), timestamp=timestamp
    )


def read_end_txn_marker(record: Record) -> tuple[bool, int]:
    """Returns whether the transaction was committed, and the epoch of the coordinator that ended
    it."""
    kind = kind_of(record)
    if kind not in (ControlKind.ABORT, ControlKind.COMMIT):
        raise MalformedMessage(f"control record: kind {kind} ends no transaction")
    if record.value is None or len(record.value) < _END_TXN_MARKER.size:
        raise MalformedMessage("control record: its value is too short")
    _, coordinator_epoch = _END_TXN_MARKER.unpack_from(record.value)
    return kind == ControlKind.COMMIT, coordinator_epoch


def end_txn_batch(
    *,
    commit: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The batch that ends a producer's transaction in one partition."""
    marker = end_txn_marker(commit=commit, coordinator_epoch=coordinator_epoch, timestamp=timestamp)
    return build(
        [marker],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def control_record(message: Any, *, timestamp: int) -> Record:
    """Returns the record of a LeaderChangeMessage, SnapshotHeaderRecord, SnapshotFooterRecord,
    KRaftVersionRecord or VotersRecord; its `version` field decides which version is written."""
    kind = _KINDS[type(message).__name__]
    pieces: list[bytes] = []
    _MESSAGES[kind].ENCODE[message.version](message, pieces.append)
    return Record(_KEY.pack(0, kind), b"".join(pieces), timestamp=timestamp)


def read_control_record(record: Record) -> Any:
    """The message in a control record of the metadata log; None if its kind is not known."""
    messages = _MESSAGES.get(kind_of(record))
    if messages is None:
        return None
    value = record.value or b""
    # Each of these messages begins with its own version, so that readers need no other source.
    version = int.from_bytes(value[:2], "big", signed=True)
    decode = messages.DECODE.get(min(version, messages.VERSIONS.stop - 1))
    if decode is None:
        raise MalformedMessage(f"{messages.NAME}: there is no version {version}")
    message, _ = decode(memoryview(value), 0)
    return message
