"""Records of the internal topics against bytes that Apache Kafka's own classes made.

kio does not know these, so 308 random ones were encoded once by Apache Kafka 4.3.1 (see
ApacheSamples.java) and are kept in apache_samples.txt: name, version, contents, bytes.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.wire.protocol.uuids import from_text
from tests.unit.wire.protocol.wire_interpreter import (
    Shape,
    all_shapes,
    default_of,
    is_present,
    to_dictionary,
    to_message,
)

SHAPES = {shape.name: shape for shape in all_shapes()}
SAMPLES: dict[str, list[tuple[int, str, bytes]]] = {}
for line in Path(__file__).with_name("apache_samples.txt").read_text().splitlines():
    name, version, rest = line.split(" ", 2)
    contents, wire = rest.rsplit(" ", 1)
    SAMPLES.setdefault(name, []).append((int(version), contents, bytes.fromhex(wire)))


def from_json(shape: Shape, version: int, facts: list[dict[str, Any]], node: Any) -> dict[str, Any]:
    """Contents by the definition's names from the JSON that Apache Kafka's converters use."""
    out = {}
    for fact in facts:
        name = fact["name"]
        key = name[0].lower() + name[1:]
        if not is_present(fact, version):
            continue
        if key not in node:
            out[name] = default_of(shape, fact, version)
            continue
        value, kind = node[key], fact["type"]
        if value is not None:
            one = kind.removeprefix("[]")
            values = value if kind.startswith("[]") else [value]
            values = [single(shape, version, fact, one, v) for v in values]
            value = values if kind.startswith("[]") else values[0]
        out[name] = value
    return out


def single(shape: Shape, version: int, fact: dict[str, Any], kind: str, value: Any) -> Any:
    if kind == "uuid":
        return from_text(value)
    if kind == "bytes":
        return base64.b64decode(value)
    if kind[0].isupper():
        return from_json(shape, version, shape.fields_of(fact), value)
    return value


def test_every_record_of_an_internal_topic_has_samples_of_every_version() -> None:
    kinds = ("metadata", "coordinator-key", "coordinator-value")
    wanted = {(s.name, v) for s in SHAPES.values() if s.kind in kinds for v in s.versions}
    assert wanted <= {(name, sample[0]) for name, samples in SAMPLES.items() for sample in samples}


@pytest.mark.parametrize("name", SAMPLES)
def test_bytes_are_those_of_apache_kafka(name: str) -> None:
    shape = SHAPES[name]
    decode, encode = shape.codecs()
    for version, contents, wire in SAMPLES[name]:
        value = from_json(shape, version, shape.facts["fields"], json.loads(contents))
        pieces: list[Any] = []
        encode[version](to_message(shape, version, value), pieces.append)
        assert b"".join(pieces) == wire
        message, end = decode[version](memoryview(wire), 0)
        assert end == len(wire)
        assert to_dictionary(shape, version, message) == value
