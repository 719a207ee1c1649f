"""A scan names what is damaged, and goes on behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.storage.segments.batch_scan import CHUNK, BatchScan, DamagedRange
from headrace.wire.protocol.record_batch import BatchHeader, Record, build


def batch(base_offset: int, records: int = 2, value: bytes = b"value") -> bytes:
    return build(
        [Record(None, value, timestamp=1_000) for _ in range(records)],
        base_offset=base_offset,
        leader_epoch=0,
    )


def scan(
    path: Path, data: bytes, *, contiguous: bool = False
) -> tuple[list[int], list[DamagedRange]]:
    """Base offsets of the good batches, and the damage between them."""
    path.write_bytes(data)
    found = list(
        BatchScan(RealDisk().open(str(path)), next_offset=0, contiguous=contiguous).batches()
    )
    good = [item.base_offset for item in found if isinstance(item, BatchHeader)]
    return good, [item for item in found if isinstance(item, DamagedRange)]


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :]


BATCHES = [batch(offset) for offset in (0, 2, 4, 6)]
SIZE = len(BATCHES[0])
WHOLE = b"".join(BATCHES)


def test_a_whole_file_has_no_damage(tmp_path: Path) -> None:
    assert scan(tmp_path / "log", WHOLE) == ([0, 2, 4, 6], [])


@pytest.mark.parametrize("at", [*range(0, 12), *range(16, SIZE)])
def test_any_flipped_bit_hides_one_batch_and_no_other(tmp_path: Path, at: int) -> None:
    """Bytes 12 to 15 are the leader epoch, which only the metadata log can judge."""
    good, damage = scan(tmp_path / "log", flipped(WHOLE, SIZE + at))
    assert good == [0, 4, 6]
    (only,) = damage
    assert (only.position, only.size, only.offset, only.next_offset) == (SIZE, SIZE, 2, 4)


def test_a_torn_end_and_zeros_are_told_from_each_other(tmp_path: Path) -> None:
    good, (torn,) = scan(tmp_path / "log", WHOLE[:-3])
    assert good == [0, 2, 4] and torn.next_offset is None and "torn, a batch of" in torn.reason
    _, (short,) = scan(tmp_path / "log", WHOLE + b"\x01" * 20)
    assert short.reason == "torn, 20 bytes are too few for a batch"
    _, (zeros,) = scan(tmp_path / "log", WHOLE + bytes(4_096))
    assert zeros.size == 4_096 and zeros.reason.startswith("zeros")


def test_holes_are_damage_only_where_there_are_none(tmp_path: Path) -> None:
    with_hole = BATCHES[0] + BATCHES[2] + BATCHES[3]
    assert scan(tmp_path / "log", with_hole) == ([0, 4, 6], [])
    good, damage = scan(tmp_path / "log", with_hole, contiguous=True)
    assert good == [0, 6] and (damage[0].offset, damage[0].next_offset) == (2, 6)


def test_a_batch_in_the_payload_of_a_damaged_one_is_not_taken_for_the_next(tmp_path: Path) -> None:
    inner = batch(3)
    outer = batch(2, records=1, value=inner)
    data = BATCHES[0] + flipped(outer, 30) + batch(3)
    good, (damage,) = scan(tmp_path / "log", data)
    assert good == [0, 3] and damage.size == len(outer)


def test_a_damaged_length_of_a_large_batch_costs_that_batch_alone(tmp_path: Path) -> None:
    large = batch(2, records=1, value=b"\x02" * (CHUNK + 5_000))
    data = BATCHES[0] + flipped(large, 8) + batch(3)
    good, (damage,) = scan(tmp_path / "log", data)
    assert good == [0, 3] and damage.size == len(large)
