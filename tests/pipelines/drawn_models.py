"""Models and values for them, drawn from a seed, and the rows by a reading in plain Python.

`read` is written from the guide ("Bad records", "Models"), not from our code: it takes Python's own
JSON parser and says of each value what row it is, or that it is bad.
"""

from __future__ import annotations

import json
import random
import re
import types
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model

WIDE = Context(prec=400)
INT_MOST, INT_LEAST = 2**63 - 1, -(2**63)
TEXTS = ["", "a", "ab", "abc", "x y", "ä", "日本", "😀", "e\u0301", "\u0000", "\n", "'", '"', "\\"]
TEXTS += ["\u2028", "null", "NULL", "0", "a" * 300, "\ufeff", "A", "İ", "ß"]
WHOLE = [0, 1, -1, 7, 2**31, -(2**31) - 1, 2**53 + 1, INT_MOST, INT_LEAST, INT_MOST + 1]
WHOLE += [INT_LEAST - 1, 10**20]
MOMENT = re.compile(
    r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2})?)?\Z"
)
DAY = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
UUIDS = ["6d1cc2c6-77aa-4b1c-9d00-0123456789ab", "7d1cc2c6-77aa-4b1c-9d00-0123456789ab"]


class Bad(Exception):
    """The value is not a row."""


class Raw(str):
    """JSON text as it is."""


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


Reading = Callable[[Any], Any]
Values = Callable[[random.Random], Any]


@dataclass(slots=True)
class Kind:
    """A type of a model, some values that are sent for it, and how one of them is read."""

    type: Any
    good: Values
    odd: list[Any]
    read: Reading
    limits: Callable[[random.Random], dict[str, Any]] | None = None
    nullable: bool = False


@dataclass(slots=True)
class DrawnField:
    name: str
    kind: Kind
    names: tuple[str, ...]  # in JSON
    required: bool = True
    default: Any = None  # as it is in a row
    holds: list[Callable[[Any], bool]] = field(default_factory=list)


@dataclass(slots=True)
class DrawnModel:
    model: type[BaseModel]
    fields: list[DrawnField]
    forbids: bool


# ---- readings, by the guide


def _int(value: Any) -> int:
    if type(value) is not int or not INT_LEAST <= value <= INT_MOST:
        raise Bad(value)
    return value


def _float(value: Any) -> float:
    if type(value) is not int and not isinstance(value, Decimal):
        raise Bad(value)
    made = float(value)
    if abs(made) == float("inf"):
        raise Bad(value)
    return made


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Bad(value)
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if type(value) is int:
        return str(value)
    if not isinstance(value, str):
        raise Bad(value)
    if any(0xD800 <= ord(letter) < 0xE000 for letter in value):
        raise Bad(value)
    return value


def _decimal(value: Any) -> Decimal:
    if isinstance(value, str) and not re.fullmatch(r"-?\d+(\.\d+)?", value, re.ASCII):
        raise Bad(value)
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise Bad(value)
    made = Decimal(value)
    if made.copy_abs() >= 10**20 or made != made.quantize(Decimal(1).scaleb(-18), context=WIDE):
        raise Bad(value)
    return made


def _moment(value: Any) -> datetime:
    if type(value) is int:
        if not 631_152_000_000 <= value <= 4_102_444_800_000:
            raise Bad(value)
        return datetime(1970, 1, 1) + timedelta(milliseconds=value)
    if not isinstance(value, str) or not MOMENT.match(value):
        raise Bad(value)
    try:
        found = datetime.fromisoformat(value)
        if found.tzinfo is not None:
            found = found.astimezone(UTC).replace(tzinfo=None)
        return found
    except (ValueError, OverflowError):
        raise Bad(value) from None


def _day(value: Any) -> date:
    if not isinstance(value, str) or not DAY.match(value):
        raise Bad(value)
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise Bad(value) from None


def _uuid(value: Any) -> str:
    made = _text(value)
    try:
        uuid.UUID(made)
    except ValueError:
        raise Bad(value) from None
    return made


def _one_of(*known: str) -> Reading:
    def read(value: Any) -> str:
        made = _text(value)
        if made not in known:
            raise Bad(value)
        return made

    return read


