"""Batches: built here and read by others, built by others and read here, and damaged ones."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from headrace.wire.protocol import record_batch
from headrace.wire.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.record_batch import (
    HEADER_SIZE,
    Record,
    RecordHeader,
    build,
    crc_is_right,
    every_record_has_key,
    fields_in,
    headers_in,
    keys_and_values,
    read_header,
    walk,
)
from tests.effort import examples

LIMIT = 10 * 1024 * 1024
EACH_CODEC = pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])


def some_records(count: int) -> list[Record]:
    return [
        Record(
            b"key %d" % number,
            None if number % 5 == 4 else b"value " * number,
            [RecordHeader("trace", b"\x01"), RecordHeader("nothing", None)][: number % 3],
            timestamp=1_700_000_000_000 + number * 7 % 40,
        )
        for number in range(count)
    ]


def plain(records: Any) -> list[tuple[Any, ...]]:
    return [(r.key, r.value, [(h.key, h.value) for h in r.headers], r.timestamp) for r in records]


@EACH_CODEC
def test_a_batch_is_walked_as_it_was_built(codec: int) -> None:
    records = some_records(60)
    batch = build(records, base_offset=1000, leader_epoch=4, compression=codec)
    assert crc_is_right(batch)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (1000, 1059, 60)
    assert (header.compression, header.leader_epoch, header.size) == (codec, 4, len(batch))
    assert header.max_timestamp == max(r.timestamp for r in records)
    walked = list(walk(batch, LIMIT))
    assert plain(walked) == plain(records)
    assert [r.offset for r in walked] == list(range(1000, 1060))


@EACH_CODEC
def test_aiokafka_and_kafka_python_read_our_batches(codec: int) -> None:
    records = some_records(40)
    batch = build(records, base_offset=7, compression=codec)
    for reader in (AiokafkaBatch, KafkaPythonBatch):
        if reader is KafkaPythonBatch and codec not in (NONE, GZIP):
            continue  # it wants libraries of its own for the others
        theirs = reader(batch)
        assert theirs.validate_crc()
        read = [(r.key, r.value, list(r.headers), r.timestamp) for r in theirs]
        assert read == [(k, v, h, t) for k, v, h, t in plain(records)]


@EACH_CODEC
def test_we_read_the_batches_of_aiokafka(codec: int) -> None:
    builder = AiokafkaBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=9,
        producer_epoch=2,
        base_sequence=5,
        batch_size=1 << 20,
    )
    records = some_records(30)
    for number, r in enumerate(records):
        headers = [(h.key, h.value) for h in r.headers]
        builder.append(number, r.timestamp, r.key, r.value, headers)
    batch = bytes(builder.build())
    assert crc_is_right(batch)
    header = read_header(batch)
    assert header.is_transactional and not header.is_control
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 5)
    assert plain(walk(batch, LIMIT)) == plain(records)


def test_our_bytes_are_those_of_aiokafka() -> None:
    records = some_records(30)
    builder = AiokafkaBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for number, r in enumerate(records):
        builder.append(number, r.timestamp, r.key, r.value, [(h.key, h.value) for h in r.headers])
    ours = bytearray(build(records, leader_epoch=0))
    assert bytes(builder.build())[16:] == ours[16:]  # leader epoch is the broker's to set


@settings(derandomize=True, max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.builds(
            Record,
            key=st.none() | st.binary(max_size=200),
            value=st.none() | st.binary(max_size=200),
            headers=st.lists(
                st.builds(RecordHeader, key=st.text(max_size=9), value=st.none() | st.binary()),
                max_size=3,
            ),
            timestamp=st.integers(0, 2**50),
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([NONE, GZIP, SNAPPY, LZ4, ZSTD]),
)
def test_any_records_round_trip(records: list[Record], codec: int) -> None:
    batch = build(records, compression=codec)
    assert plain(walk(batch, LIMIT)) == plain(records)
    assert every_record_has_key(batch, LIMIT) == all(r.key is not None for r in records)
    assert pairs_of(batch * 2) == [(r.key, r.value) for r in records] * 2


def pairs_of(batches: bytes) -> list[tuple[bytes | None, bytes | None]]:
    return [
        pair
        for at, fields in fields_in(batches)
        for pair in keys_and_values(batches, at, fields, LIMIT)
    ]


def test_offsets_with_holes_are_kept() -> None:
    """What compaction leaves: some records gone, the last one among them."""
    records = [
        Record(b"a", b"1", timestamp=5, offset=103),
        Record(b"b", b"2", timestamp=6, offset=110),
    ]
    batch = build(records, base_offset=100, last_offset_delta=15)
    assert read_header(batch).last_offset == 115
    assert [r.offset for r in walk(batch, LIMIT)] == [103, 110]


def test_log_append_time_replaces_the_records_own() -> None:
    batch = build(some_records(3), log_append_time=True, max_timestamp=99)
    assert [r.timestamp for r in walk(batch, LIMIT)] == [99, 99, 99]


def test_offset_and_leader_epoch_can_be_changed_without_the_crc() -> None:
    batch = bytearray(build(some_records(3)))
    batch[record_batch.BASE_OFFSET_AT : record_batch.LENGTH_AT] = (5000).to_bytes(8, "big")
    batch[record_batch.LEADER_EPOCH_AT : record_batch.MAGIC_AT] = (8).to_bytes(4, "big")
    assert crc_is_right(batch)
    batch[record_batch.MAX_TIMESTAMP_AT] ^= 1
    assert not crc_is_right(batch)
    record_batch.seal(batch)
    assert crc_is_right(batch)


def test_constants_are_where_the_header_has_its_fields() -> None:
    numbers = (11, 49, 22, 2, 33, 0x30, 44, 55, 66, 77, 88, 99, 111)
    wire = record_batch.HEADER.pack(*numbers)
    header = read_header(wire)
    assert header[:13] == numbers
    for at, size, number in (
        (record_batch.LENGTH_AT, 4, 49),
        (record_batch.LEADER_EPOCH_AT, 4, 22),
        (record_batch.MAGIC_AT, 1, 2),
        (record_batch.CRC_AT, 4, 33),
        (record_batch.ATTRIBUTES_AT, 2, 0x30),
        (record_batch.LAST_OFFSET_DELTA_AT, 4, 44),
        (record_batch.BASE_TIMESTAMP_AT, 8, 55),
        (record_batch.MAX_TIMESTAMP_AT, 8, 66),
        (record_batch.PRODUCER_ID_AT, 8, 77),
        (record_batch.PRODUCER_EPOCH_AT, 2, 88),
        (record_batch.BASE_SEQUENCE_AT, 4, 99),
        (record_batch.RECORD_COUNT_AT, 4, 111),
    ):
        assert int.from_bytes(wire[at : at + size], "big") == number
    assert header.is_transactional and header.is_control
    assert "base_offset=11" in repr(header)


def test_batches_one_after_the_other_and_a_torn_one() -> None:
    first, second = build(some_records(2)), build(some_records(5), base_offset=2)
    found = list(headers_in(first + second + first[:70]))
    assert [(pos, header.base_offset) for pos, header in found] == [(0, 0), (len(first), 2)]
    assert list(headers_in(first[:30])) == []


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_formats_are_refused_by_their_magic(magic: int) -> None:
    batch = bytearray(build(some_records(1)))
    batch[record_batch.MAGIC_AT] = magic
    with pytest.raises(MalformedMessage, match=f"magic {magic}"):
        read_header(batch)


def test_a_header_cut_short_or_with_a_silly_length_is_refused() -> None:
    batch = bytearray(build(some_records(1)))
    with pytest.raises(MalformedMessage, match="too few"):
        read_header(batch[:60])
    with pytest.raises(MalformedMessage, match="announced"):
        list(walk(batch[:-1], LIMIT))
    batch[record_batch.LENGTH_AT : record_batch.LENGTH_AT + 4] = (48).to_bytes(4, "big")
    with pytest.raises(MalformedMessage, match="too small"):
        read_header(batch)


@pytest.mark.parametrize("count", [-1, 0, 2, 4, 2**31 - 1])
def test_more_or_fewer_records_than_announced_are_refused(count: int) -> None:
    batch = bytearray(build(some_records(3)))
    batch[record_batch.RECORD_COUNT_AT : HEADER_SIZE] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedMessage):
        list(walk(batch, LIMIT))
    with pytest.raises(MalformedMessage):
        pairs_of(bytes(batch))


@EACH_CODEC
def test_damaged_records_are_malformed_and_nothing_else(codec: int) -> None:
    random = Random(codec)
    good = build(some_records(12), compression=codec)
    for _ in range(400):
        bad = bytearray(good)
        at = random.randrange(HEADER_SIZE, len(bad))
        bad[at : at + random.choice((1, 1, 4))] = random.choice((b"\xff" * 4, random.randbytes(1)))
        for read in (
            lambda b: list(walk(b, LIMIT)),
            lambda b: every_record_has_key(b, LIMIT),
            lambda b: pairs_of(b + good),
        ):
            try:
                read(bytes(bad[: len(good)]))
            except MalformedMessage:
                continue


def test_headers_that_cannot_be_are_refused_and_a_last_batch_cut_off_is_left_out() -> None:
    batch = build(some_records(2))
    assert [at for at, _ in fields_in(batch * 2 + batch[:-1])] == [0, len(batch)]
    for at, wrong in ((record_batch.MAGIC_AT, b"\x01"), (record_batch.LENGTH_AT, bytes(4))):
        bad = batch[:at] + wrong + batch[at + len(wrong) :]
        with pytest.raises(MalformedMessage):
            list(fields_in(batch + bad))


def test_keys_are_looked_for_in_compressed_batches_too() -> None:
    records = [*some_records(5), Record(None, b"no key", timestamp=0)]
    for codec in (NONE, ZSTD):
        assert every_record_has_key(build(some_records(5), compression=codec), LIMIT)
        assert not every_record_has_key(build(records, compression=codec), LIMIT)


def test_a_batch_that_unpacks_to_too_much_is_refused() -> None:
    batch = build([Record(None, bytes(100_000), timestamp=0)], compression=GZIP)
    with pytest.raises(MalformedMessage, match="more than 50000 bytes"):
        list(walk(batch, 50_000))


def test_records_print_what_they_hold() -> None:
    assert repr(Record(b"k", None, [RecordHeader("h", b"v")], 5, 6)) == (
        "Record(key=b'k', value=None, headers=[RecordHeader('h', b'v')], timestamp=5, offset=6)"
    )
    assert RecordHeader("h", b"v") != RecordHeader("h", None)
    assert RecordHeader("h", b"v") != "h"


def test_the_fields_of_a_header_have_one_set_of_names() -> None:
    names = [name.upper() for name in record_batch.BatchHeader._fields]
    names[names.index("MAGIC")] = "FORMAT"  # MAGIC is the one that is taken
    assert names.pop() == "POSITION"
    for at, name in enumerate(names):
        assert getattr(record_batch, name) == at
        assert hasattr(record_batch, f"{name if name != 'FORMAT' else 'MAGIC'}_AT")
