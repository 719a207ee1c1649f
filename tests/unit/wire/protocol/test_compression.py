"""Codecs: round trips, the framings other implementations use, and bombs."""

from __future__ import annotations

import gzip
import tracemalloc
from random import Random

import cramjam
import pytest
from aiokafka import codec as other
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.wire.protocol import compression
from headrace.wire.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress
from headrace.wire.protocol.errors import MalformedMessage
from tests.effort import examples

CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
REAL_CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
EACH_CODEC = pytest.mark.parametrize("codec", REAL_CODECS, ids=lambda c: compression.NAMES[c])
MIB = 1024 * 1024
SAMPLES = [b"", b"a", b"abc" * 1000, Random(1).randbytes(100_000), bytes(300_000)]


@pytest.mark.parametrize("codec", CODECS)
def test_what_was_compressed_comes_back(codec: int) -> None:
    for data in SAMPLES:
        assert decompress(codec, compress(codec, data), len(data)) == data
        assert decompress(codec, memoryview(compress(codec, memoryview(data))), MIB) == data


@EACH_CODEC
@settings(derandomize=True, max_examples=examples(50))
@given(st.binary(max_size=2000))
def test_random_bytes_come_back(codec: int, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), 2000) == data


@pytest.mark.parametrize(
    ("codec", "levels"), [(GZIP, (1, 6, 9)), (LZ4, (1, 9, 12, 17)), (ZSTD, (-5, 1, 3, 19))]
)
def test_levels_of_kafka_are_accepted(codec: int, levels: tuple[int, ...]) -> None:
    data = b"some text that is repeated, " * 200
    for level in levels:
        assert decompress(codec, compress(codec, data, level), MIB) == data


def test_other_implementations_read_what_we_write_and_we_read_theirs() -> None:
    data = b"kafka " * 20_000
    assert gzip.decompress(compress(GZIP, data)) == data
    assert other.snappy_decode(compress(SNAPPY, data)) == data
    assert bytes(other.lz4_decode(compress(LZ4, data))) == data
    assert bytes(other.zstd_decode(compress(ZSTD, data))) == data
    assert decompress(GZIP, gzip.compress(data), MIB) == data
    assert decompress(SNAPPY, other.snappy_encode(data), MIB) == data
    assert decompress(LZ4, bytes(other.lz4_encode(data)), MIB) == data
    assert decompress(ZSTD, bytes(other.zstd_encode(data)), MIB) == data


def test_snappy_has_the_framing_of_javas_library_and_is_read_without_it_too() -> None:
    data = Random(2).randbytes(70_000)
    framed = compress(SNAPPY, data)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    blocks, pos = 0, 16
    while pos < len(framed):
        pos += 4 + int.from_bytes(framed[pos : pos + 4], "big")
        blocks += 1
    assert (blocks, pos) == (3, len(framed))  # of 32 KiB each
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(data)), MIB) == data


def test_lz4_blocks_are_independent_since_kafka_reads_no_others() -> None:
    frame = compress(LZ4, bytes(200_000))
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0x20


def test_gzip_in_several_members_is_read_to_the_end() -> None:
    assert decompress(GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), 7) == b"one two"
    with pytest.raises(MalformedMessage):
        decompress(GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), 6)


@EACH_CODEC
def test_one_byte_too_many_is_refused(codec: int) -> None:
    packed = compress(codec, b"x" * 50_000)
    assert len(decompress(codec, packed, 50_000)) == 50_000
    with pytest.raises(MalformedMessage, match="more than 49999 bytes"):
        decompress(codec, packed, 49_999)


@EACH_CODEC
def test_a_bomb_takes_no_more_memory_than_the_limit(codec: int) -> None:
    bomb = compress(codec, bytes(64 * MIB))
    tracemalloc.start()
    with pytest.raises(MalformedMessage):
        decompress(codec, bomb, MIB)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * MIB + 2 * len(bomb)


def test_a_snappy_length_that_cannot_be_true_is_not_believed() -> None:
    claims_a_gigabyte = b"\x80\x80\x80\x80\x04" + b"\x00a"
    with pytest.raises(MalformedMessage, match="cannot hold"):
        decompress(SNAPPY, claims_a_gigabyte, 2**31)
    lying_block = compress(SNAPPY, b"")[:16] + b"\x7f\xff\xff\xffabc"
    with pytest.raises(MalformedMessage, match="does not fit"):
        decompress(SNAPPY, lying_block, MIB)


@EACH_CODEC
def test_damaged_bytes_are_malformed_or_differ(codec: int) -> None:
    random = Random(codec)
    good = compress(codec, random.randbytes(500) * 4)
    for length in [*range(20), len(good) // 2, len(good) - 1]:
        if codec == SNAPPY and length == 16:
            continue  # a header without blocks is empty, not damaged
        with pytest.raises(MalformedMessage):
            decompress(codec, good[:length], MIB)
    for _ in range(300):
        bad = bytearray(good)
        bad[random.randrange(len(bad))] ^= 1 << random.randrange(8)
        try:
            decompress(codec, bytes(bad), MIB)
        except MalformedMessage:
            continue


def test_a_codec_that_does_not_exist() -> None:
    with pytest.raises(MalformedMessage):
        decompress(5, b"abc", 10)
    with pytest.raises(ValueError, match="no codec 7"):
        compress(7, b"abc")
    with pytest.raises(MalformedMessage):
        decompress(NONE, b"abc", 2)
