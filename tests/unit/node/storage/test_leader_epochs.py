"""Where leader epochs began and ended."""

import os

import pytest

from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.storage.leader_epochs import UNDEFINED, LeaderEpochs


@pytest.fixture
def epochs(tmp_path):
    epochs = LeaderEpochs(RealDisk(), str(tmp_path))
    for epoch, start in ((2, 0), (3, 10), (7, 25)):
        epochs.assign(epoch, start)
    return epochs


def test_where_an_epoch_ended(epochs):
    end = 100
    assert epochs.end_offset_for(7, end) == (7, 100)
    assert epochs.end_offset_for(3, end) == (3, 25)
    assert epochs.end_offset_for(5, end) == (3, 25)  # nobody wrote in 5
    assert epochs.end_offset_for(2, end) == (2, 10)
    assert epochs.end_offset_for(0, end) == (0, 0)  # older than all
    assert epochs.end_offset_for(8, end) == UNDEFINED
    assert epochs.end_offset_for(-1, end) == UNDEFINED


def test_an_epoch_that_the_disk_refuses_is_not_known(epochs, monkeypatch):
    def refuse(disk, path, pieces, *, flush=True):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(RealDisk, "write_file", refuse)
        with pytest.raises(OSError, match="No space"):
            epochs.assign(8, 20)
    assert epochs.entries == [(2, 0), (3, 10), (7, 25)] and epochs.latest == 7
    epochs.assign(8, 20)
    assert epochs.entries == [(2, 0), (3, 10), (8, 20)]


def test_the_epoch_of_an_offset(epochs):
    assert [epochs.epoch_of(offset) for offset in (0, 9, 10, 24, 25, 1000)] == [2, 2, 3, 3, 7, 7]
    epochs.truncate_from_start(12)
    assert [epochs.epoch_of(offset) for offset in (11, 12, 25)] == [-1, 3, 7]


def test_an_entry_that_contradicts_replaces(epochs):
    epochs.assign(8, 20)
    assert epochs.entries == [(2, 0), (3, 10), (8, 20)]
    epochs.assign(8, 30)  # more of the same
    assert epochs.entries == [(2, 0), (3, 10), (8, 20)]
    epochs.assign(-1, 40)  # batches without an epoch say nothing
    assert epochs.entries == [(2, 0), (3, 10), (8, 20)]


def test_cut_at_either_end(epochs):
    epochs.truncate_from_end(25)
    assert epochs.entries == [(2, 0), (3, 10)] and epochs.latest == 3
    epochs.truncate_from_start(10)
    assert epochs.entries == [(3, 10)]
    epochs.truncate_from_start(17)
    assert epochs.entries == [(3, 17)]
    epochs.truncate_from_end(17)
    assert epochs.entries == [] and epochs.latest == -1


def test_the_file_has_every_change(epochs, tmp_path):
    def again():
        other = LeaderEpochs(RealDisk(), str(tmp_path))
        other.load()
        return other.entries

    assert again() == [(2, 0), (3, 10), (7, 25)]
    epochs.truncate_from_start(12)
    assert again() == [(3, 12), (7, 25)]
    epochs.clear()
    assert again() == []
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n0\n"


def test_a_start_fits_them_to_the_log_and_writes_the_file_once(epochs, tmp_path):
    epochs.assign(9, 100)  # nothing was ever written in it
    again = LeaderEpochs(RealDisk(), str(tmp_path))
    again.load()
    found = os.stat(again.path)
    again.fit(12, 100)
    assert again.entries == [(3, 12), (7, 25)]
    assert again.latest == 7
    assert os.stat(again.path).st_ino == found.st_ino, "it is written when the next epoch begins"
    again.assign(11, 100)
    last = LeaderEpochs(RealDisk(), str(tmp_path))
    last.load()
    assert last.entries == [(3, 12), (7, 25), (11, 100)]


def test_an_empty_log_keeps_the_epoch_in_which_it_was_emptied(epochs):
    epochs.fit(40, 41)
    assert epochs.entries == [(7, 40)]
    epochs.fit(0, 1)
    assert epochs.entries == []
