"""`quorum-state`, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.node.consensus.quorum_state import (
    BadQuorumState,
    QuorumState,
    encode_quorum_state,
    read_quorum_state,
    write_quorum_state,
)
from headrace.node.process.folders.real_disk import RealDisk

# As Apache Kafka 4.3.1 left it behind.
APACHE = (
    b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,'
    b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
)


def test_the_file_of_apache_is_read_and_written_to_the_byte(tmp_path: Path) -> None:
    disk = RealDisk()
    (tmp_path / "quorum-state").write_bytes(APACHE)
    state = read_quorum_state(disk, str(tmp_path))
    assert state == QuorumState(leader_id=1, leader_epoch=2)
    write_quorum_state(disk, str(tmp_path), state)
    assert (tmp_path / "quorum-state").read_bytes() == APACHE


def test_a_new_voter_has_no_file(tmp_path: Path) -> None:
    assert read_quorum_state(RealDisk(), str(tmp_path)) is None


def test_the_version_of_static_voters_stays_what_it_is(tmp_path: Path) -> None:
    old = QuorumState(leader_id=1, leader_epoch=7, data_version=0, static_voters=(1,))
    (tmp_path / "quorum-state").write_bytes(encode_quorum_state(old))
    assert read_quorum_state(RealDisk(), str(tmp_path)) == old


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b'{"data_version":2}', APACHE[:50], APACHE.replace(b"leader", b"loader")],
)
def test_a_file_that_is_none_says_so(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "quorum-state").write_bytes(content)
    with pytest.raises(BadQuorumState):
        read_quorum_state(RealDisk(), str(tmp_path))
