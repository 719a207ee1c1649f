"""Numbers of JSON that a column would round, found before they become rows.

A DOUBLE gives back 15 digits of each number, and of some up to 17; Spark reads a number with a
fraction into a text column through a DOUBLE too. A number is kept if the digits that come back are
those that were sent. VARIANT, by which this is seen, holds 38 digits of a number without an
exponent; `lost` finds what is beyond that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from headrace.pipelines.rows.exact import digits
from headrace.pipelines.rows.schema import DOUBLE_DIGITS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

MOST_DIGITS = 38  # of DECIMAL, and of numbers in VARIANT
FRACTION_DIGITS = 18  # for the next numbers, where those of the first batch leave room
ITEM = "[]"  # in paths: an item of a list
SHOWN = 80
# A cheap check: text without these has no number that is rounded, or lost.
LONG = r"[0-9][0-9.]{15}"
VERY_LONG = r"[0-9.]{16}[eE]|[0-9.]{39}|[0-9][eE][+-]?[0-9]{3}"
STRINGS = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
NUMBERS = r"(-?\d[\d.]*(?:[eE][+-]?\d+)?)"

Path = tuple[str, ...]
Of = Callable[["Column"], "Column"]


def lost(text: Column) -> Column:
    """The reason if JSON holds a number that no column can have: more than 38 digits, or with an
    exponent and beyond DOUBLE; else null."""
    from pyspark.sql import functions as F

    def is_lost(number: Column) -> Column:
        as_double, own = number.try_cast("double"), digits(number)
        back = digits(as_double.cast("string"))
        vanishes = (as_double == 0) & (own != "")
        far = F.abs(as_double) == F.lit(float("inf"))
        rounded = (F.length(own) > DOUBLE_DIGITS) & (own != back)
        has_exponent = number.rlike("[eE]")
        return F.when(has_exponent, vanishes | far | rounded).otherwise(F.length(own) > MOST_DIGITS)

    found = F.filter(_numbers(text), is_lost)
    why = F.concat(
        F.lit("the value holds the number "),
        F.substring(F.get(found, F.lit(0)), 1, SHOWN),
        F.lit(", which no column can hold exactly: send it as text"),
    )
    return F.when(text.rlike(VERY_LONG), F.when(F.size(found) > 0, why))


def _numbers(text: Column) -> Column:
    """All numbers of JSON text, outside its strings."""
    from pyspark.sql import functions as F

    sober = F.regexp_replace(text, STRINGS, '""')
    return F.regexp_extract_all(sober, F.lit(NUMBERS), 1)


def _is_rounded(variant: Column) -> Column:
    """Whether a DOUBLE has other digits than a number."""
    from pyspark.sql import functions as F

    sort, text = F.schema_of_variant(variant), F.try_variant_get(variant, "$", "string")
    number = (sort == "BIGINT") | sort.startswith("DECIMAL")
    back = digits(text.try_cast("double").cast("string"))
    return F.coalesce(number & (digits(text) != back), F.lit(False))


def _is_no_double(variant: Column) -> Column:
    """Whether a number asks for another column than DOUBLE: it would be rounded, or it is whole and
    beyond LONG, and the next ones like it would be."""
    from pyspark.sql import functions as F

    whole = F.schema_of_variant(variant).rlike(r"^DECIMAL\((19|[23]\d), ?0\)$")
    return _is_rounded(variant) | F.coalesce(whole, F.lit(False))


# ---- rows of columns that are known


def rounded(
    text: Column, typed: Column, schema: StructType, free: Collection[str], options: dict[str, str]
) -> Column:
    """The reason if a DOUBLE or text column would have other digits than the JSON text; else null.
    `typed` is what Spark read by the schema; fields in `free` may be rounded."""
    from pyspark.sql import functions as F

    fields = [one for one in schema.fields if one.name not in free and _may_round(one.dataType)]
    if not fields:
        return F.lit(None).cast("string")
    again = F.array(F.from_json(text, _loose(schema), options))

    def named(value: Column) -> Column:
        return F.coalesce(
            *(
                F.when(
                    _differs(one.dataType, typed[one.name], value[one.name]),
                    F.concat(
                        F.lit(f"the field {one.name} is "),
                        F.substring(F.to_json(value[one.name]), 1, SHOWN),
                        F.lit(
                            f", which its column {one.dataType.simpleString()[:200]} would round"
                        ),
                    ),
                )
                for one in fields
            ),
            F.lit(None),
        )

    return F.when(text.rlike(LONG), F.get(F.transform(again, named), F.lit(0)))


def _may_round(kind: DataType) -> bool:
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return any(_may_round(one.dataType) for one in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _may_round(kind.elementType)
    return isinstance(kind, T.DoubleType | T.FloatType | T.StringType)


def _differs(kind: DataType, typed: Column, loose: Column) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        parts = [
            _differs(one.dataType, typed[one.name], loose[one.name])
            for one in kind.fields
            if _may_round(one.dataType)
        ]
        return F.coalesce(F.array_contains(F.array(*parts), F.lit(True)), F.lit(False))
    if isinstance(kind, T.ArrayType):
        both = F.zip_with(typed, loose, lambda a, b: _differs(kind.elementType, a, b))
        return F.coalesce(F.array_contains(both, F.lit(True)), F.lit(False))
    if isinstance(kind, T.StringType):
        other = F.schema_of_variant(loose) != "STRING"
        kept, sent = (
            F.array_sort(F.transform(_numbers(one), digits)) for one in (typed, F.to_json(loose))
        )
        return F.coalesce(other & (kept != sent), F.lit(False))
    return _is_rounded(loose)


def _loose(kind: StructType) -> StructType:
    """The same shape, with VARIANT for what is in it."""
    from pyspark.sql import types as T

    def loose(one: DataType) -> DataType:
        if isinstance(one, T.StructType):
            return _loose(one)
        if isinstance(one, T.ArrayType):
            return T.ArrayType(loose(one.elementType), True)
        return T.VariantType()

    return T.StructType([T.StructField(one.name, loose(one.dataType)) for one in kind.fields])


# ---- columns that are new


def columns_for(records: DataFrame, seen: StructType, options: dict[str, str]) -> StructType:
    """Columns for the JSON `value` of some records, which have the shape `seen`. Numbers with a
    fraction or an exponent, or beyond LONG, become DOUBLE if none of them is rounded by it, else
    DECIMAL if that has room for all, else text."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    leaves = list(_leaves(seen))
    if not leaves:
        return seen
    value = F.from_json(F.col("value").cast("string"), _loose(seen), options)
    asked = [F.max(_greatest(most, path)(F.col("loose"))) for path in leaves for most in _QUESTIONS]
    named = [one.alias(f"c{n}") for n, one in enumerate(asked)]
    [row] = records.select(value.alias("loose")).agg(*named).collect()
    chosen = {}
    for number, path in enumerate(leaves):
        chosen[path] = _chosen(*row[len(_QUESTIONS) * number :][: len(_QUESTIONS)])
    made = _decided(seen, (), chosen)
    assert isinstance(made, StructType)
    return made


