"""Schemas as text: Spark's DDL from pydantic models or as given, and Avro schemas.

`str` STRING, `int` LONG, `float` DOUBLE, `bool` BOOLEAN, `bytes` BINARY, `datetime` TIMESTAMP,
`date` DATE, `Decimal` DECIMAL(38,18), `list[T]` ARRAY, `dict[str, T]` MAP, `Any` VARIANT, enums of
text and literals STRING, nested models STRUCT. A field that has no default and may not be None is
NOT NULL: a record without it is bad. Knows no Spark: DDL that is given is read by Spark when the
run begins.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import re
import types
import typing
import uuid
from typing import Any

from headrace.pipelines.failure import PipelineError

# Instead of DDL: from the first records, then pinned; one column of any shape.
INFER = "infer"
VARIANT = "VARIANT"
DOUBLE_DIGITS = 15  # of a decimal number that each DOUBLE gives back
# Formats of values whose schema is Avro's: bare, and behind Confluent's header (a zero byte and
# four bytes that name the schema in its registry).
AVRO = ("avro", "confluent-avro")

PLAIN = {
    bool: "BOOLEAN",
    int: "LONG",
    float: "DOUBLE",
    str: "STRING",
    bytes: "BINARY",
    datetime.datetime: "TIMESTAMP",
    datetime.date: "DATE",
    decimal.Decimal: "DECIMAL(38,18)",
    uuid.UUID: "STRING",
}


def ddl_of(schema: type | str) -> str:
    """The columns of a value, as Spark's DDL."""
    if isinstance(schema, str):
        if not schema.strip():
            raise PipelineError("An empty schema has no columns.")
        return schema
    return ", ".join(_columns(schema, within=()))


def avro_of(schema: type | str) -> str:
    """An Avro schema as it was given, if it is one of a record."""
    try:
        found = json.loads(schema) if isinstance(schema, str) else None
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("type") != "record":
        raise PipelineError("The schema of Avro values is an Avro schema of a record, as JSON.")
    assert isinstance(schema, str)
    return schema


def enveloped(avro: str) -> str:
    """A record around a record. Both are written alike, but a value that cannot be read leaves the
    outer one's field null, where Spark would give a row of nulls that looks like a good one."""
    inner = {"name": "value", "type": json.loads(avro)}
    return json.dumps({"type": "record", "name": "headrace_envelope", "fields": [inner]})


def from_seen(seen: str, event_time: str | None = None) -> str:
    """DDL from what Spark's `schema_of_variant_agg` says, such as `OBJECT<a: BIGINT, b: VARIANT>`.

    A field whose type changed between records is VARIANT, a number with a fraction is DOUBLE (the
    decimals seen so far say nothing of the next ones) unless it has more digits than a DOUBLE has:
    then it stays DECIMAL, for `kept_numbers` to decide. One that was always null is STRING; the
    event time is a timestamp.
    """
    if not seen.startswith("OBJECT<") or seen == "OBJECT<>":
        raise PipelineError(
            f"The values are no JSON objects with fields ({seen}), so there are no columns: give a "
            'schema, or schema="VARIANT" for one column of any shape.'
        )
    whole = seen.replace("OBJECT<>", VARIANT)
    whole = re.sub(r"\bDECIMAL\((\d+), ?\d+\)", _decimal, whole)
    whole = re.sub(r"(?<=[:<] )VOID\b|(?<=<)VOID\b", "STRING", whole)
    columns = _parts(whole[len("OBJECT<") : -1])
    if event_time is not None:
        columns = [_as_time(one, event_time) for one in columns]
    return ", ".join(column.replace("OBJECT<", "STRUCT<") for column in columns)


def _decimal(seen: re.Match[str]) -> str:
    return "DOUBLE" if int(seen[1]) <= DOUBLE_DIGITS else seen[0]


def _as_time(column: str, event_time: str) -> str:
    name, _, kind = column.rpartition(": ")
    if kind not in ("STRING", "BIGINT"):
        return column
    return f"{name}: TIMESTAMP" if name.strip("`") == event_time else column


def _parts(fields: str) -> list[str]:
    """At the commas that are not within <...>, (...) or a quoted name."""
    parts, depth, quoted, begin = [], 0, False, 0
    for at, letter in enumerate(fields):
        if letter == "`":
            quoted = not quoted
        elif not quoted:
            depth += (letter in "<(") - (letter in ">)")
            if letter == "," and depth == 0:
                parts.append(fields[begin:at].strip())
                begin = at + 1
    return [*parts, fields[begin:].strip()]


def _columns(model: type, within: tuple[type, ...], between: str = " ") -> list[str]:
    fields = getattr(model, "model_fields", None)
    if not isinstance(fields, dict) or not fields:
        raise PipelineError(
            f"{getattr(model, '__name__', model)} is not a schema: give a pydantic model or "
            'Spark\'s DDL, such as "id LONG NOT NULL, name STRING".'
        )
    if model in within:
        raise PipelineError(f"{model.__name__} holds itself: Spark's tables have no such type.")
    columns = []
    for name, info in fields.items():
        shown = info.alias or name
        kind, may_be_none = without_none(info.annotation)
        text = _type(kind, (*within, model), f"{model.__name__}.{name}")
        needed = info.is_required() and not may_be_none
        columns.append(f"`{shown}`{between}{text}" + (" NOT NULL" if needed else ""))
    return columns


def without_none(kind: Any) -> tuple[Any, bool]:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        others = [one for one in typing.get_args(kind) if one is not type(None)]
        if len(others) == 1:
            return others[0], len(typing.get_args(kind)) == 2
    return kind, False


def _type(kind: Any, within: tuple[type, ...], where: str) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return VARIANT
    if origin is typing.Annotated:
        return _type(arguments[0], within, where)
    if origin is typing.Literal and all(isinstance(one, str) for one in arguments):
        return "STRING"
    if origin in (list, set, tuple) and arguments and arguments[1:] in ((), (...,)):
        return f"ARRAY<{_type(without_none(arguments[0])[0], within, where)}>"
    if origin is dict and arguments[0] is str:
        return f"MAP<STRING, {_type(without_none(arguments[1])[0], within, where)}>"
    if isinstance(kind, type):
        if kind in PLAIN:
            return PLAIN[kind]
        if issubclass(kind, enum.Enum) and all(isinstance(one.value, str) for one in kind):
            return "STRING"
        if hasattr(kind, "model_fields"):
            return f"STRUCT<{', '.join(_columns(kind, within, between=': '))}>"
    raise PipelineError(f"{where}: there is no column type for {kind}; give the schema as DDL.")
