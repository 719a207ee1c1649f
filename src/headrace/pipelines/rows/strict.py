"""Values that Spark's JSON functions accept and would lose: found before a value becomes a row.

Spark's functions read the first value of a text and ignore what follows it. They replace bytes that
are not text, and half of a surrogate pair, by question marks. They make a number that is too large
for DOUBLE infinite. They accept a nested field that is NOT NULL and missing, and a map that has a
key twice. Times, dates and decimals are read by `exact`, and what it cannot convert is reported
here. Left as it is, because that is how JSON is commonly read: if a name comes twice, the last
value counts; a name in other letters (`ID` for `id`) is another name; and names that the schema
does not have are left out. A number with a fraction in a text column is written as a double.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.pipelines.rows import exact

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField, StructType

# Microseconds since 1970: the years 1 to 9999, which is what tables and Python can hold.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
BLANK = " \t\r\n"
# Fields that are looked at one by one to say which of them does not fit.
NAMED_FIELDS = 100

Of = Callable[["Column"], "Column"]


@dataclass(slots=True)
class Check:
    """Checks a value: whether it is wrong, and if so, why."""

    is_wrong: Of
    why: Of


def is_list(text: Column) -> Column:
    from pyspark.sql import functions as F

    return ~text.startswith("{") & F.ltrim(text, F.lit(BLANK)).startswith("[")


def is_one_value(text: Column) -> Column:
    """Returns whether nothing follows the first JSON value. The value is put into a list with
    another one behind it: if more follows, the list ends early, gets longer or breaks."""
    from pyspark.sql import functions as F

    listed = F.concat(F.lit("["), text, F.lit(",0]"))
    return F.coalesce(F.json_array_length(listed) == 2, F.lit(False))


def is_one_object(text: Column) -> Column:
    """The same of text that begins with a whole JSON object. Where the only brace that closes is
    the last byte there is nothing behind it, which is seen without reading it a second time.
    `contains` looks at bytes; `instr`, which looks at letters, took ten times as long."""
    from pyspark.sql import functions as F

    without_last = F.substring(text.cast("binary"), F.lit(1), F.octet_length(text) - 1)
    only_at_the_end = text.endswith("}") & ~without_last.cast("string").contains("}")
    return only_at_the_end | is_one_value(text)


def half_pair(text: Column) -> Column:
    """The reason if an escape names half of a surrogate pair, which UTF-8 has no bytes for."""
    from pyspark.sql import functions as F

    # Few values hold an escape at all, and to look for one is cheap.
    may = text.contains("\\u") & (text.contains("\\ud") | text.contains("\\uD"))
    sober = F.regexp_replace(text, r"\\\\", "")  # an escaped backslash begins no escape
    pair = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    left = F.regexp_replace(sober, pair, "")
    name = F.regexp_extract(left, r'"([^"\\]+)"\s*:\s*"(?:[^"\\]|\\.)*?\\u[dD][89a-fA-F]', 1)
    said = F.when(name != "", F.concat(F.lit("the field "), name)).otherwise(F.lit("the value"))
    why = F.concat(said, F.lit(" holds half of a surrogate pair, which is not text"))
    return F.when(may & left.rlike(r"\\u[dD][89a-fA-F]"), why)


def reasons(read: Column, typed: Column, schema: StructType, unit: str) -> list[Column]:
    """Returns expressions: each is null, or what is wrong with a value that Spark has read. `typed`
    is what `exact` made of it."""
    from pyspark.sql import functions as F

    asked = []
    for one in schema.fields:
        asked += _of_field(one, "", unit, typed[one.name])
    return [F.when(check.is_wrong(read), check.why(read)) for check in asked]


def checks(kind: DataType, path: str, unit: str, typed: Column | None = None) -> list[Check]:
    """The checks for values of a type, also inside structs, arrays and maps."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return [check for field in kind.fields for check in _of_field(field, path, unit)]
    if isinstance(kind, T.ArrayType):
        return [_any(check) for check in checks(kind.elementType, path, unit)]
    if isinstance(kind, T.MapType):
        twice = Check(_has_a_key_twice, _said(f"{path} has a key twice"))
        inside = [_of(F.map_values, _any(one)) for one in checks(kind.valueType, path, unit)]
        return [twice, *inside]
    if isinstance(kind, T.FloatType | T.DoubleType):
        return [Check(_is_infinite, _said(f"the number {path} is too large for its type"))]
    if exact.is_plain(kind):
        return []

    def made(value: Column) -> Column:
        return exact.converted(value, kind, unit) if typed is None else typed

    def is_lost(value: Column) -> Column:
        return ~is_missing(value, kind) & made(value).isNull()

    found = [Check(is_lost, lambda value: exact.why_not(value, kind, path, unit))]
    if isinstance(kind, T.TimestampType):
        far = _said(f"{path} is not in the years 1 to 9999")
        found.append(Check(lambda value: _is_far(made(value)), far))
    return found


