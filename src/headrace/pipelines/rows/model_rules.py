"""What a pydantic model demands of a record beyond the types of its fields. Knows no Spark.

Names of a field in JSON, defaults, ranges, lengths, patterns, literals, enums and `extra="forbid"`.
`model_checks` makes Spark expressions of them. What cannot be one, such as a validator in Python,
is refused here with the name of the field. Defaults, validation aliases and `extra="forbid"` are
for the outermost model only: Spark's reader does not say of a nested object which fields it had.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import re
import typing
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows.java_patterns import NotTheSame, as_java
from headrace.pipelines.rows.schema import without_none

# In a path: each element of a list, each value of a map.
EACH, VALUES = "[]", "{}"
LIMITS = ("ge", "gt", "le", "lt", "multiple_of")
LENGTHS = ("min_length", "max_length")
# Options of a model's configuration that change values before they are checked.
CHANGING = ("str_strip_whitespace", "str_to_lower", "str_to_upper")
DECORATORS = ("validators", "field_validators", "root_validators", "model_validators")
UUID = (
    r"^(?:urn:uuid:)?[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\z"
    r"|^\{[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\}\z|^[0-9a-fA-F]{32}\z"
)
MAKERS = (list, dict, set, tuple, str, int, float, bool)
PLAIN_NAME = re.compile(r"[^'\"\\\]\x00-\x1f]+")
MOST, LEAST = 2**63 - 1, -(2**63)


@dataclass(slots=True, frozen=True)
class Rule:
    """`kind` is pydantic's name of it, or one_of, uuid, no_null."""

    path: tuple[str, ...]
    kind: str
    limit: Any
    of_many: bool = False  # of a list or map
    shown: str = ""  # a pattern as the model has it

    @property
    def where(self) -> str:
        return ".".join(one for one in self.path if one not in (EACH, VALUES))

    @property
    def said(self) -> str:
        """The rule as text for people."""
        if self.kind == "one_of":
            return "one of " + ", ".join(map(repr, self.limit))
        return "UUID" if self.kind == "uuid" else f"{self.kind}={self.shown or self.limit}"


@dataclass(slots=True)
class ModelRules:
    """Rules by column: the names in JSON if they differ, and defaults as JSON."""

    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    not_none: set[str] = field(default_factory=set)  # of those with a default
    rules: list[Rule] = field(default_factory=list)
    only: tuple[str, ...] | None = None  # the names that an object may have


def rules_of(schema: type | str | None) -> ModelRules:
    """Returns the rules; empty for a schema that is not a model."""
    found = ModelRules()
    if isinstance(schema, type) and hasattr(schema, "model_fields"):
        _add_model(found, schema, ())
    return found


def _add_model(found: ModelRules, model: Any, path: tuple[str, ...]) -> None:
    _refuse_code(model)
    config = model.model_config
    allowed: list[str] = []
    for name, info in model.model_fields.items():
        where = f"{model.__name__}.{name}"
        column = info.alias or name
        names = _names(where, name, info, config)
        allowed += names
        if path and names != (column,):
            raise PipelineError(
                f"{where}: a validation alias is for the fields of the outermost model; "
                "Spark's reader knows one name of a nested field."
            )
        if names != (column,):
            found.names[column] = names
        _add_default(found, where, column, info, nested=bool(path))
        _add_type(found, where, info.annotation, list(info.metadata), (*path, column), config)
    if config.get("extra") == "forbid":
        if path:
            raise PipelineError(
                f'{model.__name__}: extra="forbid" is for the outermost model; Spark\'s reader '
                "leaves out names that a nested object does not have."
            )
        found.only = tuple(allowed)


def _refuse_code(model: Any) -> None:
    for kind in DECORATORS:
        for called, one in getattr(model.__pydantic_decorators__, kind, {}).items():
            fields = ", ".join(getattr(one.info, "fields", ()) or ())
            of = f"{model.__name__}.{fields}" if fields else model.__name__
            raise _not_in_spark(of, f"the validator {called}")
    for name in CHANGING:
        if model.model_config.get(name):
            raise _not_in_spark(model.__name__, name)
    for name in ("str_min_length", "str_max_length"):
        if model.model_config.get(name):
            raise _not_in_spark(model.__name__, f"{name} of the whole model")


def _not_in_spark(where: str, what: str) -> PipelineError:
    return PipelineError(
        f"{where}: {what} cannot be computed by Spark. Leave it out and state the rule with "
        "Topic(..., expect=), or do it in the function."
    )


def _names(where: str, name: str, info: Any, config: Any) -> tuple[str, ...]:
    alias = info.validation_alias
    if alias is None:
        names: tuple[Any, ...] = (info.alias or name,)
    else:
        names = tuple(getattr(alias, "choices", (alias,)))
    if not all(isinstance(one, str) for one in names):
        raise _not_in_spark(where, "an AliasPath")
    by_name = config.get("populate_by_name") or config.get("validate_by_name")
    return (*names, name) if by_name and name not in names else names


