"""The columns of a table beside those of the rows that come: what fits, what is new, what is not.

A column keeps its type once it has one. New columns are added; columns that rows do not have any
more are null from then on. Names that Parquet cannot hold need Delta's column mapping, which not
every reader of Delta tables knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

# From a type of rows to one of a table that holds each of its values.
WIDER = frozenset(
    {
        ("tinyint", "smallint"),
        ("tinyint", "int"),
        ("tinyint", "bigint"),
        ("smallint", "int"),
        ("smallint", "bigint"),
        ("int", "bigint"),
        ("float", "double"),
    }
)
NOT_IN_PARQUET = frozenset(" ,;{}()\n\t=")


def conflicts(
    known: StructType, wanted: StructType, allowed: tuple[tuple[str, str], ...] = (), at: str = ""
) -> list[str]:
    """Columns that are wanted in another type than they have; `allowed` are pairs from and to."""
    from pyspark.sql.types import ArrayType, StructType

    fields = {one.name.lower(): one.dataType for one in known.fields}
    found: list[str] = []
    for one in wanted.fields:
        there, kind = fields.get(one.name.lower()), one.dataType
        if there is None:
            continue
        while isinstance(there, ArrayType) and isinstance(kind, ArrayType):
            there, kind = there.elementType, kind.elementType
        both = there.simpleString(), kind.simpleString()
        if isinstance(there, StructType) and isinstance(kind, StructType):
            found += conflicts(there, kind, allowed, f"{at}{one.name}.")
        elif both[0] != both[1] and both not in allowed and (both[1], both[0]) not in WIDER:
            found.append(f"{at}{one.name} is {both[0]}, not {both[1]}")
    return found


def new(known: StructType, now: StructType, at: str = "") -> list[str]:
    """Columns, and fields of them, that were not there, with their types."""
    from pyspark.sql.types import ArrayType, StructType

    fields = {one.name.lower(): one.dataType for one in known.fields}
    found: list[str] = []
    for one in now.fields:
        there, kind = fields.get(one.name.lower()), one.dataType
        if there is None:
            found.append(f"{at}{one.name} {kind.simpleString().upper()}")
            continue
        while isinstance(there, ArrayType) and isinstance(kind, ArrayType):
            there, kind = there.elementType, kind.elementType
        if isinstance(there, StructType) and isinstance(kind, StructType):
            found += new(there, kind, f"{at}{one.name}.")
    return found


def gone(known: StructType, now: StructType) -> StructType:
    """Columns of the table that the rows do not have."""
    from pyspark.sql.types import StructType

    there = {one.name.lower() for one in now.fields}
    return StructType([one for one in known.fields if one.name.lower() not in there])


def not_in_parquet(kind: DataType) -> list[str]:
    """Names, also of fields within columns, that Parquet files cannot have."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        return not_in_parquet(kind.elementType)
    if isinstance(kind, MapType):
        return not_in_parquet(kind.keyType) + not_in_parquet(kind.valueType)
    if not isinstance(kind, StructType):
        return []
    found = [one.name for one in kind.fields if NOT_IN_PARQUET & set(one.name)]
    return found + [name for one in kind.fields for name in not_in_parquet(one.dataType)]