# ---- kinds


def _range(limits: list[Any]) -> Callable[[random.Random], dict[str, Any]]:
    return lambda chance: {chance.choice(["ge", "gt", "le", "lt"]): chance.choice(limits)}


def _lengths(chance: random.Random) -> dict[str, Any]:
    if chance.random() < 0.5:
        return {"min_length": chance.randint(0, 2)}
    return {"max_length": chance.randint(1, 3)}


def _texts(chance: random.Random) -> dict[str, Any]:
    if chance.random() < 0.3:
        return {"pattern": chance.choice([r"^[a-z]+$", r"^\w+$", r"^.{1,2}$", r"^\S*$", r"[ab]"])}
    return _lengths(chance)


def _a_moment(chance: random.Random) -> Any:
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randint(-(10**9), 10**9))
    sort = chance.randint(0, 3)
    if sort == 0:
        return int(at.timestamp()) * 1000 + chance.randint(0, 999)
    if sort == 1:
        return at.isoformat()
    if sort == 2:
        return f"{at:%Y-%m-%dT%H:%M:%S}.{chance.randint(0, 999_999):06}+05:45"
    return f"{at:%Y-%m-%d %H:%M:%S}"


# Python cannot show the first day of the year 1 in local time.
MOMENTS = ["0001-01-02T00:00:00Z", "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00+14:00"]
MOMENTS += ["9999-12-31T23:59:59-14:00", "2026-02-29T00:00:00Z", "2026-13-01", "10:15:00", "", "x"]
MOMENTS += ["2026-01-01T25:00:00Z", "1582-10-10T00:00:00Z", "2026-03-29T02:30:00", "1900-01-01"]
DAYS = ["0001-01-01", "9999-12-31", "2026-02-29", "2024-02-29", "2026-01-01T00:00:00", "", "x"]
NUMBERS = [Raw("1e3"), Raw("1.25e1"), Raw("1e-18"), Raw("1e400"), Raw("NaN"), Raw("Infinity")]
NUMBERS += [Raw("0.1"), Raw("-0.0"), Raw("1.7976931348623157e308"), Raw("5e-324"), Raw("1.50")]
LONG_NUMBERS: list[Any] = [
    Raw("99999999999999999999.999999999999999999"),
    Raw("0.0000000000000000001"),
]
LONG_NUMBERS += [Raw("100000000000000000000"), "12.5", "1,5", "", "0.1234567890123456789"]


def _plain_kinds() -> list[Kind]:
    whole = Kind(int, lambda c: c.randint(-50, 50), [*WHOLE, *NUMBERS, "1", True], _int)
    whole.limits = _range([0, 1, -7, 2**40])
    number = Kind(
        float, lambda c: round(c.uniform(-9, 9), 3), [*NUMBERS, *WHOLE, "NaN", "1.5", True], _float
    )
    number.limits = _range([0, 0.5, -2.25])
    text = Kind(str, lambda c: c.choice(TEXTS), [5, 2**70, True, Raw('"\\ud800"')], _text)
    text.limits = _texts
    exact = Kind(
        Decimal,
        lambda c: Raw(f"{c.randint(-(10**6), 10**6)}.{c.randint(0, 999)}"),
        [*LONG_NUMBERS, *NUMBERS, *WHOLE, True],
        _decimal,
    )
    exact.limits = _range([0, Decimal("1.5")])
    return [
        whole,
        number,
        text,
        exact,
        Kind(bool, lambda c: c.random() < 0.5, [0, 1, "true", "x"], _bool),
        Kind(datetime, _a_moment, [*MOMENTS, 0, 10**15, 631_152_000_000, True], _moment),
        Kind(date, lambda c: f"{2000 + c.randint(0, 60)}-02-28", [*DAYS, 5], _day),
        Kind(
            uuid.UUID,
            lambda c: c.choice(UUIDS),
            [UUIDS[0].upper().replace("-", ""), "x", "", 5],
            _uuid,
        ),
        Kind(Literal["a", "B"], lambda c: c.choice("aB"), ["b", "", "a "], _one_of("a", "B")),
        Kind(Size, lambda c: c.choice("sl"), ["S", "SMALL", ""], _one_of("s", "l")),
    ]


