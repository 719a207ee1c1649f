"""Entries of a `.txnindex` are held against the log before readers are told of them."""

import logging
from pathlib import Path

import pytest

from headrace.node.storage.segments.transaction_index import ENTRY
from tests.unit.node.storage.a_log import ALog, Writer
from tests.unit.node.storage.test_transactions import aborted_for


@pytest.fixture
def log(tmp_path):
    """Two producers whose transactions cross a roll; 1 and 3 abort, 2 commits."""
    log = ALog(tmp_path, segment_bytes=400)
    one, two, three = (Writer(log, number) for number in (1, 2, 3))
    one.send(size=100)
    two.send(size=100)
    one.end(commit=False)
    three.send(size=100)
    two.end(commit=True)
    one.send(size=100)
    three.end(commit=False)
    one.end(commit=False)
    log.end_turn()
    assert len(log.log.segments) > 2
    return log


def indexes(log):
    return sorted(Path(log.folder).glob("*.txnindex"))


def all_aborted(log):
    return [aborted_for(log, base) for base in log.log.segments.bases]


def test_every_flipped_bit_that_matters_is_found_and_mended(log, caplog):
    log.restart()
    right = all_aborted(log)
    assert sum(map(len, right)) >= 3
    mended = 0
    for path in indexes(log):
        good = path.read_bytes()
        for position in range(len(good)):
            damaged = bytearray(good)
            damaged[position] ^= 1 << position * 5 % 8
            path.write_bytes(damaged)
            caplog.clear()
            log.restart()
            assert all_aborted(log) == right, (path.name, position)
            if path.read_bytes() == good:
                mended += 1
                assert path.name in caplog.text and "rebuilt" in caplog.text
            path.write_bytes(good)
    flipped = sum(len(path.read_bytes()) for path in indexes(log))
    assert mended > flipped * 0.8, "what is left says that less is stable than is, which costs time"


def test_half_an_entry_and_one_of_another_version_are_found(log, caplog):
    log.restart()
    right = all_aborted(log)
    path = indexes(log)[0]
    good = path.read_bytes()
    for damaged in (good[:-3], b"\0\1" + good[2:], good + ENTRY.pack(0, 9, 0, 1 << 40, 0)):
        path.write_bytes(damaged)
        log.restart()
        assert all_aborted(log) == right
        assert path.read_bytes() == good


def test_what_is_right_is_left_alone(log, caplog):
    caplog.set_level(logging.WARNING)
    before = [path.read_bytes() for path in indexes(log)]
    log.restart()
    log.log.segments.check_aborted(log.log.end_offset)
    assert [path.read_bytes() for path in indexes(log)] == before
    assert not caplog.records
