"""Any topic into a lake table, Delta or Iceberg, whose columns grow with the values.

Each row has the record's key, place and time beside its columns (`_record_key` and its kin).
Appended, each record is one row, once. Upserted (Delta), the table is what a compacted topic means:
the last value of each key; a null value deletes. A record that cannot be a row goes to the topic of
dead letters. The columns are those of the table, and what a batch brings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.pipelines.declaration import NAME, VALUES, Pipeline, Table, Topic
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows import kept_numbers, record_rows
from headrace.pipelines.shipped.evolution import (
    KIND,
    RECORD,
    RESERVED,
    LeftOut,
    by_first_record,
    fields_in,
    has_field,
    kinds,
    merged,
    seen_in,
)
from headrace.pipelines.sinks.console_lines import Say
from headrace.pipelines.sinks.latest import ByOffset, Latest
from headrace.pipelines.sinks.table_columns import conflicts
from headrace.pipelines.sinks.table_writer import DELETED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

FORMATS = ("delta", "iceberg")
NOTHING = "_headrace_nothing"  # a schema needs a column, and `{}` has none
# Fields of a table, those within columns too: values whose fields are made of names or numbers of
# things would make one of each.
MOST_FIELDS = 2000


@dataclass(slots=True, kw_only=True)
class Lake:
    """The topic, the table and their options. `schema` pins the types of columns (DDL), or is the
    values' Avro schema."""

    topic: str
    table: str | None = None
    format: str = "delta"
    upsert: bool = False
    values: str = "json"
    schema: str | None = None
    per_batch: int | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise PipelineError(f"A lake table is one of {', '.join(FORMATS)}.")
        if self.upsert and self.format != "delta":
            raise PipelineError("Rows are replaced and deleted in Delta tables only.")
        if self.values not in VALUES:
            raise PipelineError(f"Values are one of {', '.join(VALUES)}.")
        if self.values != "json" and self.schema is None:
            raise PipelineError(f"Values in {self.values} need their Avro schema.")

    def pipeline(self) -> Pipeline:
        name = self.topic.replace(".", "-") + "-to-lake"
        if not NAME.fullmatch(name):
            raise PipelineError(f"{self.topic!r} is too long for the name of a pipeline.")
        table = self.table or self.topic.replace(".", "-")
        keyed: dict[str, Any] = {"mode": "upsert", "key": "_record_key"} if self.upsert else {}
        sink = Table(table, format=self.format, **keyed)
        source = Topic(self.topic, per_batch=self.per_batch)
        return Pipeline(name=name, source=source, sink=sink, function=lambda rows: rows)

    def growth(self) -> LakeRows:
        return LakeRows(lake=self)


@dataclass(slots=True, kw_only=True)
class LakeRows:
    """Makes rows of records as Spark's Kafka source gives them; the table's columns grow with
    them."""

    lake: Lake
    told: set[str] = field(default_factory=set)  # names of fields that were reported as left out

    @property
    def latest(self) -> Latest | None:
        if not self.lake.upsert:
            return None
        return ByOffset("_record_partition", "_record_offset", "_record_time")

    @property
    def values(self) -> str:
        return self.lake.values

    def parsed(self, records: DataFrame, table: StructType | None, note: Say) -> DataFrame:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        lake = self.lake
        if table is not None:
            table = StructType([one for one in table.fields if one.name not in RECORD])
        if lake.values != "json":
            source = Topic(lake.topic, schema=lake.schema, format=lake.values)
            return self._with_tombstones(record_rows.parsed(records, source))
        records = kinds(records)
        known = self._known(table)
        seen = by_first_record(records, seen_in(records))
        schema, left_out = merged(known, seen, RESERVED)
        said = [one.shown for one in left_out]
        if (wide := fields_in(schema)) > MOST_FIELDS:
            said = [f"{wide - fields_in(known):,} new ones beyond {MOST_FIELDS:,}"]
            schema, left_out = StructType(list(known.fields)), []
        elif schema != known:
            new, _ = merged(StructType([]), seen, RESERVED)
            schema, _ = merged(known, kept_numbers.columns_for(records, new, record_rows.JSON))
        self._tell(said, note)
        if not schema.fields:
            schema.add(StructField(NOTHING, StringType()))
        found = record_rows.parsed(records, Topic(lake.topic, schema=schema.toDDL()))
        # Spark would take the first of a list of objects and drop the others.
        no_object = F.col("value").isNotNull() & ~F.coalesce(
            F.col(KIND).startswith("OBJECT<"), F.lit(False)
        )
        text = F.col("value").cast("string")
        typed = F.col(record_rows.PARSED)
        why = F.coalesce(
            F.when(no_object, F.lit("the value is not a JSON object")),
            *(
                F.when(has_field(one.path), F.lit(_only_in_case(one)))
                for one in left_out
                if one.column is not None
            ),
            F.col(record_rows.WHY),
            kept_numbers.lost(text),
            kept_numbers.rounded(text, typed, schema, self._pinned().names, record_rows.JSON),
        )
        return self._with_tombstones(found.withColumn(record_rows.WHY, why))

    def _tell(self, left_out: list[str], note: Say) -> None:
        """Reports each name once."""
        new = [name for name in left_out if name not in self.told]
        if new and len(self.told) < MOST_FIELDS:
            self.told.update(new)
            note(f"fields that cannot be columns beside others: {', '.join(new)}")

    def _known(self, table: StructType | None) -> StructType:
        """The table's own columns, and those that are pinned."""
        pinned = self._pinned()
        if table is None:
            return pinned
        if wrong := conflicts(table, pinned):
            raise PipelineError(
                f"A column keeps its type, and in the table {', '.join(wrong)}: fill another one "
                "with --table NAME, or start over with `headrace pipeline reset "
                f"{self.lake.pipeline().name} --table`."
            )
        return merged(table, pinned)[0]

    def _pinned(self) -> StructType:
        """The columns whose types the user chose; a DOUBLE among them may round."""
        from pyspark.sql.types import StructType

        if self.lake.schema is None:
            return StructType([])
        return record_rows.schema_of(Topic(self.lake.topic, schema=self.lake.schema))

    def _with_tombstones(self, found: DataFrame) -> DataFrame:
        """For upserts a null value is good and a null key is not."""
        from pyspark.sql import functions as F

        if not self.lake.upsert:
            return found
        no_key = F.when(F.col("key").isNull(), F.lit("the key is null"))
        no_value = F.when(F.col("value").isNull(), F.lit(None))
        kept = no_value.otherwise(F.col(record_rows.WHY))
        return found.withColumn(record_rows.WHY, F.coalesce(no_key, kept))

    def rows(self, found: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        names = found.schema[record_rows.PARSED].dataType.names
        own = [one for one in names if one not in (record_rows.CORRUPT, NOTHING)]
        columns = [F.col(record_rows.PARSED)[one].alias(one) for one in own]
        columns += [F.col(source).alias(one) for one, source in RECORD.items()]
        if self.lake.upsert:
            columns.append(F.col("value").isNull().alias(DELETED))
        return found.where(F.col(record_rows.WHY).isNull()).select(*columns)


def _only_in_case(field: LeftOut) -> str:
    return (
        f"the field {field.shown} differs from the column {field.column} only in case, and tables "
        "do not tell them apart"
    )
