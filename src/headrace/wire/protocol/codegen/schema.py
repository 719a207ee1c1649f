"""Message definitions as objects: which fields a message has, in which versions, of which type.

Reads the JSON facts; knows nothing of the code that will be written. Versions that are marked
unstable are left out, and with them the fields that only they have.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

FOREVER = 32_767

# How a fixed-size type is written in a `struct` format, and its size in bytes.
FIXED_CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
FIXED_SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
NUMBERS = frozenset(FIXED_CODES) - {"uuid", "bool"}


@dataclass(slots=True, frozen=True)
class Versions:
    """A range such as `0+`, `3-7`, `5` or `none`, both ends included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str | None) -> Versions:
        if text is None or text == "none":
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), FOREVER)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


@dataclass(slots=True)
class Struct:
    """A class to be: its name and all its fields, in the order of the definition."""

    name: str
    fields: list[Field] = field(default_factory=list)

    def regular(self, version: int, flexible: bool) -> list[Field]:
        """The fields of this version, in order."""
        return [f for f in self.fields if f.is_regular(version, flexible)]

    def tagged(self, version: int, flexible: bool) -> list[Field]:
        """The fields of the tagged section in this version, by tag."""
        present = [f for f in self.fields if f.is_tagged(version, flexible)]
        return sorted(present, key=lambda f: f.tag)

    def smallest(self, version: int, flexible: bool) -> int:
        """The fewest bytes that one of these can take on the wire."""
        return flexible + sum(
            f.smallest(version, flexible) for f in self.regular(version, flexible)
        )


@dataclass(slots=True)
class Field:
    """One field: `type` is a key of FIXED_CODES, `string`, `bytes`, `records` or `struct`."""

    attribute: str
    type: str
    is_array: bool
    struct: Struct | None
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: str | None  # as in the definition; "null" means null
    never_compact: bool

    def is_tagged(self, version: int, flexible: bool) -> bool:
        return flexible and version in self.versions and version in self.tagged

    def is_regular(self, version: int, flexible: bool) -> bool:
        return version in self.versions and not self.is_tagged(version, flexible)

    def is_fixed(self) -> bool:
        return not self.is_array and self.type in FIXED_CODES

    def is_compact(self, flexible: bool) -> bool:
        return flexible and not self.never_compact

    def ever_nullable(self) -> bool:
        return self.nullable.first <= self.nullable.last or self.type == "records"

    def element(self) -> Field:
        """A field like one element of this array of strings or byte runs; never null."""
        never = Versions.parse("none")
        return replace(self, is_array=False, nullable=never, tagged=never, tag=-1, default=None)

    def is_single_struct(self) -> bool:
        return self.type == "struct" and not self.is_array

    def none_is_absent(self) -> bool:
        """A tagged struct that cannot be null: None means its default, which is not sent."""
        return self.is_single_struct() and self.tag >= 0 and not self.ever_nullable()

    def element_smallest(self, version: int, flexible: bool) -> int:
        if self.type == "struct":
            assert self.struct is not None
            return self.struct.smallest(version, flexible)
        if self.type in FIXED_SIZES:
            return FIXED_SIZES[self.type]
        if self.is_compact(flexible):
            return 1
        return 2 if self.type == "string" else 4

    def smallest(self, version: int, flexible: bool) -> int:
        if self.is_array:
            return 1 if self.is_compact(flexible) else 4
        if self.type == "struct" and version in self.nullable:
            return 1
        return self.element_smallest(version, flexible)


@dataclass(slots=True)
class Definition:
    """One file of definitions."""

    name: str
    kind: str  # request, response, header, data, metadata, coordinator-key, coordinator-value
    api_key: int
    versions: range
    flexible: Versions
    root: Struct

    def flexible_from(self) -> int:
        """The first flexible version; one above the last if there is none."""
        return next((v for v in self.versions if v in self.flexible), self.versions.stop)


def snake_case(name: str) -> str:
    """`TopicData` -> `topic_data`, `KRaftVersion` -> `kraft_version`."""
    name = name.replace("KRaft", "Kraft")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def read_definition(path: Path) -> Definition:
    """The definition in one JSON file."""
    facts = json.loads(path.read_text(encoding="utf-8"))
    valid = Versions.parse(facts["validVersions"])
    stable = valid.last - bool(facts.get("latestVersionUnstable"))
    versions = range(valid.first, stable + 1)
    common = {s["name"]: s["fields"] for s in facts.get("commonStructs", [])}
    root = Struct(facts["name"])
    root.fields = _fields(facts["fields"], versions, common, {})
    return Definition(
        name=facts["name"],
        kind=facts["type"],
        api_key=facts.get("apiKey", -1),
        versions=versions,
        flexible=Versions.parse(facts.get("flexibleVersions")),
        root=root,
    )


def _fields(
    facts: list[dict[str, Any]],
    versions: range,
    common: dict[str, list[dict[str, Any]]],
    known: dict[str, Struct],
) -> list[Field]:
    fields = [_field(fact, versions, common, known) for fact in facts]
    return [f for f in fields if any(version in f.versions for version in versions)]


def _field(
    fact: dict[str, Any],
    versions: range,
    common: dict[str, list[dict[str, Any]]],
    known: dict[str, Struct],
) -> Field:
    type_name = fact["type"].removeprefix("[]")
    struct = None
    if type_name[0].isupper():
        struct = known.get(type_name)
        if struct is None:
            struct = known[type_name] = Struct(type_name)
            struct.fields = _fields(
                fact.get("fields") or common[type_name], versions, common, known
            )
    default = fact.get("default")  # a JSON null counts as none given, as in Apache's generator
    return Field(
        attribute=snake_case(fact["name"]),
        type="struct" if struct else type_name,
        is_array=fact["type"].startswith("[]"),
        struct=struct,
        versions=Versions.parse(fact.get("versions", fact.get("taggedVersions"))),
        nullable=Versions.parse(fact.get("nullableVersions")),
        tagged=Versions.parse(fact.get("taggedVersions")),
        tag=fact.get("tag", -1),
        default=None if default is None else str(default).lower(),
        never_compact=fact.get("flexibleVersions") == "none",
    )
