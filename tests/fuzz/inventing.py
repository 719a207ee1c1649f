"""Requests that nobody has sent: well formed by their definitions, with contents that fit here.

Names are mostly those of topics, groups and users that the target knows, numbers are mostly small
or at a border, batches mostly whole. So a mutation reaches the handlers, where bytes alone would be
refused by a decoder.
"""

from __future__ import annotations

from typing import Any

from headrace.node.serving.route import Route
from headrace.wire.protocol.record_batch import Record, build
from tests.unit.wire.protocol.wire_interpreter import INTEGERS, Inventor, Shape, Writer, all_shapes

NAMES = ("fuzz", "fuzz", "other", "new", "group", "ann", "User:ann", "*", "kafka-cluster", "1", "")
WORDS = (
    "range",
    "consumer",
    "uniform",
    "cleanup.policy",
    "compact",
    "retention.ms",
    "-1",
    "producer_byte_rate",
    "user",
    "client-id",
    "ip",
    "Stable",
    "Ongoing",
    "PLAIN",
    "127.0.0.1",
)
SMALL = (-2, -1, 0, 0, 0, 1, 1, 2, 3, 5, 100)
SHAPES: dict[int, Shape] = {
    shape.facts["apiKey"]: shape for shape in all_shapes() if shape.kind == "request"
}


class Familiar(Inventor):
    """Invents what means something to the target."""

    def single(self, fact: dict[str, Any], kind: str, depth: int) -> Any:
        random = self.random
        if kind == "string" and random.random() < 0.8:
            return random.choice(NAMES if random.random() < 0.7 else WORDS)
        if kind in INTEGERS and random.random() < 0.8:
            size, signed = INTEGERS[kind]
            return max(random.choice(SMALL), 0 if not signed else -2) % (1 << (8 * size - 1))
        if kind == "records" and random.random() < 0.8:
            return batch(random)
        return super().single(fact, kind, depth)


def batch(random: Any) -> bytes:
    records = [
        Record(key=random.choice((None, b"key")), value=random.randbytes(5), timestamp=1)
        for _ in range(random.randrange(1, 4))
    ]
    owned = random.random() < 0.5
    return build(
        records,
        compression=random.randrange(5),
        producer_id=random.randrange(3) if owned else -1,
        producer_epoch=0 if owned else -1,
        base_sequence=random.randrange(3) if owned else -1,
        is_transactional=owned and random.random() < 0.5,
    )


def invented(route: Route, seed: int) -> bytes:
    """Client id, header's tags and body of one request, as they follow the correlation id."""
    shape = SHAPES[route.api_key]
    # Every third seed is a wide one, with arrays of 130 elements: too large for inputs.
    value = Familiar(shape, route.version, seed - seed % 3 + seed % 2).message()
    head = b"\x00\x04fuzz" + (b"\x00" if route.flexible else b"")
    return head + Writer(shape, route.version).message(value)


def invented_input(routes: list[Route], seed: int, most: int, flags: int = 0) -> bytes:
    """Up to three requests of one connection, one of them possibly as damaged as others are."""
    out = bytearray([flags])
    for number in range(1 + seed % 3):
        place = (seed // 7 + number * 31) % len(routes)
        body = invented(routes[place], seed + number)
        if len(out) + len(body) + 4 > most or len(body) > 0xFFFF:
            break
        out += place.to_bytes(2, "big") + len(body).to_bytes(2, "big") + body
    return bytes(out)
