"""How the columns of a lake table grow with the values of a topic.

A column keeps its type once it has one: a value of another type makes its record a bad one. New
fields become new columns, also within structs and lists of structs. Of names that differ only in
case the first stands, as tables do not tell them apart; the others are returned to be told of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipelines.rows.schema import VARIANT, from_seen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
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
    [(seen,)] = objects.select(F.schema_of_variant_agg(value)).collect()
    if seen is None or not seen.startswith("OBJECT<") or seen == "OBJECT<>":
        return StructType([])
    found = StructType.fromDDL(from_seen(seen))
    return StructType([_plain(one) for one in found.fields])


def _plain(field: object) -> object:
    """VARIANT is for columns that nobody queries; here it becomes text."""
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


def merged(
    known: StructType, seen: StructType, reserved: tuple[str, ...] = ()
) -> tuple[StructType, list[str]]:
    """The columns known and those seen first now; and the names that could not become any."""
    from pyspark.sql.types import StructField, StructType

    fields = {one.name.lower(): one for one in known.fields}
    left_out: list[str] = []
    for one in seen.fields:
        there = fields.get(one.name.lower())
        if one.name in reserved or (there is not None and there.name != one.name):
            left_out.append(one.name)
        elif there is None:
            fields[one.name.lower()] = StructField(one.name, one.dataType, True)
        else:
            kind, lost = _merged_type(there.dataType, one.dataType)
            fields[one.name.lower()] = StructField(
                there.name, kind, there.nullable and one.nullable
            )
            left_out += [f"{one.name}.{name}" for name in lost]
    return StructType(list(fields.values())), left_out


def _merged_type(known: DataType, seen: DataType) -> tuple[DataType, list[str]]:
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(known, StructType) and isinstance(seen, StructType):
        return merged(known, seen)
    if isinstance(known, ArrayType) and isinstance(seen, ArrayType):
        kind, lost = _merged_type(known.elementType, seen.elementType)
        return ArrayType(kind, True), lost
    return known, []


def fields_in(kind: DataType) -> int:
    """Columns, and fields within them."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, ArrayType):
        return fields_in(kind.elementType)
    if isinstance(kind, StructType):
        return sum(1 + fields_in(one.dataType) for one in kind.fields)
    return 0
