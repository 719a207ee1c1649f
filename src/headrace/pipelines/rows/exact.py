"""Times, dates and decimals in JSON: read as text first, then converted by explicit rules.

Spark's JSON reader takes a number for seconds and lets it overflow into another century, completes
"10:15:00" with today's date, rounds a decimal to the digits of its column, and makes -56 of 200 for
a TINYINT. So a time or date is read as text, a decimal as VARIANT, which keeps each digit, and a
TINYINT as SMALLINT. A number is a time in the topic's `unit`, and must be between 1990 and 2100: in
any other unit it is outside that range, by a factor of 1,000, and the reason names the unit that
would fit. Text is a time if it begins with a date.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, DecimalType, StructType

# How many of a unit are a second.
UNITS = {
    "seconds": 1,
    "milliseconds": 1_000,
    "microseconds": 1_000_000,
    "nanoseconds": 1_000_000_000,
}
FIRST_S, LAST_S = 631_152_000, 4_102_444_800  # 1990-01-01 and 2100-01-01
NUMBER = r"^-?\d+(\.\d+)?([eE][+-]?\d+)?$"
PLAIN_NUMBER = r"^-?\d+(\.\d+)?$"
# Years of more than four digits, or before Christ: Spark reads them, and `strict` refuses them.
FAR_DATE = r"^[+-]\d{4,7}-\d{1,2}-\d{1,2}(?:$|[T ])"
# A time without a zone: nothing but digits behind the date.
LOCAL_TIME = r"^[+-]?[\d-]+(?:[T ][\d:.]*)?$"
SHORTEST_DATE, LONGEST_DATE = len("2026-1-1"), len("2026-01-31")
SHOWN = 80  # letters of a wrong value in its reason

Test = Callable[["Column"], "Column"]


def read_as(kind: DataType) -> DataType:
    """Returns the type with which JSON is read, in place of the wanted type."""
    from pyspark.sql import types as T

    if isinstance(kind, T.TimestampType | T.TimestampNTZType | T.DateType):
        return T.StringType()
    if isinstance(kind, T.DecimalType):
        return T.VariantType()
    if isinstance(kind, T.ByteType):
        return T.ShortType()
    if isinstance(kind, T.StructType):
        fields = [T.StructField(one.name, read_as(one.dataType), True) for one in kind.fields]
        return T.StructType(fields)
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(read_as(kind.elementType), True)
    if isinstance(kind, T.MapType):
        return T.MapType(kind.keyType, read_as(kind.valueType), True)
    return kind


def is_plain(kind: DataType) -> bool:
    """Returns whether values of a type are read directly as that type."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return all(is_plain(one.dataType) for one in kind.fields)
    if isinstance(kind, T.ArrayType):
        return is_plain(kind.elementType)
    if isinstance(kind, T.MapType):
        return is_plain(kind.valueType)
    exact = (T.TimestampType, T.TimestampNTZType, T.DateType, T.DecimalType, T.ByteType)
    return not isinstance(kind, exact)


def converted(value: Column, kind: DataType, unit: str) -> Column:
    """Returns the value in the wanted type; null if it cannot be converted."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if is_plain(kind):
        return value
    if isinstance(kind, T.StructType):
        return F.when(value.isNotNull(), F.struct(*columns(value, kind, unit)))
    if isinstance(kind, T.ArrayType):
        return F.transform(value, lambda one: converted(one, kind.elementType, unit))
    if isinstance(kind, T.MapType):
        return F.transform_values(value, lambda _, one: converted(one, kind.valueType, unit))
    if isinstance(kind, T.DecimalType):
        return F.when(_fits(value, kind), _text(value).try_cast(kind))
    if isinstance(kind, T.ByteType):
        return F.when(value.between(-128, 127), value.cast(kind))
    if isinstance(kind, T.TimestampType):
        number = value.try_cast("decimal(38,9)")
        return F.when(_begins_with_date(value), value.try_cast("timestamp")).when(
            value.rlike(NUMBER), _moment(number, unit)
        )
    if isinstance(kind, T.TimestampNTZType):
        local = _begins_with_date(value) & value.rlike(LOCAL_TIME)  # Spark would drop a zone
        return F.when(local, value.try_cast("timestamp_ntz"))
    whole = F.length(value) <= LONGEST_DATE
    far = value.rlike(FAR_DATE) & ~value.contains("T") & ~value.contains(" ")
    return F.when((_begins_with_date(value) & whole) | far, value.try_cast("date"))


def uses_variant(kind: DataType) -> bool:
    """Whether numbers are read by VARIANT, which has no room for more than 38 digits."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return any(uses_variant(one.dataType) for one in kind.fields)
    if isinstance(kind, T.ArrayType):
        return uses_variant(kind.elementType)
    if isinstance(kind, T.MapType):
        return uses_variant(kind.valueType)
    return isinstance(kind, T.DecimalType | T.VariantType)


