"""The definition of one setting: its name, type, default, range, and its support in Headrace.

A value has two forms: the text that people write and the metadata log keeps, and the typed value
the code uses (`parse` and `format`; text is read as Apache Kafka reads it, `BadValue` says in one
sentence what is wrong). The tables beside this file state Kafka's facts; where our default differs
from Kafka's is in `headrace.py`. Which value holds for whom is in `metadata/configs.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, NamedTuple

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class BadValue(ValueError):
    """One sentence: which setting, and what its value must be."""


class ConfigType(IntEnum):
    """The numbers are those of DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Standing(Enum):
    HONOURED = "honoured"
    NO_EFFECT = "accepted, means nothing here"
    UNSUPPORTED = "a node with this setting refuses to start"


class Change(Enum):
    """How a broker's setting may be changed while the broker runs."""

    RESTART = "only in the file, at the next start"
    PER_BROKER = "for one broker"
    CLUSTER_WIDE = "for one broker or for all"


Check = Callable[[Any], str | None]  # what is wrong with a value, as the end of a sentence

_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
# Python refuses numbers of more than 4,300 digits, and no real setting is that long.
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,1000}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_AROUND_COMMA = re.compile(r"\s*,\s*")


class Synonym(NamedTuple):
    """A broker's setting that replaces a topic's unset one; the topic's value is `factor` times
    it."""

    name: str
    factor: int = 1


@dataclass(slots=True)
class Definition:
    """A definition does not change once it is in a table; it is not frozen, as 400 of them are made
    at each start."""

    name: str
    type: ConfigType
    default: Any  # typed; None: no value unless given
    check: Check | None
    about: str
    change: Change = Change.RESTART
    standing: Standing = Standing.HONOURED
    why: str = ""  # it has no effect, or what is not supported
    internal: bool = False  # for tests of Kafka itself; not shown unless set
    synonyms: tuple[Synonym, ...] = ()  # of a topic or a group; the first that is set counts

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    @property
    def documentation(self) -> str:
        if self.standing is Standing.NO_EFFECT:
            return f"{self.about} No effect in Headrace: {self.why}."
        if self.standing is Standing.UNSUPPORTED:
            return f"{self.about} Headrace does not support {self.why} yet."
        return self.about

    def parse(self, text: str) -> Any:
        value = _PARSERS[self.type](self.name, text)
        fault = self.check(value) if self.check is not None else None
        if fault is not None:
            raise BadValue(f"{self.name} {fault}, not '{text.strip()}'.")
        return value

    def format(self, value: Any) -> str | None:
        if value is None:
            return None
        if self.type is ConfigType.BOOLEAN:
            return "true" if value else "false"
        if self.type is ConfigType.DOUBLE:
            return java_double(value)
        if self.type is ConfigType.LIST:
            return ",".join(value)
        return str(value)


def _boolean(name: str, text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise BadValue(f"{name} must be true or false, not '{text.strip()}'.")
    return lowered == "true"


def _whole(bits: int) -> Callable[[str, str], int]:
    limit = 1 << (bits - 1)

    def parse(name: str, text: str) -> int:
        stripped = text.strip()
        if _WHOLE_NUMBER.fullmatch(stripped) is None or not -limit <= int(stripped) < limit:
            raise BadValue(f"{name} must be a whole number of {bits} bits, not '{stripped}'.")
        return int(stripped)

    return parse


def _double(name: str, text: str) -> float:
    # Java would accept NaN too; a ratio or rate that compares with nothing is useless.
    if _NUMBER.fullmatch(text.strip()) is None:
        raise BadValue(f"{name} must be a number, not '{text.strip()}'.")
    return float(text)


def _list(name: str, text: str) -> tuple[str, ...]:
    stripped = text.strip()
    if not stripped:
        return ()
    items = _AROUND_COMMA.split(stripped)
    if not all(items):
        raise BadValue(f"{name} has an empty entry in its list '{stripped}'.")
    return tuple(dict.fromkeys(items))


def _text(name: str, text: str) -> str:
    return text.strip()


_PARSERS: dict[ConfigType, Callable[[str, str], Any]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: _text,
    ConfigType.CLASS: _text,
    ConfigType.PASSWORD: _text,
    ConfigType.DOUBLE: _double,
    ConfigType.LIST: _list,
    **{kind: _whole(bits) for kind, bits in _BITS.items()},
}


def java_double(value: float) -> str:
    """Returns the text that Java prints: 0.5, but 1.7976931348623157E308 and 1.0E7."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    for places in range(1, 18):
        text = f"{value:.{places}e}"
        if float(text) == value:
            break
    digits, _, exponent = text.partition("e")
    return f"{digits}E{int(exponent)}"
