"""Snapshot files against the ones that Apache Kafka 4.3.1 wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.node.consensus.first_files import (
    format_data_folder,
    new_cluster_records,
    read_bootstrap,
)
from headrace.node.consensus.snapshots import (
    SnapshotId,
    list_snapshots,
    read_snapshot,
    snapshot_batches,
)
from headrace.node.consensus.voters import Voter, VoterEndpoint
from headrace.node.process.folders.real_disk import RealDisk
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.messages.topic_record import TopicRecord

# `kafka-storage format --standalone`: the file 00000000000000000000-0000000000.checkpoint.
APACHE_FIRST_VOTERS = bytes.fromhex(
    "00000000000000000000009a0000000002c128c84d002000000002000001a1e0f9d72d000001a1e0"
    "f9d72dffffffffffffffffffffffffffff000000032a0000000800000003160000000001a1e0f9d6"
    "fa00001e00000208000000050a000000010000820100000408000000066e000002000000015d670e"
    "08881c4728b9663cde6f95e936020b434f4e54524f4c4c45520a3132372e302e302e314a95000000"
    "00010000000000000000000000030000003f000000000241263cd8002000000000000001a1e0f9d7"
    "38000001a1e0f9d738ffffffffffffffffffffffffffff000000011a000000080000000406000000"
    "00"
)
VOTER = Voter(
    1,
    bytes.fromhex("5d670e08881c4728b9663cde6f95e936"),
    (VoterEndpoint("CONTROLLER", "127.0.0.1", 19093),),
)


def test_the_voters_that_apache_wrote_are_read() -> None:
    snapshot = read_snapshot(APACHE_FIRST_VOTERS, "first")
    assert snapshot.voters == (VOTER,) and snapshot.kraft_version == 1
    assert snapshot.last_contained_ms == 0x1A1E0F9D6FA and not snapshot.records


def test_the_same_voters_are_written_to_the_byte() -> None:
    """But for the time of the last batch, which is later in Apache's file."""
    batches = list(
        snapshot_batches(
            (),
            epoch=0,
            last_contained_ms=0x1A1E0F9D6FA,
            wall_ms=0x1A1E0F9D72D,
            metadata_version=30,
            kraft_version=1,
            voters=(VOTER,),
        )
    )
    assert batches[0] == APACHE_FIRST_VOTERS[:166]
    assert len(b"".join(batches)) == 241


def test_a_formatted_folder_has_the_first_levels_and_the_first_voter(tmp_path: Path) -> None:
    disk = RealDisk()
    assert read_bootstrap(disk, str(tmp_path)) == new_cluster_records(), "no file: a new cluster"
    format_data_folder(
        disk, str(tmp_path), voter=VOTER, records=new_cluster_records(), wall_ms=1_000
    )
    assert read_bootstrap(disk, str(tmp_path)) == new_cluster_records()
    assert len((tmp_path / "bootstrap.checkpoint").read_bytes()) == 411, "as long as Apache's"
    metadata = f"{tmp_path}/__cluster_metadata-0"
    assert list_snapshots(disk, metadata) == [SnapshotId(0, 0)]


def test_many_records_make_many_batches_with_offsets_one_after_the_other() -> None:
    topics = [TopicRecord(f"topic-{n}", n.to_bytes(16, "big")) for n in range(2_500)]
    batches = list(
        snapshot_batches(topics, epoch=3, last_contained_ms=1, wall_ms=2, metadata_version=30)
    )
    assert [int.from_bytes(batch[:8], "big") for batch in batches] == [0, 1, 1001, 2001, 2501]
    assert read_snapshot(b"".join(batches), "large").records == topics


def test_a_snapshot_without_its_end_or_with_a_flipped_bit_does_not_count() -> None:
    whole = b"".join(
        snapshot_batches(
            new_cluster_records(), epoch=0, last_contained_ms=0, wall_ms=0, metadata_version=30
        )
    )
    for cut in (0, 50, 83, 200, len(whole) - 1):
        with pytest.raises(MalformedMessage):
            read_snapshot(whole[:cut], "cut")
    flipped = bytearray(whole)
    flipped[100] ^= 1
    with pytest.raises(MalformedMessage):
        read_snapshot(bytes(flipped), "flipped")


def test_only_names_of_snapshots_are_snapshots(tmp_path: Path) -> None:
    for name in (
        "00000000000000000066-0000000002.checkpoint",
        "00000000000000000007-0000000001.checkpoint",
        "00000000000000000008-0000000001.checkpoint.part",
        "00000000000000000000.log",
        "leader-epoch-checkpoint",
    ):
        (tmp_path / name).touch()
    assert list_snapshots(RealDisk(), str(tmp_path)) == [SnapshotId(7, 1), SnapshotId(66, 2)]
    assert SnapshotId(66, 2).file_name == "00000000000000000066-0000000002.checkpoint"
