"""Whose folder it is: one flipped bit must not make it somebody else's, nor make it new."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.node.broker.folders.identity import UnusableFolder, read_identity, write_identity
from headrace.node.process.folders.real_disk import RealDisk

APACHE = b"""#
#Mon Nov 16 21:00:00 UTC 2026
cluster.id=4L6g3nShT-eMCtK--X86sw
directory.id=dgbmDmHtTqmnyxyrgLBRAw
node.id=1
version=1
"""


def randomness(length: int) -> bytes:
    return b"r" * length


def written(folder: Path) -> bytes:
    identity = read_identity(RealDisk(), str(folder), 1, randomness)
    assert identity.is_new
    write_identity(RealDisk(), str(folder), identity)
    return (folder / "meta.properties").read_bytes()


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    written(tmp_path)
    identity = read_identity(RealDisk(), str(tmp_path), 1, randomness)
    assert identity.node_id == 1 and not identity.is_new


def test_no_flipped_bit_changes_who_the_folder_belongs_to(tmp_path: Path) -> None:
    whole = written(tmp_path)
    expected = read_identity(RealDisk(), str(tmp_path), 1, randomness)
    refused = 0
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        (tmp_path / "meta.properties").write_bytes(damaged)
        try:
            found = read_identity(RealDisk(), str(tmp_path), 1, randomness)
        except UnusableFolder as refusal:
            refused += "meta.properties is damaged" in str(refusal)
        else:
            assert found == expected
    assert refused > 600


def test_the_file_of_apache_kafka_has_no_checksum_and_is_believed(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_bytes(APACHE)
    found = read_identity(RealDisk(), str(tmp_path), 1, randomness)
    assert found.cluster_id == "4L6g3nShT-eMCtK--X86sw"


def test_a_folder_that_lost_the_file_is_not_formatted_again(tmp_path: Path) -> None:
    metadata = tmp_path / "__cluster_metadata-0"
    metadata.mkdir()
    (metadata / "00000000000000000000.log").write_bytes(b"")
    assert read_identity(RealDisk(), str(tmp_path), 1, randomness).is_new, "formatting had stopped"
    (metadata / "00000000000000000000.log").write_bytes(b"a batch")
    with pytest.raises(UnusableFolder, match="missing, but"):
        read_identity(RealDisk(), str(tmp_path), 1, randomness)
