"""Records of one shape are taken together; what comes out is what a walk gives."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.primitives import read_zigzag
from headrace.protocol.record_batch import HEADER_SIZE, Record, build, walk
from headrace.storage import record_runs
from headrace.storage.last_of_keys import LONGEST_KEY, LastOfKeys, digest
from headrace.storage.retained_records import records_at

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


def noted(batch):
    keys = LastOfKeys(1 << 30)
    count = len(list(walk(batch, 1 << 24)))
    keys.note(batch, HEADER_SIZE, len(batch), base_offset=BASE, count=count, has_gaps=False)
    keys.latest_offset = BASE + count - 1
    keys.settle()
    return keys, count


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
    keys, count = noted(batch)
    expected = {}
    for offset, record in enumerate(records, start=BASE):
        if record.key is not None:
            key = record.key if len(record.key) <= LONGEST_KEY else digest(record.key)
            expected[key] = offset
    assert keys.offsets == expected
    deleted = any(record.key is not None and record.value is None for record in records)
    assert (BASE in keys.with_tombstones) == deleted
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


def test_offsets_far_apart_are_kept_in_order_instead_of_one_flag_each():
    keys = LastOfKeys(1 << 30)
    for base in (0, 10**15):
        batch = a_batch([(10, 10, 10, 0)])
        keys.note(batch, HEADER_SIZE, len(batch), base_offset=base, count=10, has_gaps=False)
        keys.latest_offset = base + 9
    keys.settle()
    assert not any(keys.staying(0, 10))
    assert all(keys.staying(10**15, 10))
    assert list(keys.staying(10**15 + 8, 4)) == [1, 1, 0, 0]


def test_a_million_keys_of_ten_bytes_fit_into_the_default_memory():
    """Else a gigabyte of small records would take two rounds."""
    keys = LastOfKeys(128 << 20)
    keys.offsets = {b"%010d" % number: 10**9 + number for number in range(1_060_000)}
    keys._keys_size = len(keys.offsets) * (32 + 48)
    batch = a_batch([(10, 10, 10, 0)])
    keys.note(batch, HEADER_SIZE, len(batch), base_offset=0, count=10, has_gaps=False)
    assert not keys.is_full
    assert keys.bytes_used > 100 << 20
