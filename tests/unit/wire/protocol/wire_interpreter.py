"""A slow, plain reader and writer of Kafka messages, to check the generated ones against.

It walks the JSON definitions at run time and shares no code with the generator: a message is a
dictionary by the definition's own field names, numbers are bytes by `int.to_bytes`, and nothing is
joined or assumed. Also makes random messages, and translates between dictionaries and the classes.
"""

from __future__ import annotations

import importlib
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import headrace.wire.protocol

FOLDER = Path(headrace.wire.protocol.__file__).parent / "definitions"

INTEGERS = {
    "int8": (1, True),
    "int16": (2, True),
    "uint16": (2, False),
    "int32": (4, True),
    "uint32": (4, False),
    "int64": (8, True),
}
ERROR_CODES = [-1, 0, 3, 35, 87, 133]
UNKNOWN_TAG = 900
TEXT = "".join(Random(5).choices("abcdefghé漢", k=400))


@cache
def within(version: int, text: str | None) -> bool:
    if not text or text == "none":
        return False
    if text.endswith("+"):
        return version >= int(text[:-1])
    first, _, last = text.partition("-")
    return int(first) <= version <= int(last or first)


@cache
def snake(name: str) -> str:
    name = name.replace("KRaft", "Kraft")
    out = ""
    for before, char in zip(" " + name, name, strict=False):
        if char.isupper() and (before.islower() or before.isdigit()):
            out += "_"
        out += char.lower()
    return out


@dataclass(eq=False)
class Shape:
    """One definition with what is needed to interpret it."""

    facts: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.facts["name"])

    @property
    def kind(self) -> str:
        return str(self.facts["type"])

    @property
    def versions(self) -> range:
        first, _, last = self.facts["validVersions"].partition("-")
        unstable = bool(self.facts.get("latestVersionUnstable"))
        return range(int(first), int(last or first) + 1 - unstable)

    @cache  # noqa: B019 - shapes live as long as the tests
    def flexible(self, version: int) -> bool:
        return within(version, self.facts["flexibleVersions"])

    def fields_of(self, fact: dict[str, Any]) -> list[dict[str, Any]]:
        return self.structs[fact["type"].removeprefix("[]")]

    @cached_property
    def structs(self) -> dict[str, list[dict[str, Any]]]:
        """Fields of all structs, those that are inline and those that are shared."""
        found = {s["name"]: s["fields"] for s in self.facts.get("commonStructs", [])}
        for fields in [self.facts["fields"], *found.values()]:
            for fact in _all_fields(fields):
                if "fields" in fact:
                    found = {**found, fact["type"].removeprefix("[]"): fact["fields"]}
        return found

    def module(self) -> ModuleType:
        name = self.name
        if self.kind in ("request", "response"):
            name = re.sub("(Request|Response)$", "", name)
        return importlib.import_module(f"headrace.wire.protocol.messages.{snake(name)}")

    def codecs(self) -> tuple[dict[int, Any], dict[int, Any]]:
        """Our decoders and encoders, by version."""
        module = self.module()
        if self.kind in ("request", "response"):
            suffix = self.kind.upper()
            return getattr(module, f"DECODE_{suffix}"), getattr(module, f"ENCODE_{suffix}")
        return module.DECODE, module.ENCODE