def _kind(chance: random.Random, depth: int = 0) -> Kind:
    sort = chance.random()
    if sort > 0.25 or depth > 1:
        made = chance.choice(_plain_kinds())
    elif sort > 0.16:
        made = _list(_kind(chance, depth + 1))
    elif sort > 0.1:
        made = _map(_kind(chance, depth + 1))
    else:
        made = _nested(chance, depth + 1)
    return _optional(made) if chance.random() < 0.3 else made


def _optional(kind: Kind) -> Kind:
    def read(value: Any) -> Any:
        return None if value is None else kind.read(value)

    return Kind(kind.type | None, kind.good, [*kind.odd, None], read, kind.limits, nullable=True)


def _list(inner: Kind) -> Kind:
    def read(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise Bad(value)
        return [inner.read(one) for one in value]

    def good(chance: random.Random) -> Any:
        return [inner.good(chance) for _ in range(chance.randint(0, 3))]

    odd = [[one] for one in inner.odd] + [[None], {}, "x", 5]
    return Kind(types.GenericAlias(list, (inner.type,)), good, odd, read, _lengths)


def _map(inner: Kind) -> Kind:
    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Bad(value)
        return {key: inner.read(one) for key, one in value.items()}

    def good(chance: random.Random) -> Any:
        return {name: inner.good(chance) for name in chance.sample(["a", "B", "ä", "", "x y"], 2)}

    odd = [{"k": one} for one in inner.odd] + [{"k": None}, {}, [], "x", 5]
    return Kind(types.GenericAlias(dict, (str, inner.type)), good, odd, read, _lengths)


def _nested(chance: random.Random, depth: int) -> Kind:
    fields = [_field(f"n{n}", chance, nested=True, depth=depth) for n in range(2)]
    model = create_model(f"Nested{chance.randint(0, 10**9)}", **_declared(fields))

    def good(chance: random.Random) -> Any:
        return {one.names[0]: one.kind.good(chance) for one in fields}

    whole = good(random.Random(0))
    odd = [{**whole, one.names[0]: value} for one in fields for value in one.kind.odd[:8]]
    odd += [{k: v for k, v in whole.items() if k != one.names[0]} for one in fields]
    return Kind(model, good, [*odd, [], "x", 5, {}], lambda value: _read_object(fields, value))


# ---- models


def _field(name: str, chance: random.Random, *, nested: bool = False, depth: int = 0) -> DrawnField:
    kind = _kind(chance, depth)
    made = DrawnField(name, kind, (name,))
    said: dict[str, Any] = {}
    if kind.limits is not None and chance.random() < 0.4:
        said = kind.limits(chance)
        made.holds = [_holds(rule, limit) for rule, limit in said.items()]
    if not nested and chance.random() < 0.2:
        made.names = (f"{name}-as",)
        said["validation_alias"] = made.names[0]
    if not nested and chance.random() < 0.3 and isinstance(kind.type, type):
        default = kind.good(chance)
        if not isinstance(default, list | dict) and not kind.nullable:
            made.required, made.default = False, kind.read(_sent(default))
            said["default"] = _python(kind.type, made.default)
    if kind.nullable and (nested or chance.random() < 0.5):
        made.required, said["default"] = False, None
    made.kind = Kind(kind.type, kind.good, kind.odd, kind.read, None, kind.nullable)
    made.kind.type = (kind.type, Field(**said))
    return made


def _sent(value: Any) -> Any:
    """As the parser of `read` gives it."""
    return json.loads(_json(value), parse_float=Decimal)


def _python(kind: type, value: Any) -> Any:
    """As a default in a model; its times are moments."""
    if kind is datetime:
        return value.replace(tzinfo=UTC)
    if kind is uuid.UUID:
        return uuid.UUID(value)
    return kind(value) if issubclass(kind, Enum) else value


def _holds(rule: str, limit: Any) -> Callable[[Any], bool]:
    return {
        "ge": lambda value: value >= limit,
        "gt": lambda value: value > limit,
        "le": lambda value: value <= limit,
        "lt": lambda value: value < limit,
        "min_length": lambda value: len(value) >= limit,
        "max_length": lambda value: len(value) <= limit,
        "pattern": lambda value: _matches(limit, value),
    }[rule]


def _matches(pattern: str, value: str) -> bool:
    """By pydantic's own engine: its letters are not quite those of Python's `re`."""
    try:
        TypeAdapter(Annotated[str, Field(pattern=pattern)]).validate_python(value)
    except ValidationError:
        return False
    return True


def _declared(fields: list[DrawnField]) -> dict[str, Any]:
    return {one.name: one.kind.type for one in fields}


def drawn(seed: int) -> DrawnModel:
    chance = random.Random(seed)
    fields = [_field(f"f{n}", chance) for n in range(chance.randint(1, 5))]
    forbids = chance.random() < 0.3
    config = ConfigDict(extra="forbid") if forbids else None
    model = create_model("Drawn", __config__=config, n=(int, ...), **_declared(fields))
    first = DrawnField("n", _plain_kinds()[0], ("n",))
    return DrawnModel(model, [first, *fields], forbids)


# ---- values


def _json(value: Any) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {_json(v)}" for k, v in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def values(model: DrawnModel, seed: int, count: int) -> list[bytes]:
    """Each holds its number, so that its row can be found."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        value: dict[str, Any] = {"n": number}
        for one in model.fields[1:]:
            value[one.names[0]] = one.kind.good(chance)
        for one in chance.choices(model.fields[1:], k=chance.choice([0, 1, 1, 2])):
            sort = chance.random()
            if sort < 0.7:
                value[one.names[0]] = chance.choice(one.kind.odd)
            elif sort < 0.85:
                value.pop(one.names[0], None)
            else:
                value[one.names[0]] = None
        if chance.random() < 0.05:
            value["more"] = chance.choice([1, None, {"f0": 2}])
        text = _json(value)
        if chance.random() < 0.04:
            text = chance.choice([text[:-1], f"[{text}]", text + "{}", text + " ", " " + text])
        found.append(text.encode("utf-8", "surrogatepass"))
    return found


def read(model: DrawnModel, value: bytes) -> dict[str, Any] | None:
    """The row of a value; None if it is bad."""
    try:
        found = json.loads(value.decode(), parse_float=Decimal, parse_constant=_no_constant)
        row = _read_object(model.fields, found)
        if model.forbids and set(found) - {name for one in model.fields for name in one.names}:
            return None
        _no_halves(found)
        if any(Decimal in _types(one.kind.type) for one in model.fields):
            _no_very_long(found)
    except (Bad, ValueError):
        return None
    return row


def _types(kind: Any) -> set[Any]:
    """All types that a field is made of."""
    parts = getattr(kind, "__args__", ()) or (kind[:1] if isinstance(kind, tuple) else ())
    if hasattr(kind, "model_fields"):
        parts = tuple(one.annotation for one in kind.model_fields.values())
    return {kind if not isinstance(kind, tuple) else None}.union(*map(_types, parts))


def _no_constant(name: str) -> Any:
    raise Bad(name)


def _no_halves(value: Any) -> None:
    if isinstance(value, str):
        _text(value)
    for one in value.values() if isinstance(value, dict) else value if type(value) is list else ():
        _no_halves(one)


def _no_very_long(value: Any) -> None:
    """Numbers that no column holds exactly; the guide names 38 digits."""
    if isinstance(value, Decimal) and abs(float(value)) == float("inf"):
        raise Bad(value)
    for one in value.values() if isinstance(value, dict) else value if type(value) is list else ():
        _no_very_long(one)


def _read_object(fields: list[DrawnField], found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise Bad(found)
    row = {}
    for one in fields:
        name = one.names[0]
        if name not in found:
            if one.required and not one.kind.nullable:
                raise Bad(name)
            row[one.name] = one.default
            continue
        made = one.kind.read(found[name])
        if made is not None and not all(holds(made) for holds in one.holds):
            raise Bad(made)
        row[one.name] = made
    return row
