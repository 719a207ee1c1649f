"""What Spark's JSON functions let pass and would lose: found before a value becomes a row.

They read the first value of a text and leave what stands behind it, put question marks for bytes
that are no text, make a number that is too large for DOUBLE infinite, take milliseconds for seconds
and so come to the year 57970, and do not mind a nested field that is NOT NULL and missing.
Left as it is, because that is how JSON is commonly read: of a name that comes twice the last value
counts, a name in other letters (`ID` for `id`) is another name, and names that the schema does not
have are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField, StructType

# Microseconds since 1970: the years 1 to 9999, which is what tables and Python can hold.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
BLANK = " \t\r\n"

Test = Callable[["Column"], "Column"]
# Whether a value is wrong, and the reason.
Check = tuple[Test, str]


def is_list(text: Column) -> Column:
    from pyspark.sql import functions as F

    return F.ltrim(text, F.lit(BLANK)).startswith("[")


def is_one_value(text: Column) -> Column:
    """Whether nothing stands behind the first JSON value: in a list, with another one behind it,
    that would end the list, make it longer or break it."""
    from pyspark.sql import functions as F

    listed = F.concat(F.lit("["), text, F.lit(",0]"))
    return F.coalesce(F.json_array_length(listed) == 2, F.lit(False))


def reasons(field: Column, schema: StructType) -> list[Column]:
    """Each null, or what is wrong with a value that Spark has read by the schema."""
    from pyspark.sql import functions as F

    return [F.when(is_wrong(field), F.lit(why)) for is_wrong, why in checks(schema)]


def checks(kind: DataType, path: str = "") -> list[Check]:
    """What values of a type must be asked, also those within structs, arrays and maps."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return [check for field in kind.fields for check in _of_field(field, path)]
    if isinstance(kind, T.ArrayType):
        return [(_any(is_wrong), why) for is_wrong, why in checks(kind.elementType, path)]
    if isinstance(kind, T.MapType):
        values = _of(F.map_values)
        return [(values(_any(is_wrong)), why) for is_wrong, why in checks(kind.valueType, path)]
    if isinstance(kind, T.FloatType | T.DoubleType):
        return [(_is_infinite, f"the number {path} is too large for its type")]
    if isinstance(kind, T.TimestampType):
        far = f"{path} is not in the years 1 to 9999; a number counts seconds since 1970"
        return [(_is_far, far)]
    return []


def _of_field(field: StructField, path: str) -> list[Check]:
    shown = f"{path}.{field.name}" if path else field.name
    inside = _of(lambda value: value[field.name])
    found = [(inside(is_wrong), why) for is_wrong, why in checks(field.dataType, shown)]
    if field.nullable:
        return found

    def is_missing(value: Column) -> Column:
        return value.isNotNull() & value[field.name].isNull()

    return [(is_missing, f"the field {shown} is missing"), *found]


def _of(part: Test) -> Callable[[Test], Test]:
    """Ask a part of a value instead of the value."""

    def asked(is_wrong: Test) -> Test:
        return lambda value: is_wrong(part(value))

    return asked


def _any(is_wrong: Test) -> Test:
    from pyspark.sql import functions as F

    return lambda values: F.exists(values, lambda one: is_wrong(one))


def _is_infinite(number: Column) -> Column:
    from pyspark.sql import functions as F

    return F.abs(number) == F.lit(math.inf)


def _is_far(time: Column) -> Column:
    from pyspark.sql import functions as F

    first, last = (F.timestamp_micros(F.lit(one)) for one in (FIRST_US, LAST_US))
    return (time < first) | (time > last)
