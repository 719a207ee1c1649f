"""Schemas as Spark's DDL: from pydantic models, or given as DDL.

`str` STRING, `int` LONG, `float` DOUBLE, `bool` BOOLEAN, `bytes` BINARY, `datetime` TIMESTAMP,
`date` DATE, `Decimal` DECIMAL(38,18), `list[T]` ARRAY, `dict[str, T]` MAP, enums of text and
literals STRING, nested models STRUCT. A field that has no default and may not be None is NOT NULL:
a record without it is bad. Knows no Spark: DDL that is given is read by Spark when the run begins.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import types
import typing
import uuid
from typing import Any

from headrace.pipelines.failure import PipelineError

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


def _columns(model: type, within: tuple[type, ...], between: str = " ") -> list[str]:
    fields = getattr(model, "model_fields", None)
    if not isinstance(fields, dict) or not fields:
        raise PipelineError(
            f"{getattr(model, '__name__', model)} is no schema: give a pydantic model or Spark's "
            'DDL, such as "id LONG NOT NULL, name STRING".'
        )
    if model in within:
        raise PipelineError(f"{model.__name__} holds itself: Spark's tables have no such type.")
    columns = []
    for name, info in fields.items():
        shown = info.alias or name
        kind, may_be_none = _without_none(info.annotation)
        text = _type(kind, (*within, model), f"{model.__name__}.{name}")
        needed = info.is_required() and not may_be_none
        columns.append(f"`{shown}`{between}{text}" + (" NOT NULL" if needed else ""))
    return columns


def _without_none(kind: Any) -> tuple[Any, bool]:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        others = [one for one in typing.get_args(kind) if one is not type(None)]
        if len(others) == 1:
            return others[0], len(typing.get_args(kind)) == 2
    return kind, False


def _type(kind: Any, within: tuple[type, ...], where: str) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _type(arguments[0], within, where)
    if origin is typing.Literal and all(isinstance(one, str) for one in arguments):
        return "STRING"
    if origin in (list, set, tuple) and arguments and arguments[1:] in ((), (...,)):
        return f"ARRAY<{_type(_without_none(arguments[0])[0], within, where)}>"
    if origin is dict and arguments[0] is str:
        return f"MAP<STRING, {_type(_without_none(arguments[1])[0], within, where)}>"
    if isinstance(kind, type):
        if kind in PLAIN:
            return PLAIN[kind]
        if issubclass(kind, enum.Enum) and all(isinstance(one.value, str) for one in kind):
            return "STRING"
        if hasattr(kind, "model_fields"):
            return f"STRUCT<{', '.join(_columns(kind, within, between=': '))}>"
    raise PipelineError(f"{where}: there is no column type for {kind}; give the schema as DDL.")
