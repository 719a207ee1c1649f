"""Offset and time index on their own: lookups against a plain list, files, cuts."""

from bisect import bisect_right
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.segments.offset_index import OffsetIndex
from headrace.node.storage.segments.time_index import TimeIndex
from tests.effort import examples

BASE = 1000


def an_index(kind, folder, max_bytes=1 << 16):
    index = kind(OpenFiles(RealDisk()), f"{folder}/index", BASE)
    index.create(max_bytes)
    return index


def test_a_file_is_as_long_as_it_may_become_then_as_long_as_it_is(tmp_path):
    index = an_index(OffsetIndex, tmp_path, max_bytes=100)
    assert (tmp_path / "index").stat().st_size == 96 and index.max_entries == 12
    index.add(BASE + 5, 777)
    index.trim()
    assert (tmp_path / "index").read_bytes() == pack(">ii", 5, 777)
    index.grow(100)
    assert (tmp_path / "index").stat().st_size == 96 and not index.is_full()


def test_time_index_keeps_a_slot_for_the_end(tmp_path):
    index = an_index(TimeIndex, tmp_path, max_bytes=36)
    index.add(10, BASE)
    assert not index.is_full()
    index.add(20, BASE + 1)
    assert index.is_full()
    index.add(30, BASE + 2)  # what a seal does
    index.trim()
    assert (tmp_path / "index").read_bytes() == pack(">qiqiqi", 10, 0, 20, 1, 30, 2)


def test_time_index_takes_only_younger_times(tmp_path):
    index = an_index(TimeIndex, tmp_path)
    index.add(10, BASE)
    index.add(10, BASE + 3)
    index.add(9, BASE + 4)
    assert index.all_entries() == [(10, 0)]
    index.add(-1, BASE + 9)
    assert index.entries == 1


def test_entries_ascend(tmp_path):
    index = an_index(OffsetIndex, tmp_path)
    index.add(BASE + 5, 1)
    with pytest.raises(AssertionError):
        index.add(BASE + 5, 2)


def test_a_full_disk_loses_no_entry(tmp_path):
    index = an_index(OffsetIndex, tmp_path)

    class Full:
        size = 0

        def write_at(self, data, position):
            raise OSError(28, "No space left on device")

    there = index.file
    index.file = Full()
    for number in range(200):
        index.add(BASE + number, number)
    assert index.position_for(BASE + 150) == 150
    index.file = there
    index.write()
    assert index.all_entries() == [(n, n) for n in range(200)]


@settings(max_examples=examples(60), deadline=None)
@given(
    steps=st.lists(st.integers(1, 50), max_size=300),
    write_at=st.integers(0, 300),
    targets=st.lists(st.integers(BASE - 5, BASE + 16_000), max_size=20),
)
def test_lookups_are_those_of_a_list(tmp_path_factory, steps, write_at, targets):
    index = an_index(OffsetIndex, tmp_path_factory.mktemp("index"))
    offsets, offset = [], BASE
    for number, step in enumerate(steps):
        offset += step
        index.add(offset, number * 10)
        offsets.append(offset)
        if number == write_at:
            index.write()
    for target in [*targets, *offsets]:
        slot = bisect_right(offsets, target) - 1
        assert index.position_for(target) == (0 if slot < 0 else slot * 10)


def test_lookups_in_a_large_index(tmp_path):
    index = an_index(TimeIndex, tmp_path, max_bytes=1 << 20)
    for number in range(20_000):
        index.add(number * 3, BASE + number)
    again = TimeIndex(OpenFiles(RealDisk()), f"{tmp_path}/index", BASE)
    index.trim()
    again.load()
    assert again.entries == 20_000 and again.last_timestamp == 59_997
    for timestamp in (0, 1, 2, 3, 1535, 1536, 30_000, 59_996, 59_997, 70_000):
        expected = BASE + min(timestamp // 3, 19_999)
        assert index.offset_for(timestamp) == again.offset_for(timestamp) == expected
    assert again.offset_for(-1) == BASE


@settings(max_examples=examples(25), deadline=None)
@given(
    runs=st.lists(st.tuples(st.integers(1, 1500), st.integers(1, 300)), min_size=1, max_size=6),
    data=st.data(),
)
def test_lookups_where_offsets_and_bytes_do_not_grow_alike(tmp_path_factory, runs, data):
    index = an_index(OffsetIndex, tmp_path_factory.mktemp("index"), max_bytes=1 << 20)
    offsets, offset = [], BASE
    for count, step in runs:
        for _ in range(count):
            offset += step
            index.add(offset, len(offsets) * 10)
            offsets.append(offset)
    if data.draw(st.booleans()):
        index.write()
    targets = st.one_of(st.sampled_from(offsets), st.integers(BASE, offset + 5))
    for target in data.draw(st.lists(targets, min_size=10, max_size=30)):
        slot = bisect_right(offsets, target) - 1
        assert index.position_for(target) == (0 if slot < 0 else slot * 10)


@settings(max_examples=examples(40), deadline=None)
@given(count=st.integers(0, 150), to=st.integers(BASE, BASE + 400), written=st.booleans())
def test_truncation_keeps_what_ends_before(tmp_path_factory, count, to, written):
    folder = tmp_path_factory.mktemp("index")
    index = an_index(OffsetIndex, folder, max_bytes=8000)
    for number in range(count):
        index.add(BASE + 3 * number, number)
    if written:
        index.write()
    index.truncate(to)
    kept = [(3 * n, n) for n in range(count) if BASE + 3 * n < to]
    assert index.all_entries() == kept
    assert index.last_offset == (BASE + kept[-1][0] if kept else BASE)
    index.add(BASE + 5000, 99)
    index.write()
    data = (folder / "index").read_bytes()
    assert len(data) == 8000
    expected = b"".join(pack(">ii", *entry) for entry in [*kept, (5000, 99)])
    assert data == expected + bytes(8000 - len(expected))


def test_few_files_are_enough_for_many_indexes(tmp_path):
    open_files = OpenFiles(RealDisk(), limit=3)
    indexes = []
    for number in range(10):
        index = OffsetIndex(open_files, f"{tmp_path}/{number}", BASE)
        index.create(800)
        indexes.append(index)
    for _ in range(3):
        for number, index in enumerate(indexes):
            index.add(index.last_offset + 1 + number, number)
            index.write()
            assert len(open_files) <= 3
    for number, index in enumerate(indexes):
        assert [position for _, position in index.all_entries()] == [number] * 3