def _leaves(kind: DataType, path: Path = ()) -> Iterator[Path]:
    """The numbers within a type that DOUBLE may round."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        for one in kind.fields:
            yield from _leaves(one.dataType, (*path, one.name))
    elif isinstance(kind, T.ArrayType):
        yield from _leaves(kind.elementType, (*path, ITEM))
    elif isinstance(kind, T.DoubleType | T.DecimalType):
        yield path


def _greatest(most: Of, path: Path) -> Of:
    """The greatest answer for what is at a path of a value."""
    from pyspark.sql import functions as F

    if not path:
        return most
    below = _greatest(most, path[1:])
    if path[0] != ITEM:
        return lambda value: below(value[path[0]])
    return lambda values: F.array_max(F.transform(values, lambda one: below(one)))


def _whole_digits(variant: Column) -> Column:
    from pyspark.sql import functions as F

    text = F.try_variant_get(variant, "$", "string")
    return F.length(F.regexp_extract(text, r"^-?0*(\d*)", 1))


def _fraction_digits(variant: Column) -> Column:
    from pyspark.sql import functions as F

    text = F.try_variant_get(variant, "$", "string")
    return F.length(F.regexp_extract(text, r"\.(\d*)$", 1))


def _has_exponent(variant: Column) -> Column:
    from pyspark.sql import functions as F

    return F.schema_of_variant(variant) == "DOUBLE"


_QUESTIONS: tuple[Of, ...] = (_is_no_double, _whole_digits, _fraction_digits, _has_exponent)


def _chosen(
    no_double: bool | None, whole: int | None, fraction: int | None, exponent: bool | None
) -> DataType:
    """The type for numbers with at most so many digits before and behind the point."""
    from pyspark.sql.types import DecimalType, DoubleType, StringType

    if not no_double:
        return DoubleType()
    room = MOST_DIGITS - (whole or 0)
    if exponent or (fraction or 0) > room:
        return StringType()
    if not fraction:
        return DecimalType(MOST_DIGITS, 0)
    return DecimalType(MOST_DIGITS, max(fraction, min(FRACTION_DIGITS, room)))


def _decided(kind: DataType, path: Path, chosen: Mapping[Path, DataType]) -> DataType:
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return T.StructType(
            [
                T.StructField(one.name, _decided(one.dataType, (*path, one.name), chosen), True)
                for one in kind.fields
            ]
        )
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_decided(kind.elementType, (*path, ITEM), chosen), True)
    return chosen.get(path, kind)
