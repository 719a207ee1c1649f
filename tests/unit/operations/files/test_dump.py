"""`headrace segment dump` on files that the broker's own log wrote, whole and damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.cli.failure import Failure
from headrace.cli.node.segment import dump
from headrace.node.consensus.recovery_point import encode_recovery_point
from headrace.node.coordination.group.records import CODEC as GROUPS
from headrace.node.coordination.group.records import committed_offset
from headrace.node.storage import checkpoints
from headrace.node.storage.segments import offset_index, time_index, transaction_index
from headrace.operations.files.dump.files_by_name import CannotRead, rows_of
from headrace.operations.files.dump.rows import Row
from headrace.wire.protocol.compression import NAMES
from headrace.wire.protocol.control_records import end_txn_batch
from headrace.wire.protocol.messages.offset_commit_value import OffsetCommitValue
from headrace.wire.protocol.record_batch import Record, RecordHeader, build

NOON_MS = 1769860800000


def batch(base_offset: int, count: int, *, codec: str = "none") -> bytes:
    records = [
        Record(b"k%d" % n, b"v%d" % n, [RecordHeader("trace", b"7")], NOON_MS + n)
        for n in range(count)
    ]
    return build(records, base_offset=base_offset, compression=NAMES.index(codec), leader_epoch=4)


def rows(path: Path, *, records: bool = False) -> list[Row]:
    return list(rows_of(path, records=records))


def a_log(folder: Path, data: bytes) -> Path:
    path = folder / "00000000000000000000.log"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("codec", NAMES)
def test_a_log_shows_its_batches_and_records(tmp_path: Path, codec: str) -> None:
    path = a_log(tmp_path, batch(0, 3, codec=codec) + batch(3, 1))
    first, second = rows(path)
    assert first.values["first_offset"] == 0
    assert first.values["last_offset"] == 2
    assert first.values["compression"] == codec
    assert first.values["epoch"] == 4
    assert second.values["position"] == first.values["bytes"]
    shown = [row for row in rows(path, records=True) if row.kind == "record"]
    assert [row.values["offset"] for row in shown] == [0, 1, 2, 3]
    assert shown[1].values["key"] == "k1"
    assert shown[1].values["headers"] == {"trace": "7"}
    assert shown[1].values["time"] == "2026-01-31T12:00:00.001Z"


def test_a_marker_says_how_the_transaction_ended(tmp_path: Path) -> None:
    marker = end_txn_batch(
        commit=False, coordinator_epoch=1, producer_id=9, producer_epoch=0, timestamp=NOON_MS
    )
    [row, control] = rows(a_log(tmp_path, marker), records=True)
    assert row.values["flags"] == "control,transactional"
    assert row.values["producer"] == 9
    assert control.values["says"] == "ABORT"


def test_records_of_internal_topics_are_read_in_their_formats(tmp_path: Path) -> None:
    def in_folder(name: str, pairs: list[tuple[bytes, bytes | None]]) -> list[Row]:
        folder = tmp_path / name
        folder.mkdir()
        data = build([Record(key, value, [], NOON_MS) for key, value in pairs])
        return [row for row in rows(a_log(folder, data), records=True) if row.kind == "record"]

    encoded = GROUPS.encode(committed_offset("g", "orders", 2, OffsetCommitValue(41)))
    share = b"\x00\x0b\x00\x07sharing"  # a share group, which we do not serve
    share_value = b"\x00\x00" + b"\x00\x00\x00\x05" + bytes(9)  # version, epoch, hash, no tags
    found = in_folder(
        "__consumer_offsets-7",
        [encoded, (encoded[0], None), (share, share_value), (b"x", b"stray")],
    )
    said = [(row.values["key"], row.values["value"]) for row in found]
    assert said[0][0] == "OffsetCommitKey(group='g', topic='orders', partition=2)"
    assert str(said[0][1]).startswith("OffsetCommitValue(offset=41, ")
    assert said[1] == (said[0][0], None)
    assert said[2][0] == "ShareGroupMetadataKey(group_id='sharing')"
    assert str(said[2][1]).startswith("ShareGroupMetadataValue(epoch=5")
    assert said[3] == ("x", "stray")
    assert not any(row.damage for row in found)
    [plain] = in_folder("orders-0", [encoded])
    assert "OffsetCommitKey" not in plain.values["key"]


def test_a_flipped_byte_is_told(tmp_path: Path) -> None:
    data = bytearray(batch(0, 3) + batch(3, 1))
    data[70] ^= 1
    damaged, whole = rows(a_log(tmp_path, bytes(data)), records=False)
    assert damaged.damage == "the CRC does not fit"
    assert whole.damage is None


def test_a_torn_tail_is_told(tmp_path: Path) -> None:
    data = batch(0, 3) + batch(3, 1)
    rest = rows(a_log(tmp_path, data[:-5]))[-1]
    assert rest.kind == "rest"
    assert "torn" in (rest.damage or "")


def test_allocated_space_is_not_taken_for_a_batch(tmp_path: Path) -> None:
    rest = rows(a_log(tmp_path, batch(0, 3) + bytes(200)))[-1]
    assert rest.values["bytes"] == 200
    assert "never written" in (rest.damage or "")


def test_indexes_show_entries_without_the_zeros_behind_them(tmp_path: Path) -> None:
    index = tmp_path / "00000000000000000100.index"
    index.write_bytes(b"".join(map(offset_index.ENTRY.pack, (5, 9), (4096, 8192))) + bytes(80))
    assert [row.values for row in rows(index)] == [
        {"offset": 105, "position": 4096},
        {"offset": 109, "position": 8192},
    ]
    times = tmp_path / "00000000000000000100.timeindex"
    times.write_bytes(time_index.ENTRY.pack(NOON_MS, 5) + bytes(24))
    [entry] = rows(times)
    assert entry.values == {
        "timestamp": NOON_MS,
        "time": "2026-01-31T12:00:00.000Z",
        "offset": 105,
    }


def test_an_index_that_goes_back_is_damaged(tmp_path: Path) -> None:
    index = tmp_path / "00000000000000000000.index"
    index.write_bytes(b"".join(map(offset_index.ENTRY.pack, (9, 5), (4096, 8192))))
    assert rows(index)[1].damage == "entries do not ascend"


def test_checkpoints_and_properties(tmp_path: Path) -> None:
    epochs = tmp_path / checkpoints.LEADER_EPOCHS
    epochs.write_bytes(checkpoints.epochs_to_bytes([(0, 0), (3, 17)]))
    assert [row.values for row in rows(epochs)][1] == {"epoch": 3, "first_offset": 17}
    points = tmp_path / checkpoints.RECOVERY_POINTS
    points.write_bytes(checkpoints.offsets_to_bytes({("orders", 2): 40}))
    assert rows(points)[0].values == {"topic": "orders", "partition": 2, "offset": 40}
    properties = tmp_path / checkpoints.META_PROPERTIES
    properties.write_bytes(checkpoints.properties_to_bytes({"node.id": "1"}))
    assert rows(properties)[0].values == {"node.id": "1"}
    quorum = tmp_path / "quorum-state"
    quorum.write_text('{"leaderId": 1, "leaderEpoch": 2}')
    assert rows(quorum)[1].values == {"leaderEpoch": 2}


def test_garbage_is_damage_not_a_traceback(tmp_path: Path) -> None:
    for name in (
        checkpoints.LEADER_EPOCHS,
        checkpoints.PARTITION_METADATA,
        "quorum-state",
        "00000000000000000000.snapshot",
        "00000000000000000000.log",
    ):
        path = tmp_path / name
        path.write_bytes(b"\xff" * 300)
        assert any(row.damage for row in rows(path, records=True)), name


def test_other_files_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("hello")
    with pytest.raises(CannotRead, match="none of the files"):
        rows(other)
    with pytest.raises(Failure, match="none of the files"):
        dump([other], records=False, as_json=False)
    with pytest.raises(CannotRead, match="Cannot read"):
        rows(tmp_path / "00000000000000000000.log")


def test_damage_ends_with_a_failure_after_everything_was_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = a_log(tmp_path, batch(0, 3)[:-1])
    with pytest.raises(Failure, match="1 place of what was read is damaged"):
        dump([path], records=False, as_json=True)
    assert json.loads(capsys.readouterr().out)["kind"] == "rest"


def test_an_index_of_aborted_transactions_shows_them(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(
        transaction_index.ENTRY.pack(0, 7, 3, 9, 10)
        + transaction_index.ENTRY.pack(0, 8, 2, 5, 6)[:20]
    )
    first, torn = rows(path)
    assert first.values == {
        "producer": 7,
        "first_offset": 3,
        "marker": 9,
        "last_stable_offset": 10,
    }
    assert first.damage is None
    assert torn.damage == "the last entry is torn"


def test_the_recovery_point_of_the_metadata_log(tmp_path: Path) -> None:
    file = tmp_path / "recovery-point"
    file.write_bytes(encode_recovery_point(41))
    assert rows(file)[0].values == {"offset": 41}
    file.write_bytes(file.read_bytes().replace(b"41", b"42", 1))
    assert "fails its checksum" in str(rows(file)[0].damage)
