"""A `leader-epoch-checkpoint` that the log's own batches contradict is rebuilt at a start."""

import pytest

from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.storage.checkpoints import LEADER_EPOCHS, epochs_from_bytes, epochs_to_bytes
from tests.unit.node.storage.a_log import ALog

RIGHT = [(1, 0), (4, 2), (5, 6)]


def a_log(folder, **settings):
    log = ALog(folder, **settings)
    for epoch, count in ((1, 2), (4, 4), (5, 3)):
        for number in range(count):
            log.append_values(b"%d.%d" % (epoch, number), epoch=epoch)
    assert log.log.epochs.entries == RIGHT
    return log


def write(log, entries):
    RealDisk().write_file(f"{log.folder}/{LEADER_EPOCHS}", [epochs_to_bytes(entries)])


def read(log):
    return list(epochs_from_bytes(RealDisk().read_file(f"{log.folder}/{LEADER_EPOCHS}")))


@pytest.mark.parametrize("segment_bytes", [1 << 20, 200])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "wrong",
    [
        [(1, 0), (4, 2), (9, 6)],  # the latest epoch is one that never was
        [(1, 0), (4, 2)],  # the latest is missing
        [(1, 0), (4, 5), (5, 6)],  # one begins later
        [(1, 0), (4, 1), (5, 6)],  # one begins earlier
        [(7, 0)],
        [(0, 0), (4, 2), (5, 6)],
        [],
    ],
    ids=str,
)
def test_a_wrong_file_is_rebuilt(tmp_path, caplog, wrong, clean, segment_bytes):
    log = a_log(tmp_path, segment_bytes=segment_bytes)
    log.end_turn()
    log.log.close().run(RealDisk())
    write(log, wrong)
    log.open(clean=clean, recovery_point=9)
    assert log.log.epochs.entries == RIGHT
    assert log.log.epochs.latest == 5
    if clean:  # else the batches behind the recovery point were read anyway
        assert read(log) == RIGHT
        assert "leader-epoch-checkpoint is wrong: the batch at offset" in caplog.text


def test_a_right_file_stays(tmp_path, caplog):
    log = a_log(tmp_path)
    log.restart()
    assert log.log.epochs.entries == RIGHT
    assert caplog.text == ""


def test_an_epoch_in_which_nothing_was_written_contradicts_nothing(tmp_path, caplog):
    log = a_log(tmp_path)
    log.log.epochs.assign(8, 9)
    log.restart()
    assert log.log.epochs.entries == RIGHT, "it begins at the end of the log, so it is forgotten"
    assert caplog.text == ""


def test_a_log_that_begins_within_a_batch_contradicts_nothing(tmp_path, caplog):
    log = ALog(tmp_path)
    log.append_values(b"0", b"1", b"2", epoch=3)
    log.append_values(b"3", epoch=4)
    log.log.delete_records_before(1)
    log.end_turn()
    log.log.close().run(RealDisk())
    log.open(clean=True, start_offset=1, recovery_point=4)
    assert log.log.epochs.entries == [(3, 1), (4, 3)]
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("number", "flipped"),
    [
        (3, 1),  # 4 becomes 5, between two of 4
        (2, 1),  # the first of epoch 4 becomes one of 5
        (2, 64),
        (4, 2),  # 4 becomes 6
        (6, 16),  # the first of epoch 5
        (5, 4),  # the last of epoch 4 becomes one of 0
        (0, 32),
        (8, 4),  # the last of all becomes one of 1
    ],
)
def test_a_flipped_bit_in_the_epoch_of_one_batch_does_not_count(tmp_path, caplog, number, flipped):
    """It is not under the checksum; its neighbours and the file agree."""
    log = a_log(tmp_path)
    log.end_turn()
    log.log.close().run(RealDisk())
    path = f"{log.folder}/{0:020d}.log"
    data = bytearray(RealDisk().read_file(path))
    size = len(data) // 9
    data[number * size + 15] ^= flipped
    RealDisk().write_file(path, [bytes(data)])
    log.open(clean=True)
    assert log.log.epochs.entries == RIGHT
    assert caplog.text == ""


def test_batches_before_the_start_of_the_log_contradict_nothing(tmp_path, caplog):
    log = a_log(tmp_path)
    log.log.delete_records_before(2)
    log.end_turn()
    log.log.close().run(RealDisk())
    log.open(clean=True, start_offset=2, recovery_point=9)
    assert log.log.epochs.entries == RIGHT[1:]
    assert caplog.text == ""


def test_a_batch_that_does_not_count_contradicts_no_other(tmp_path):
    """The file is wrong, and the first batch of epoch 4 seems to be of 5."""
    log = a_log(tmp_path)
    log.end_turn()
    log.log.close().run(RealDisk())
    path = f"{log.folder}/{0:020d}.log"
    data = bytearray(RealDisk().read_file(path))
    data[2 * (len(data) // 9) + 15] ^= 1
    RealDisk().write_file(path, [bytes(data)])
    write(log, [(7, 0)])
    log.open(clean=True, recovery_point=9)
    assert log.log.epochs.entries == [(1, 0), (4, 3), (5, 6)]
