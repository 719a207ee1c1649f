"""Marks that are not data: ends of transactions, and those of the metadata log."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord

from headrace.wire.protocol import control_records
from headrace.wire.protocol.control_records import ControlKind, control_record, read_control_record
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.messages import (
    kraft_version_record,
    leader_change_message,
    snapshot_footer_record,
    snapshot_header_record,
    voters_record,
)
from headrace.wire.protocol.record_batch import Record, read_header, walk


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction(commit: bool) -> None:
    batch = control_records.end_txn_batch(
        commit=commit, coordinator_epoch=3, producer_id=4000, producer_epoch=7, timestamp=55
    )
    header = read_header(batch)
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 7, -1)
    (marker,) = walk(batch, 1000)
    assert control_records.read_end_txn_marker(marker) == (commit, 3)
    assert marker.timestamp == 55
    # As aiokafka reads it.
    assert ControlRecord.parse(marker.key) == (COMMIT_MARKER if commit else ABORT_MARKER)
    assert marker.value == b"\x00\x00\x00\x00\x00\x03"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            ControlKind.LEADER_CHANGE,
            leader_change_message.LeaderChangeMessage(
                version=1, leader_id=1, voters=[leader_change_message.Voter(1, b"d" * 16)]
            ),
        ),
        (ControlKind.SNAPSHOT_HEADER, snapshot_header_record.SnapshotHeaderRecord(0, 12345)),
        (ControlKind.SNAPSHOT_FOOTER, snapshot_footer_record.SnapshotFooterRecord(0)),
        (ControlKind.KRAFT_VERSION, kraft_version_record.KRaftVersionRecord(0, 1)),
        (
            ControlKind.KRAFT_VOTERS,
            voters_record.VotersRecord(
                0, [voters_record.Voter(1, b"d" * 16, [voters_record.Endpoint("C", "host", 9093)])]
            ),
        ),
    ],
)
def test_marks_of_the_metadata_log_round_trip(kind: ControlKind, message: Any) -> None:
    record = control_record(message, timestamp=1)
    assert control_records.kind_of(record) == kind
    assert record.key == b"\x00\x00" + int(kind).to_bytes(2, "big")
    assert read_control_record(record) == message


def test_a_leader_change_is_written_in_the_version_it_names() -> None:
    voter = leader_change_message.Voter(1, b"d" * 16)
    old = leader_change_message.LeaderChangeMessage(version=0, leader_id=1, voters=[voter])
    value = control_record(old, timestamp=1).value
    assert value is not None and b"d" * 16 not in value


def test_kinds_of_the_future_are_passed_through() -> None:
    future = Record(b"\x00\x00\x00\x63", b"")
    assert control_records.kind_of(future) == 99
    assert read_control_record(future) is None


@pytest.mark.parametrize(
    "record",
    [
        Record(None, b""),
        Record(b"\x00\x00\x00", b""),
        Record(b"\xff\xff\x00\x01", b""),
        Record(b"\x00\x00\x00\x02", b"\xff\xff"),
        Record(b"\x00\x00\x00\x02", b"\x00\x01\x00"),
        Record(b"\x00\x00\x00\x02", None),
    ],
)
def test_damaged_marks_are_malformed(record: Record) -> None:
    with pytest.raises(MalformedMessage):
        read_control_record(record)


def test_only_ends_of_transactions_are_read_as_such() -> None:
    for record in (Record(b"\x00\x00\x00\x02", b"\x00" * 6), Record(b"\x00\x00\x00\x01", b"\x00")):
        with pytest.raises(MalformedMessage):
            control_records.read_end_txn_marker(record)
