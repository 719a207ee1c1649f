"""How the columns of a lake table grow with the values of a topic.

A column keeps its type once it has one: a value of another type makes its record a bad one. New
fields become new columns, also within structs and lists of structs. Tables do not distinguish names
that differ only in case: the name of the first record becomes the column, and a record with another
spelling is bad. Reserved names are left out, and returned so that the caller can report them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.pipelines.rows.kept_numbers import ITEM, Path
from headrace.pipelines.rows.record_rows import JSON
from headrace.pipelines.rows.schema import VARIANT, from_seen
from headrace.pipelines.spark.session import settings_for_now

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

# The columns of every row from its record, and their names in Spark's Kafka source.
RECORD = {
    "_record_key": "key",
    "_record_partition": "partition",
    "_record_offset": "offset",
    "_record_time": "timestamp",
}
# Iceberg keeps these names for itself, and refuses to read a table that has them.
ICEBERGS_OWN = (
    "_file",
    "_pos",
    "_deleted",
    "_spec_id",
    "_partition",
    "_row_id",
    "_last_updated_sequence_number",
)
RESERVED = (*RECORD, *ICEBERGS_OWN)
KIND = "_headrace_kind"


def kinds(records: DataFrame) -> DataFrame:
    """The records, with what their JSON is in KIND: null if it is none."""
    from pyspark.sql import functions as F

    value = F.try_parse_json(F.col("value").cast("string"))
    return records.withColumn(KIND, F.schema_of_variant(value))


def seen_in(records: DataFrame) -> StructType:
    """The columns that the JSON objects of a batch have; `records` went through `kinds`.

    A field that has two types within the batch, or none yet, is text.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    value = F.try_parse_json(F.col("value").cast("string"))
    objects = records.where(F.col(KIND).startswith("OBJECT<"))
    # Otherwise Spark mistakes one of two names that differ only in case for the other.
    with settings_for_now(records.sparkSession, {"spark.sql.caseSensitive": "true"}):
        [(seen,)] = objects.select(F.schema_of_variant_agg(value)).collect()
    if seen is None or not seen.startswith("OBJECT<") or seen == "OBJECT<>":
        return StructType([])
    found = StructType.fromDDL(from_seen(seen))
    return StructType([_plain(one) for one in found.fields])


def _plain(field: object) -> object:
    """VARIANT is for columns that are not queried; here it becomes text."""
    from pyspark.sql.types import StructField

    assert isinstance(field, StructField)
    return StructField(field.name, _without_variant(field.dataType), True)


def _without_variant(kind: DataType) -> DataType:
    from pyspark.sql.types import ArrayType, StringType, StructType

    if kind.simpleString().upper() == VARIANT:
        return StringType()
    if isinstance(kind, StructType):
        return StructType([_plain(one) for one in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_without_variant(kind.elementType), True)
    return kind


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A field that cannot be a column: beside `column`, whose name differs only in case, or because
    its name is reserved."""

    path: Path
    column: str | None = None

    @property
    def shown(self) -> str:
        return ".".join(one for one in self.path if one != ITEM)


def merged(
    known: StructType, seen: StructType, reserved: tuple[str, ...] = (), at: Path = ()
) -> tuple[StructType, list[LeftOut]]:
    """Returns the known columns with the new ones, and the fields that could not become columns."""
    from pyspark.sql.types import StructField, StructType

    fields = {one.name.lower(): one for one in known.fields}
    left_out: list[LeftOut] = []
    for one in seen.fields:
        path = (*at, one.name)
        there = fields.get(one.name.lower())
        if one.name in reserved:
            left_out.append(LeftOut(path))
        elif there is not None and there.name != one.name:
            left_out.append(LeftOut(path, there.name))
        elif there is None:
            kind, lost = _merged_type(_empty(one.dataType), one.dataType, path)
            fields[one.name.lower()] = StructField(one.name, kind, True)
            left_out += lost
        else:
            kind, lost = _merged_type(there.dataType, one.dataType, path)
            fields[one.name.lower()] = StructField(
                there.name, kind, there.nullable and one.nullable
            )
            left_out += lost
    return StructType(list(fields.values())), left_out


def _empty(kind: DataType) -> DataType:
    """The same without fields: those are then taken one by one, as they are beside known ones."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, StructType):
        return StructType([])
    return ArrayType(_empty(kind.elementType), True) if isinstance(kind, ArrayType) else kind


def _merged_type(known: DataType, seen: DataType, at: Path) -> tuple[DataType, list[LeftOut]]:
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(known, StructType) and isinstance(seen, StructType):
        return merged(known, seen, at=at)
    if isinstance(known, ArrayType) and isinstance(seen, ArrayType):
        kind, lost = _merged_type(known.elementType, seen.elementType, (*at, ITEM))
        return ArrayType(kind, True), lost
    return known, []


# ---- names that differ only in case


def by_first_record(records: DataFrame, seen: StructType) -> StructType:
    """The same fields; of those whose names differ only in case the one of the earliest record
    comes first, by time, partition and offset."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    twins = list(_twins(seen, ()))
    if not twins:
        return seen
    place = F.struct("timestamp", "partition", "offset")
    asked = [F.min(F.when(has_field(path), place)) for path in twins]
    [row] = records.agg(*(one.alias(f"c{n}") for n, one in enumerate(asked))).collect()
    first = {path: tuple(at) for path, at in zip(twins, row, strict=True) if at is not None}
    made = _sorted(seen, (), first)
    assert isinstance(made, StructType)
    return made


def has_field(path: Path) -> Column:
    """Whether the JSON `value` of a record has a field, whatever is in it."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import (
        ArrayType,
        MapType,
        StringType,
        StructField,
        StructType,
        VariantType,
    )

    *above, name = path
    kind: DataType = MapType(StringType(), VariantType())
    for step in reversed(above):
        kind = ArrayType(kind) if step == ITEM else StructType([StructField(step, kind)])

    def has(value: Column, steps: list[str]) -> Column:
        if not steps:
            return F.map_contains_key(value, name)
        if steps[0] == ITEM:
            return F.exists(value, lambda one: has(one, steps[1:]))
        return has(value[steps[0]], steps[1:])

    read = F.from_json(F.col("value").cast("string"), kind.json(), JSON)
    return F.coalesce(has(read, above), F.lit(False))


def _twins(kind: DataType, path: Path) -> Iterator[Path]:
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, ArrayType):
        yield from _twins(kind.elementType, (*path, ITEM))
    if isinstance(kind, StructType):
        count = Counter(one.name.lower() for one in kind.fields)
        for one in kind.fields:
            if count[one.name.lower()] > 1:
                yield (*path, one.name)
            yield from _twins(one.dataType, (*path, one.name))


def _sorted(kind: DataType, path: Path, first: dict[Path, tuple[Any, ...]]) -> DataType:
    from pyspark.sql.types import ArrayType, StructField, StructType

    if isinstance(kind, ArrayType):
        return ArrayType(_sorted(kind.elementType, (*path, ITEM), first), True)
    if not isinstance(kind, StructType):
        return kind
    fields = [
        StructField(one.name, _sorted(one.dataType, (*path, one.name), first), True)
        for one in kind.fields
    ]
    # Those without a twin keep their order among themselves.
    fields.sort(key=lambda one: ((at := first.get((*path, one.name))) is not None, at or ()))
    return StructType(fields)


def fields_in(kind: DataType) -> int:
    """Columns, and fields within them."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, ArrayType):
        return fields_in(kind.elementType)
    if isinstance(kind, StructType):
        return sum(1 + fields_in(one.dataType) for one in kind.fields)
    return 0