def _all_fields(facts: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for fact in facts:
        yield fact
        yield from _all_fields(fact.get("fields", []))


def all_shapes() -> list[Shape]:
    return [
        Shape(json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(FOLDER.glob("*/*.json"))
    ]


def is_present(fact: dict[str, Any], version: int) -> bool:
    return within(version, fact.get("versions", fact.get("taggedVersions")))


def is_tagged(fact: dict[str, Any], version: int, flexible: bool) -> bool:
    return flexible and is_present(fact, version) and within(version, fact.get("taggedVersions"))


def default_of(shape: Shape, fact: dict[str, Any], version: int) -> Any:
    default, kind = fact.get("default"), fact["type"]
    if default == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind[0].isupper():
        return {
            f["name"]: default_of(shape, f, version)
            for f in shape.fields_of(fact)
            if is_present(f, version)
        }
    if kind == "bool":
        return str(default).lower() == "true"
    if kind == "float64":
        return 0.0
    if kind in INTEGERS:
        return int(str(default), 0) if default is not None else 0
    return {"string": "", "bytes": b"", "records": None, "uuid": bytes(16)}[kind]


class Writer:
    """Writes dictionaries; with `unknown_tags`, each tagged section has a tag of the future."""

    def __init__(self, shape: Shape, version: int, *, unknown_tags: bool = False) -> None:
        self.shape = shape
        self.version = version
        self.flexible = shape.flexible(version)
        self.unknown_tags = unknown_tags

    def message(self, value: dict[str, Any]) -> bytes:
        return self.struct(self.shape.facts["fields"], value)

    def struct(self, facts: list[dict[str, Any]], value: dict[str, Any]) -> bytes:
        parts: list[bytes] = []
        tags: dict[int, bytes] = {}
        for fact in facts:
            if not is_present(fact, self.version):
                continue
            one = value[fact["name"]]
            if is_tagged(fact, self.version, self.flexible):
                if one != default_of(self.shape, fact, self.version):
                    tags[fact["tag"]] = self.field(fact, one, in_tag=True)
            else:
                parts.append(self.field(fact, one))
        if self.unknown_tags:
            tags[UNKNOWN_TAG] = b"from the future"
        if self.flexible:
            parts.append(self.varint(len(tags)))
            for tag in sorted(tags):
                parts.append(self.varint(tag) + self.varint(len(tags[tag])) + tags[tag])
        return b"".join(parts)

    def varint(self, number: int) -> bytes:
        out = b""
        while True:
            low, number = number % 128, number // 128
            if number == 0:
                return out + low.to_bytes(1, "big")
            out += (low + 128).to_bytes(1, "big")

    def length(self, fact: dict[str, Any], length: int | None, size: int) -> bytes:
        if self.flexible and fact.get("flexibleVersions") != "none":
            return self.varint(0 if length is None else length + 1)
        return (-1 if length is None else length).to_bytes(size, "big", signed=True)

    def field(self, fact: dict[str, Any], value: Any, *, in_tag: bool = False) -> bytes:
        kind = fact["type"]
        if not kind.startswith("[]"):
            return self.single(fact, kind, value, in_tag=in_tag)
        if value is None:
            return self.length(fact, None, 4)
        parts = [self.single(fact, kind[2:], one, element=True) for one in value]
        return self.length(fact, len(value), 4) + b"".join(parts)

    def single(
        self,
        fact: dict[str, Any],
        kind: str,
        value: Any,
        *,
        element: bool = False,
        in_tag: bool = False,
    ) -> bytes:
        if kind in INTEGERS:
            size, signed = INTEGERS[kind]
            return int(value).to_bytes(size, "big", signed=signed)
        if kind == "bool":
            return b"\1" if value else b"\0"
        if kind == "uuid":
            return bytes(value)
        if kind == "float64":
            return struct.pack(">d", value)
        if kind in ("string", "bytes", "records"):
            size = 2 if kind == "string" else 4
            if value is None:
                return self.length(fact, None, size)
            raw = value.encode() if kind == "string" else bytes(value)
            return self.length(fact, len(raw), size) + raw
        body = b"" if value is None else self.struct(self.shape.fields_of(fact), value)
        if element or not within(self.version, fact.get("nullableVersions")):
            return body
        if in_tag:
            return (b"\0" if value is None else b"\1") + body
        return (b"\xff" if value is None else b"\1") + body


class Inventor:
    """Random messages.

    Seeds take turns: a plain one (short, what may be left out is, as in most messages of real life;
    the generated encoders have a quick way for those), a rich one, and a wide one with arrays of
    more than 127 elements. `tame` keeps to values that other implementations can represent: error
    codes that exist, moments between 1970 and 2100.
    """

    def __init__(self, shape: Shape, version: int, seed: int, *, tame: bool = False) -> None:
        self.plain = seed % 3 == 0
        self.wide_arrays = 2 if seed % 3 == 2 else 0
        self.shape = shape
        self.version = version
        self.flexible = shape.flexible(version)
        self.random = Random(seed)
        self.tame = tame

    def message(self) -> dict[str, Any]:
        return self.struct(self.shape.facts["fields"], 0)

    def struct(self, facts: list[dict[str, Any]], depth: int) -> dict[str, Any]:
        return {f["name"]: self.field(f, depth) for f in facts if is_present(f, self.version)}

    def field(self, fact: dict[str, Any], depth: int) -> Any:
        kind = fact["type"]
        tagged = is_tagged(fact, self.version, self.flexible)
        if tagged and self.random.random() < (0.95 if self.plain else 0.5):
            return default_of(self.shape, fact, self.version)
        nullable = within(self.version, fact.get("nullableVersions"))
        if nullable and self.random.random() < (0.8 if self.plain else 0.25):
            return None
        if not kind.startswith("[]"):
            return self.single(fact, kind, depth)
        many = self.random.choice((0, 1, 1, 2, 3))
        if self.plain:
            many = self.random.choice((0, 1, 2)) if depth else 2
        elif self.wide_arrays and self.random.random() < 0.4:
            self.wide_arrays -= 1
            self.plain = True
            many = 130
        return [self.single(fact, kind[2:], depth) for _ in range(many)]

    def single(self, fact: dict[str, Any], kind: str, depth: int) -> Any:
        random = self.random
        if kind in INTEGERS:
            return self.integer(fact["name"], kind)
        if kind == "bool":
            return random.random() < 0.5
        if kind == "uuid":
            return random.choice((bytes(16), random.randbytes(16)))
        if kind == "float64":
            return random.choice((0.0, -1.5, random.random()))
        if kind == "string":
            lengths = (0, 1, 5, 5, 9, 20, 125, 126, 127, 128, 255, 256, 300)
            length = random.choice(lengths[:6] if self.plain else lengths)
            start = random.randrange(100)
            return TEXT[start : start + length]
        if kind in ("bytes", "records"):
            sizes = (0, 1, 30, 126, 127, 128, 16_383, 16_384)
            return random.randbytes(random.choice(sizes[:4] if self.plain else sizes))
        return self.struct(self.shape.fields_of(fact), depth + 1)

    def integer(self, name: str, kind: str) -> int:
        size, signed = INTEGERS[kind]
        if self.tame and "errorcode" in name.lower():
            return self.random.choice(ERROR_CODES)
        low, high = (
            (-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1) if signed else (0, (1 << 8 * size) - 1)
        )
        if self.tame and kind == "int64" and re.search("Ms$|Time", name, re.IGNORECASE):
            low, high = 0, 4_102_444_800_000
        return self.random.choice((low, high, self.random.randint(low, high), 0, 1))


def to_message(shape: Shape, version: int, value: dict[str, Any]) -> Any:
    """Our object with the contents of the dictionary."""
    return _to_object(shape, version, shape.module(), shape.name, shape.facts["fields"], value)


def class_of(module: ModuleType, shape: Shape, name: str) -> Any:
    prefix = "Request" if shape.kind == "request" else "Response"
    return getattr(module, name, None) or getattr(module, prefix + name)


def _to_object(
    shape: Shape,
    version: int,
    module: ModuleType,
    name: str,
    facts: list[Any],
    value: dict[str, Any],
) -> Any:
    message = class_of(module, shape, name)()
    for fact in facts:
        if not is_present(fact, version):
            continue
        one = value[fact["name"]]
        kind = fact["type"]
        if kind.removeprefix("[]")[0].isupper() and one is not None:
            args = (shape, version, module, kind.removeprefix("[]"), shape.fields_of(fact))
            one = (
                [_to_object(*args, element) for element in one]
                if kind.startswith("[]")
                else _to_object(*args, one)
            )
        setattr(message, snake(fact["name"]), one)
    return message


def to_dictionary(shape: Shape, version: int, message: Any) -> dict[str, Any]:
    """The contents of our object."""
    return _to_dictionary(shape, version, shape.facts["fields"], message)


def _to_dictionary(
    shape: Shape, version: int, facts: list[dict[str, Any]], message: Any
) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for fact in facts:
        if not is_present(fact, version):
            continue
        one = getattr(message, snake(fact["name"]))
        kind = fact["type"]
        if kind.removeprefix("[]")[0].isupper():
            inner = shape.fields_of(fact)
            if kind.startswith("[]"):
                one = (
                    None if one is None else [_to_dictionary(shape, version, inner, e) for e in one]
                )
            elif one is not None:
                one = _to_dictionary(shape, version, inner, one)
            elif "tag" in fact and "nullableVersions" not in fact:
                one = default_of(shape, fact, version)  # None stands for a tagged struct not set
        elif isinstance(one, memoryview):
            one = one.tobytes()
        out[fact["name"]] = one
    return out
