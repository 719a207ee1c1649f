"""Requests by their definitions, field by field, with what an attacker would put there.

Lengths that are null where null is not allowed, negative, too large or too long to write; tagged
fields that come twice, out of order, or are longer than they are; names that are no UTF-8, end
lines, or are numbers of five thousand digits; one thing named a thousand times; and batches whose
checksum is right and nothing else: counts, attributes, offsets, times, producers, compressed bombs.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from random import Random
from struct import pack
from typing import Any

import cramjam

from headrace.node.serving.route import Route
from headrace.wire.protocol import record_batch as batches
from headrace.wire.protocol.record_batch import Record, build, seal
from tests.fuzz.inventing import SHAPES, Familiar
from tests.unit.wire.protocol.wire_interpreter import Shape, Writer

MB = 1 << 20
NAMES = (
    "a\r\nb",
    "\x00",
    "\u202egnp.exe",
    "../../../../etc/passwd",
    "${file:/etc/passwd:root}",
    "..",
    "+-1",
    "01",
    "9" * 5_000,
    "1e999",
    "x" * 0x7FFF,
    "(" * 3_000,
    "(a+)+$",
    ".*",
    "a{99999}",
    "\udcff\udcfe",  # written as two bytes that are no UTF-8
    "127.0.0.1:" + "9" * 5_000,
    "client_id=" + "(" * 3_000,
)
SETTINGS = (
    "retention.ms",
    "segment.bytes",
    "max.message.bytes",
    "cleanup.policy",
    "compression.type",
    "message.timestamp.before.max.ms",
    "max.connections.per.ip.overrides",
    "max.connections",
    "message.max.bytes",
    "listener.name.x.ssl.keystore.location",
    "sasl.oauthbearer.jwks.endpoint.url",
    "match",
    "interval.ms",
    "consumer.session.timeout.ms",
    "log.retention.ms",
)
BORDERS = (0, -1, 1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**15 - 1, 2**62, 4_000_000_000)
# What they unfold to is far more than what they are.
BOMBS = (
    (1, gzip.compress(bytes(8 * MB), 9)),
    (2, b"\xff\xff\xff\xff\x0f" + bytes(20)),
    (2, b"\x82SNAPPY\x00" + pack(">iii", 1, 1, 25) + b"\xff\xff\xff\xff\x0f" + bytes(20)),
    (3, bytes(cramjam.lz4.compress(bytes(8 * MB)))),
    (3, b"\x04\x22\x4d\x18\x68\x70" + (2**62).to_bytes(8, "little") + b"\x73" + bytes(8)),
    (4, bytes(cramjam.zstd.compress(bytes(64 * MB)))),
    (4, b"\x28\xb5\x2f\xfd\xe0" + (2**62).to_bytes(8, "little") + b"\x01\x00\x00"),
    (5, b"no such codec"),
    (7, b""),
)


class Hostile(Familiar):
    """Invents what is of the right kind and means harm."""

    def field(self, fact: dict[str, Any], depth: int) -> Any:
        value = super().field(fact, depth)
        if isinstance(value, list) and value and not depth and self.random.random() < 0.1:
            small = len(repr(value[0])) < 200
            return value[:1] * self.random.choice((50, 500, 3_000) if small else (3, 20))
        return value

    def single(self, fact: dict[str, Any], kind: str, depth: int) -> Any:
        random = self.random
        if kind == "string" and random.random() < 0.25:
            return random.choice(NAMES if random.random() < 0.6 else SETTINGS)
        if kind == "float64" and random.random() < 0.5:
            return random.choice((float("nan"), float("inf"), -0.0, 1e308, 5e-324))
        if kind == "records" and random.random() < 0.9:
            return hostile_batch(random)
        return super().single(fact, kind, depth)


class HostileWriter(Writer):
    """Writes most things as they are, and now and then something that cannot be."""

    def __init__(self, shape: Shape, version: int, random: Random, rate: float) -> None:
        super().__init__(shape, version)
        self._random = random
        self._rate = rate

    def _strikes(self) -> bool:
        return self._random.random() < self._rate

    def length(self, fact: dict[str, Any], length: int | None, size: int) -> bytes:
        if not self._strikes():
            return super().length(fact, length, size)
        random = self._random
        if self.flexible and fact.get("flexibleVersions") != "none":
            return random.choice(
                (
                    self.varint(0),
                    self.varint((length or 0) + 2),
                    self.varint(2**31),
                    self.varint(2**32 - 1),
                    b"\xff" * 9 + b"\x01",
                    b"\x80" * 4 + b"\x00",
                    b"\x80" * 5 + b"\x00",
                )
            )
        most = 2 ** (8 * size - 1) - 1
        chosen = random.choice((-1, -2, -most - 1, most, 0, (length or 0) + 1, most // 2))
        return min(chosen, most).to_bytes(size, "big", signed=True)

    def struct(self, facts: list[dict[str, Any]], value: dict[str, Any]) -> bytes:
        written = super().struct(facts, value)
        if not self.flexible or not self._strikes():
            return written
        tag = self.varint(self._random.choice((0, 1, 2, 900, 2**31)))
        body = bytes(self._random.randrange(5))
        announced = self.varint(len(body) + self._random.choice((0, 0, 1, 2**31)))
        one = tag + announced + body
        times = self._random.choice((1, 2, 2, 300))
        claimed = self._random.choice((times, times, times + 1, 2**32 - 1))
        # In place of the count of tags, which is the last byte where there are none.
        return written[:-1] + self.varint(claimed) + one * times

    def single(self, fact: dict[str, Any], kind: str, value: Any, **how: Any) -> bytes:
        if kind == "string" and isinstance(value, str):
            raw = value.encode("utf-8", "surrogateescape")
            return self.length(fact, len(raw), 2) + raw
        return super().single(fact, kind, value, **how)


def hostile_batch(random: Random) -> bytes:
    """Checksum and length are mostly right, so that the batch is looked at."""
    records = [
        Record(random.choice((None, b"", b"key")), random.randbytes(5), timestamp=1_700_000_000_000)
        for _ in range(random.randrange(1, 4))
    ]
    batch = bytearray(build(records, compression=random.choice((0, 0, 1, 2, 3, 4))))
    for _ in range(random.randrange(1, 4)):
        random.choice(HARMS)(batch, random)
    length = len(batch) - batches.LENGTH_OVERHEAD
    if random.random() < 0.9:
        batch[batches.LENGTH_AT : batches.LEADER_EPOCH_AT] = pack(">i", length)
    if random.random() < 0.95 and len(batch) >= batches.HEADER_SIZE:
        seal(batch)
    return bytes(batch) * random.choice((1, 1, 1, 1, 2))


def _number(at: int, size: int) -> Callable[[bytearray, Random], None]:
    def harm(batch: bytearray, random: Random) -> None:
        chosen = random.choice(BORDERS) % (1 << 8 * size)
        batch[at : at + size] = chosen.to_bytes(size, "big")

    return harm


def _attributes(batch: bytearray, random: Random) -> None:
    chosen = random.choice((0x08, 0x10, 0x20, 0x30, 0x40, 0x05, 0x07, 0xFFFF))
    batch[batches.ATTRIBUTES_AT : batches.LAST_OFFSET_DELTA_AT] = pack(">H", chosen)


def _bomb(batch: bytearray, random: Random) -> None:
    codec, payload = random.choice(BOMBS)
    batch[batches.HEADER_SIZE :] = payload
    batch[batches.ATTRIBUTES_AT + 1] = batch[batches.ATTRIBUTES_AT + 1] & 0xF8 | codec


def _garbage(batch: bytearray, random: Random) -> None:
    batch[batches.HEADER_SIZE :] = random.randbytes(random.randrange(60))


def _cut(batch: bytearray, random: Random) -> None:
    del batch[random.randrange(len(batch)) :]
    batch += bytes(max(0, 30 - len(batch)))


def _magic(batch: bytearray, random: Random) -> None:
    batch[batches.MAGIC_AT] = random.choice((0, 1, 3, 255))


HARMS: tuple[Callable[[bytearray, Random], None], ...] = (
    _number(batches.BASE_OFFSET_AT, 8),
    _number(batches.LENGTH_AT, 4),
    _number(batches.LEADER_EPOCH_AT, 4),
    _number(batches.LAST_OFFSET_DELTA_AT, 4),
    _number(batches.BASE_TIMESTAMP_AT, 8),
    _number(batches.MAX_TIMESTAMP_AT, 8),
    _number(batches.PRODUCER_ID_AT, 8),
    _number(batches.PRODUCER_EPOCH_AT, 2),
    _number(batches.BASE_SEQUENCE_AT, 4),
    _number(batches.RECORD_COUNT_AT, 4),
    _attributes,
    _attributes,
    _bomb,
    _bomb,
    _garbage,
    _cut,
    _magic,
)


def hostile(route: Route, seed: int) -> bytes:
    """Client id, header's tags and body of one request, as they follow the correlation id."""
    random = Random(seed)
    shape = SHAPES[route.api_key]
    # Every third seed of an inventor is a wide one: there are other ways here to be large.
    value = Hostile(shape, route.version, seed - seed % 3 + seed % 2).message()
    rate = random.choice((0.0, 0.0, 0.02, 0.1))
    name = random.choice((b"fuzz", b"fuzz", b"", b"a\nb", b"\xff\xfe"))
    head = len(name).to_bytes(2, "big") + name
    if route.flexible:
        head += random.choice((b"\0",) * 8 + (b"\x01\x00\x00", b"\x02\x00\x00", b"\xff\x01\x00"))
    return head + HostileWriter(shape, route.version, random, rate).message(value)


def hostile_input(routes: list[Route], seed: int, most: int, flags: int) -> bytes:
    """Up to three requests of one connection."""
    out = bytearray([flags])
    for number in range(1 + seed % 3):
        place = (seed // 5 + number * 37) % len(routes)
        body = hostile(routes[place], seed + number)
        if len(out) + len(body) + 4 > most or len(body) > 0xFFFF:
            break
        out += place.to_bytes(2, "big") + len(body).to_bytes(2, "big") + body
    return bytes(out)
