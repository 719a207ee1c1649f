"""The rules of a pydantic model (`model_rules`) as Spark expressions: part of reading a value.

A value that breaks a rule has a reason that names the field and the rule. A default replaces a
field that is missing. A null in the JSON is not missing; if the field may not be None, it is a
reason. Whether the JSON has a null is looked up in the text, only if a field was read as null and
its name is in the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipelines.rows import exact, strict
from headrace.pipelines.rows.model_rules import EACH, VALUES, ModelRules, Rule

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField, StructType


def fields_in_json(read: StructType, model: ModelRules) -> list[StructField]:
    """The fields by the names that they have in JSON."""
    from pyspark.sql.types import StructField

    return [
        StructField(name, one.dataType)
        for one in read.fields
        for name in model.names.get(one.name, (one.name,))
    ]


def renamed(value: Column, read: StructType, model: ModelRules, corrupt: str) -> Column:
    """The fields by the names of their columns; of several names the first that is not null."""
    from pyspark.sql import functions as F

    fields = [
        F.coalesce(*(value[name] for name in model.names.get(one.name, (one.name,)))).alias(
            one.name
        )
        for one in read.fields
    ]
    return F.when(value.isNotNull(), F.struct(*fields, value[corrupt].alias(corrupt)))


def reasons(typed: Column, text: Column, model: ModelRules) -> list[Column]:
    """Returns expressions: each is null, or the rule that the value breaks."""
    from pyspark.sql import functions as F

    found = [F.when(check.is_wrong(typed), check.why(typed)) for check in map(_check, model.rules)]
    for column in sorted(model.not_none):
        null = typed[column].isNull() & _stands_null(text, column, model)
        found.append(F.when(null, F.lit(f"the field {column} is null")))
    if model.only is not None:
        found.append(_others(text, model.only))
    return found


def with_defaults(
    typed: Column, text: Column, schema: StructType, model: ModelRules, unit: str
) -> Column:
    from pyspark.sql import functions as F

    fields = []
    for one in schema.fields:
        value = typed[one.name]
        if (default := model.defaults.get(one.name)) is not None:
            null = _stands_null(text, one.name, model)
            made = _literal(default, one.dataType, unit)
            value = F.when(value.isNull() & ~null, made).otherwise(value)
        fields.append(value.alias(one.name))
    return F.struct(*fields)


def _literal(default: str, kind: DataType, unit: str) -> Column:
    """A default is read as a value would be."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    shape = T.StructType([T.StructField("default", exact.read_as(kind))])
    read = F.from_json(F.lit(f'{{"default": {default}}}'), shape)["default"]
    return exact.converted(read, kind, unit)


def _stands_null(text: Column, column: str, model: ModelRules) -> Column:
    """Returns whether the text has a null for a field that was read as null."""
    from pyspark.sql import functions as F

    found = F.lit(False)
    for name in model.names.get(column, (column,)):
        held = F.try_variant_get(F.try_parse_json(text), f"$['{name}']", "variant")
        named = text.contains(f'"{name}"') | text.contains("\\u")
        found |= F.when(named, F.coalesce(F.is_variant_null(held), F.lit(False))).otherwise(
            F.lit(False)
        )
    return found


def _others(text: Column, only: tuple[str, ...]) -> Column:
    from pyspark.sql import functions as F

    names = F.array(*(F.lit(name) for name in only))
    others = F.array_except(F.json_object_keys(text), names)
    said = F.concat(
        F.lit("the field "), F.get(others, F.lit(0)), F.lit(' is extra (extra="forbid")')
    )
    return F.when(F.size(others) > 0, said)


def _check(rule: Rule) -> strict.Check:
    check = strict.Check(lambda value: _is_broken(value, rule), lambda value: _why(value, rule))
    for step in reversed(rule.path):
        check = strict.within(step, check, each=EACH, values=VALUES)
    return check


def _is_broken(value: Column, rule: Rule) -> Column:
    """Returns whether a rule is broken; null, which is not broken, for a null, except for the rule
    against nulls."""
    from pyspark.sql import functions as F

    match rule.kind:
        case "ge":
            return value < F.lit(rule.limit)
        case "gt":
            return value <= F.lit(rule.limit)
        case "le":
            return value > F.lit(rule.limit)
        case "lt":
            return value >= F.lit(rule.limit)
        case "multiple_of":
            return value % F.lit(rule.limit) != 0
        case "min_length":
            return _length(value, rule) < rule.limit
        case "max_length":
            return _length(value, rule) > rule.limit
        case "one_of":
            return ~value.isin([one for one in rule.limit if one is not None])
        case "no_null":
            return value.isNull()
    return ~value.rlike(rule.limit)  # pattern, uuid


def _length(value: Column, rule: Rule) -> Column:
    from pyspark.sql import functions as F

    return F.size(value) if rule.of_many else F.length(value)


def _why(value: Column, rule: Rule) -> Column:
    from pyspark.sql import functions as F

    if rule.kind == "no_null":
        return F.lit(f"the field {rule.where} holds a null")
    if rule.of_many:
        return F.lit(f"the field {rule.where} breaks {rule.said}")
    shown = F.substring(value.cast("string"), 1, exact.SHOWN)
    return F.concat(
        F.lit(f"the field {rule.where} is "), shown, F.lit(f", which breaks {rule.said}")
    )
