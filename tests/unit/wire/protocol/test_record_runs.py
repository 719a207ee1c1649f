"""Records of one shape are taken together; what comes out is what a walk gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.node.storage.compaction.last_of_keys import LastOfKeys
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.primitives import read_zigzag
from headrace.wire.protocol.record_batch import HEADER_SIZE, Record, build, walk
from headrace.wire.protocol.record_batch import runs as record_runs
from headrace.wire.protocol.record_batch.keys import (
    LONGEST_KEY,
    digest,
    keys_of_batch,
    offset_deltas,
    values_of_batch,
)
from headrace.wire.protocol.record_batch.retained import records_at

BASE = 1_000


def a_batch(shapes):
    """`shapes`: how often, length of the key (None: no key) and of the value, step in time."""
    records, time_ms = [], 1_700_000_000_000
    for times, key_length, value_length, step_ms in shapes:
        for _ in range(times):
            number = len(records)
            key = None if key_length is None else (b"%03d" % (number % 50)).ljust(key_length, b"k")
            value = None if value_length is None else b"v" * value_length
            records.append(Record(key, value, timestamp=time_ms))
            time_ms += step_ms
    return build(records, base_offset=BASE)


shapes = st.lists(
    st.tuples(
        st.integers(1, 150),
        st.sampled_from([3, 10, 64, 65, 200, None]),
        st.sampled_from([0, 10, 100, 300, 9_000, None]),
        st.sampled_from([0, 1, 70]),
    ),
    min_size=1,
    max_size=4,
)


@given(shapes)
def test_runs_give_what_a_walk_gives(shapes):
    batch = a_batch(shapes)
    records = list(walk(batch, 1 << 24))
    count = len(records)
    names, tombstones = keys_of_batch(batch, HEADER_SIZE, len(batch), count)
    assert names == [
        digest(record.key) if len(record.key or b"") > LONGEST_KEY else record.key
        for record in records
    ]
    assert tombstones == any(r.key is not None and r.value is None for r in records)
    assert offset_deltas(batch, HEADER_SIZE, count, count - 1) == list(range(count))
    assert list(values_of_batch(batch, HEADER_SIZE, count)) == [
        record.value is not None for record in records
    ]
    keys = LastOfKeys(1 << 30)
    keys.note(names, range(BASE, BASE + count))
    keys.finish()
    expected = {key: offset for offset, key in enumerate(names, start=BASE) if key is not None}
    flags = keys.staying(BASE, count)
    assert [BASE + at for at in range(count) if flags[at]] == sorted(expected.values())
    pieces = records_at(batch, HEADER_SIZE, len(batch), flags)
    each = list(spans(batch, count))
    assert b"".join(batch[start:stop] for start, stop in pieces) == b"".join(
        batch[start:stop] for (start, stop), flag in zip(each, flags, strict=True) if flag
    )


def spans(batch, count):
    """Where each record begins and ends."""
    pos = HEADER_SIZE
    for _ in range(count):
        length, at = read_zigzag(batch, pos)
        yield pos, at + length
        pos = at + length


def test_a_run_ends_where_its_numbers_take_another_byte():
    batch = a_batch([(100, 10, 100, 0)])
    size, found = record_runs.alike(batch, HEADER_SIZE, len(batch), 100)
    assert found == 64, "the offset of the 65th takes two bytes"
    assert record_runs.keys_alike(batch, HEADER_SIZE, size, found) == (6, 10, 64)
    size, found = record_runs.alike(batch, HEADER_SIZE + found * size, len(batch), 36)
    assert found == 36


def test_a_batch_that_differs_in_one_byte_is_not_taken_for_the_one_before():
    """The runs of the last batch are tried first; each number in front of a key must count."""
    alike = a_batch([(20, 10, 100, 0)])
    first = HEADER_SIZE + 7 * 119
    keys_of_batch(alike, HEADER_SIZE, len(alike), 20)
    assert len(record_runs.runs_at(alike, HEADER_SIZE, len(alike), 20)) == 1
    moved = bytearray(alike)
    moved[first + 5] -= 2  # a shorter key, and so a value that begins a byte before
    with pytest.raises(MalformedMessage):
        keys_of_batch(bytes(moved), HEADER_SIZE, len(alike), 20)
    other = bytearray(alike)
    other[first + 5 : first + 17] = bytes([18]) + b"007kkkkkk" + bytes([202, 1])  # a longer value
    names, _ = keys_of_batch(bytes(other), HEADER_SIZE, len(alike), 20)
    assert [len(name) for name in names] == [10] * 7 + [9] + [10] * 12
    later = bytearray(alike)
    later[first + 3 : first + 6] = bytes([200, 1, later[first + 4]])  # a larger timestamp delta
    with pytest.raises(MalformedMessage):
        keys_of_batch(bytes(later), HEADER_SIZE, len(alike), 20)


def test_an_offset_outside_its_batch_is_damage():
    batch = a_batch([(3, 3, 3, 0)])
    with pytest.raises(MalformedMessage, match="outside its batch"):
        offset_deltas(batch, HEADER_SIZE, 3, 1)


def test_what_was_noted_first_stands_behind_what_is_noted_later():
    keys = LastOfKeys(1 << 30)
    keys.note([b"a", b"b", None], range(10**15, 10**15 + 3))
    keys.note([b"c", b"a", b"c"], range(7, 10))
    keys.finish()
    assert list(keys.staying(5, 6)) == [0, 0, 0, 0, 1, 0], "the last c"
    assert list(keys.staying(10**15 - 1, 6)) == [0, 1, 1, 0, 0, 0]
    assert list(keys.staying(5, 6)) == [0, 0, 0, 0, 1, 0], "asked again"
    assert list(keys.not_seen([b"c", b"d", None, b"d"])) == [0, 1, 0, 1]


def test_a_million_keys_of_ten_bytes_fit_into_the_default_memory():
    """Else a gigabyte of small records would take two rounds."""
    keys = LastOfKeys(128 << 20)
    keys.note([b"%010d" % number for number in range(1_060_000)], range(1_060_000))
    assert not keys.is_full
    assert keys.bytes_used > 80 << 20