def is_missing(value: Column, kind: DataType) -> Column:
    """A null in JSON is a value of VARIANT, by which decimals are read."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import DecimalType

    if isinstance(kind, DecimalType):
        return value.isNull() | F.is_variant_null(value)
    return value.isNull()


def _of_field(field: StructField, path: str, unit: str, typed: Column | None = None) -> list[Check]:
    shown = f"{path}.{field.name}" if path else field.name

    def part(value: Column) -> Column:
        return value[field.name]

    found = [_of(part, check) for check in checks(field.dataType, shown, unit, typed)]
    if field.nullable:
        return found

    def lacks(value: Column) -> Column:
        return value.isNotNull() & is_missing(value[field.name], field.dataType)

    return [Check(lacks, _said(f"the field {shown} is missing")), *found]


def _said(text: str) -> Of:
    from pyspark.sql import functions as F

    return lambda value: F.lit(text)


def _of(part: Of, check: Check) -> Check:
    """Ask a part of a value instead of the value."""
    return Check(lambda value: check.is_wrong(part(value)), lambda value: check.why(part(value)))


def _any(check: Check) -> Check:
    from pyspark.sql import functions as F

    def why(values: Column) -> Column:
        wrong = F.filter(values, lambda one: check.is_wrong(one))
        return F.get(F.transform(wrong, lambda one: check.why(one)), F.lit(0))

    return Check(lambda values: F.exists(values, lambda one: check.is_wrong(one)), why)


def within(step: str, check: Check, *, each: str, values: str) -> Check:
    """Returns the check for a part of a value: a field, or each element of a list, or each value of
    a map."""
    from pyspark.sql import functions as F

    if step == each:
        return _any(check)
    if step == values:
        return _of(F.map_values, _any(check))
    return _of(lambda value: value[step], check)


def _has_a_key_twice(pairs: Column) -> Column:
    """Spark would keep both values, and show the first or the last one, as it happens."""
    from pyspark.sql import functions as F

    keys = F.map_keys(pairs)
    return F.size(keys) != F.size(F.array_distinct(keys))


def _is_infinite(number: Column) -> Column:
    from pyspark.sql import functions as F

    return F.abs(number) == F.lit(math.inf)


def _is_far(time: Column) -> Column:
    from pyspark.sql import functions as F

    first, last = (F.timestamp_micros(F.lit(one)) for one in (FIRST_US, LAST_US))
    return (time < first) | (time > last)


# ---- which field does not fit


def misfit(text: Column, schema: StructType, options: dict[str, str], corrupt: str) -> Column:
    """Returns why Spark could not read a value by the schema: it is not JSON, or which field is
    wrong.

    The value is read again with each field as VARIANT, and then each field alone.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    fields = [T.StructField(one.name, T.VariantType()) for one in schema.fields[:NAMED_FIELDS]]
    loose = T.StructType([*fields, T.StructField(corrupt, T.StringType())])
    again = F.array(F.from_json(text, loose, options))

    def named(value: Column) -> Column:
        reasons = [F.when(~_is_object(text), F.lit("the value is not a JSON object"))]
        reasons.append(F.when(value[corrupt].isNotNull(), F.lit("the value is not JSON")))
        reasons += [
            _misfit_of(value, one, options, corrupt) for one in schema.fields[:NAMED_FIELDS]
        ]
        return F.coalesce(*reasons, F.lit("the value does not fit the schema"))

    return F.get(F.transform(again, named), F.lit(0))


def _is_object(text: Column) -> Column:
    from pyspark.sql import functions as F

    return F.ltrim(text, F.lit(BLANK)).startswith("{")


def _misfit_of(value: Column, field: StructField, options: dict[str, str], corrupt: str) -> Column:
    """Returns the reason if a field alone cannot be read by its type; else null."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    held = F.to_json(value[field.name])
    alone = T.StructType(
        [
            T.StructField("field", exact.read_as(field.dataType)),
            T.StructField(corrupt, T.StringType()),
        ]
    )
    read = F.from_json(F.concat(F.lit('{"field":'), held, F.lit("}")), alone, options)
    said = F.concat(
        F.lit(f"the field {field.name} is "),
        F.substring(held, 1, exact.SHOWN),
        F.lit(f", which is no {field.dataType.simpleString()[:200]}"),
    )
    return F.when(read[corrupt].isNotNull(), said)