def _add_default(found: ModelRules, where: str, column: str, info: Any, *, nested: bool) -> None:
    if info.is_required():
        return
    made = info.default
    if info.default_factory is not None:
        if info.default_factory not in MAKERS:
            raise _not_in_spark(where, "a default_factory")
        made = info.default_factory()
    if made is None:
        return
    if nested:
        raise PipelineError(
            f"{where}: a default other than None is for the fields of the outermost model: of a "
            "nested object Spark's reader does not say whether a field was missing or null."
        )
    for name in found.names.get(column, (column,)):
        if not PLAIN_NAME.fullmatch(name):
            raise _not_in_spark(where, f"a default of a field that is called {name!r}")
    found.defaults[column] = _as_json(where, made)
    if not without_none(info.annotation)[1]:
        found.not_none.add(column)


def _as_json(where: str, value: Any) -> str:
    if isinstance(value, bytes):
        raise _not_in_spark(where, "a default of bytes")
    if isinstance(value, decimal.Decimal):
        return json.dumps(str(value))
    try:
        return json.dumps(value, default=_plain, allow_nan=False)
    except (TypeError, ValueError):
        raise _not_in_spark(where, f"the default {value!r}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, uuid.UUID | decimal.Decimal):
        return str(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError


def _add_type(
    found: ModelRules,
    where: str,
    kind: Any,
    metadata: list[Any],
    path: tuple[str, ...],
    config: Any,
) -> None:
    kind, _ = without_none(kind)
    while typing.get_origin(kind) is typing.Annotated:
        inner, *more = typing.get_args(kind)
        kind, _ = without_none(inner)
        metadata = [*metadata, *more]
    for name, limit in _constraints(where, metadata):
        found.rules.append(_rule(where, kind, path, name, limit, config))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        found.rules.append(Rule(path, "one_of", tuple(arguments)))
    elif origin in (list, set, tuple) and arguments:
        _add_inner(found, where, arguments[0], (*path, EACH), config)
    elif origin is dict:
        _add_inner(found, where, arguments[1], (*path, VALUES), config)
    elif isinstance(kind, type):
        if issubclass(kind, enum.Enum):
            found.rules.append(Rule(path, "one_of", tuple(one.value for one in kind)))
        elif kind is uuid.UUID:
            found.rules.append(Rule(path, "uuid", UUID))
        elif hasattr(kind, "model_fields"):
            _add_model(found, kind, path)


def _add_inner(
    found: ModelRules, where: str, kind: Any, path: tuple[str, ...], config: Any
) -> None:
    if kind is not Any and not without_none(kind)[1]:
        found.rules.append(Rule(path, "no_null", None))
    _add_type(found, where, kind, [], path, config)


def _constraints(where: str, metadata: Iterable[Any]) -> Iterable[tuple[str, Any]]:
    """The names and limits in a field's metadata."""
    for one in metadata:
        if type(one).__name__ == "FieldInfo":
            yield from _constraints(where, one.metadata)
            continue
        known = _held(one)
        if known is None:
            raise _not_in_spark(where, f"{type(one).__name__}")
        for name, limit in known.items():
            if limit is None or limit is False:
                continue
            if name not in (*LIMITS, *LENGTHS, "pattern", "allow_inf_nan", "strict"):
                raise _not_in_spark(where, name)
            if name not in ("allow_inf_nan", "strict"):  # Spark's reading is as strict
                yield name, limit


def _held(one: Any) -> dict[str, Any] | None:
    """What an object of annotated_types or pydantic holds; None for other objects."""
    sort = type(one).__name__
    names: Iterable[str]
    if sort in ("Ge", "Gt", "Le", "Lt", "MultipleOf", "MinLen", "MaxLen", "Interval", "Len"):
        names = [name for name in (*LIMITS, *LENGTHS) if hasattr(one, name)]
    elif sort in ("_PydanticGeneralMetadata", "StringConstraints", "Strict"):
        names = getattr(one, "__dict__", None) or getattr(one, "__dataclass_fields__", {})
    else:
        return None
    return {name: getattr(one, name) for name in names}


def _rule(where: str, kind: Any, path: tuple[str, ...], name: str, limit: Any, config: Any) -> Rule:
    origin = typing.get_origin(kind)
    if name in LENGTHS and (kind in (str, bytes) or origin in (list, dict, tuple)):
        return Rule(path, name, limit, of_many=origin is not None)
    if name == "pattern" and kind is str:
        if not isinstance(limit, str) or config.get("regex_engine") == "python-re":
            raise _not_in_spark(where, "a pattern of Python's own")
        try:
            return Rule(path, name, as_java(limit), shown=limit)
        except NotTheSame as why:
            raise _not_in_spark(where, f"the pattern {limit} ({why})") from None
    if name in LIMITS and _comparable(kind, name, limit):
        return Rule(path, name, limit)
    raise _not_in_spark(where, f"{name}={limit!r}")


def _comparable(kind: Any, name: str, limit: Any) -> bool:
    if isinstance(limit, bool):
        return False
    if isinstance(limit, int) and not LEAST <= limit <= MOST:
        return False
    if name == "multiple_of":
        return kind in (int, decimal.Decimal) and isinstance(limit, int | decimal.Decimal)
    if kind in (int, float):
        return isinstance(limit, int | float)
    if kind is decimal.Decimal:
        return isinstance(limit, int | decimal.Decimal)
    if kind is datetime.datetime:
        return isinstance(limit, datetime.datetime) and limit.tzinfo is not None
    return kind is datetime.date and type(limit) is datetime.date