def columns(value: Column, schema: StructType, unit: str) -> list[Column]:
    """The fields of a struct, each in its type."""
    return [converted(value[one.name], one.dataType, unit).alias(one.name) for one in schema.fields]


def _begins_with_date(text: Column) -> Column:
    from pyspark.sql import functions as F

    usual = (F.substring(text, 5, 1) == "-") & (F.length(text) >= SHORTEST_DATE)
    return usual | text.rlike(FAR_DATE)


def _moment(number: Column, unit: str) -> Column:
    from pyspark.sql import functions as F

    per_second = UNITS[unit]
    inside = number.between(FIRST_S * per_second, LAST_S * per_second)
    micros = F.floor(number * F.lit(1_000_000) / F.lit(per_second))
    return F.when(inside, F.timestamp_micros(micros.cast("long")))


def _text(variant: Column) -> Column:
    from pyspark.sql import functions as F

    return F.try_variant_get(variant, "$", "string")


def digits(number: Column) -> Column:
    """The digits of a number in text, without zeros at its ends and without its exponent."""
    from pyspark.sql import functions as F

    return F.regexp_replace(F.regexp_replace(number, r"[eE].*$|[-+.]", ""), r"^0+|0+$", "")


def _fits(variant: Column, kind: DecimalType) -> Column:
    """Returns whether no digit would be lost."""
    from pyspark.sql import functions as F

    text = _text(variant)
    scaled = F.length(F.regexp_extract(text, r"^-?\d+(?:\.(\d*?)0*)?$", 1)) <= kind.scale
    sort = F.schema_of_variant(variant)
    exact = sort.startswith("DECIMAL") | (sort == "BIGINT") | (sort == "STRING")
    # With an exponent it is a double there. So is a number of more than 38 digits, but such records
    # are bad (`kept_numbers.lost`).
    kept = digits(text) == digits(text.try_cast(kind).cast("string"))
    powered = (sort == "DOUBLE") | ((sort == "STRING") & text.rlike("[eE]"))
    return (exact & text.rlike(PLAIN_NUMBER) & scaled) | (
        powered & text.rlike(NUMBER) & F.coalesce(kept, F.lit(False))
    )


# ---- reasons


def why_not(value: Column, kind: DataType, path: str, unit: str) -> Column:
    """The error of a value that could not be converted; for values that are none."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if isinstance(kind, T.DecimalType):
        text = _text(value)
        shown = _shown(text, path)
        name = kind.simpleString().upper()
        return F.when(
            text.rlike(NUMBER), F.concat(shown, F.lit(f", which {name} cannot hold exactly"))
        ).otherwise(F.concat(shown, F.lit(f", which is not a number for {name}")))
    shown = _shown(value, path)
    if isinstance(kind, T.ByteType):
        return F.concat(shown, F.lit(", which TINYINT cannot hold"))
    if isinstance(kind, T.TimestampType):
        number = value.try_cast("decimal(38,9)")
        others = [
            F.when(
                number.between(FIRST_S * per_second, LAST_S * per_second),
                F.lit(f', which looks like {one}: say it with Topic(..., unit="{one}")'),
            )
            for one, per_second in UNITS.items()
            if one != unit
        ]
        far = F.lit(f", which is not between 1990 and 2100 in {unit}")
        numeric = F.concat(shown, F.coalesce(*others, far))
        none = F.concat(shown, F.lit(", which is not a time such as 2026-01-31T12:00:00Z"))
        return F.when(value.rlike(NUMBER), numeric).otherwise(none)
    example = "2026-01-31" if isinstance(kind, T.DateType) else "2026-01-31T12:00:00"
    noun = "date" if isinstance(kind, T.DateType) else "time without a zone"
    return F.concat(shown, F.lit(f", which is no {noun} such as {example}"))


def _shown(text: Column, path: str) -> Column:
    from pyspark.sql import functions as F

    return F.concat(F.lit(f"{path} is "), F.substring(text.cast("string"), 1, SHOWN))
