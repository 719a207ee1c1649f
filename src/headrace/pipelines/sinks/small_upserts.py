"""Few rows into a Delta table on this machine by key, without a job of Spark: by `deltalake`.

A MERGE of Spark costs seconds of processor time however few the rows are, most of it for planning
and compiling; numbers by the minute are a handful of rows with each batch. Where the rows are few
and of plain types, and the table is one that deltalake is known to write as Spark would (`fits`),
it does the same MERGE natively. Everything else, and what deltalake refuses, is Spark's. A MERGE
is one commit or none, and the same rows again change nothing, so either may follow the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.pipelines import int96, not_a_number
from headrace.pipelines.sinks.console_lines import Say
from headrace.pipelines.sinks.tables import has_delta_log
from headrace.pipelines.sinks.touched import Touched

if TYPE_CHECKING:
    import pyarrow
    from deltalake import DeltaTable, PostCommitHookProperties
    from pyspark.sql.types import StructType

# Types of which Spark and deltalake write the same.
WHOLE = ("tinyint", "smallint", "int", "bigint")
KINDS = frozenset((*WHOLE, "float", "double", "boolean", "string", "date", "timestamp"))
# In other letters a name would have to be quoted, and compared as Spark compares it.
NAME = re.compile(r"[a-z_][a-z0-9_]*")
PLAIN_READER, PLAIN_WRITER = 1, 2
WRITER_FEATURES = {"appendOnly", "invariants"}
# What a column may say of itself. Others are rules that only Spark keeps, such as the length of a
# VARCHAR.
SAID_OF_COLUMNS = {"comment", "spark.watermarkDelayMs"}
# They come into this process: Spark ends a job that gives its driver more than 1 GB.
MOST_TEXT_BYTES = 64 << 20
UTC_MICROS = ("us", "UTC")
# After each commit deltalake would look through the whole log for entries that are too old to keep.
# With 20,000 of them, a day of batches, a MERGE took 265 ms of processor time, without this 70.
CLEAN_LOG_EVERY = 100


def may_fit(location: str, schema: StructType) -> bool:
    """Returns whether rows of these columns, and their target, are simple enough. Does not use
    deltalake."""
    plain = all(
        NAME.fullmatch(one.name) and one.dataType.simpleString() in KINDS for one in schema.fields
    )
    return plain and "://" not in location and has_delta_log(location)


def fits(location: str, schema: StructType, part: Touched) -> bool:
    """Returns whether these rows are simple enough, too."""
    small = part.plain and part.text_bytes <= MOST_TEXT_BYTES
    return small and may_fit(location, schema)


def merged(location: str, rows: pyarrow.Table, keys: Sequence[str], note: Say) -> bool:
    """Merges the rows. False: nothing was done, and Spark must do it."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError:
        return False
    try:
        table = DeltaTable(location)
        if not _is_plain(table, rows.column_names) or not int96.is_read_right(location, table):
            return False
        if not_a_number.is_among(rows) or not_a_number.is_told_of(table):
            return False
        same = " AND ".join(f't."{key}" = s."{key}"' for key in keys)
        merge = table.merge(
            _in_utc(rows),
            same,
            source_alias="s",
            target_alias="t",
            post_commithook_properties=_after_commit(table.version()),
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    except DeltaError as refusal:
        said = str(refusal).splitlines()[0][:300]
        note(f"deltalake could not write {location}, so Spark does: {said}")
        return False
    return True


def _after_commit(version: int) -> PostCommitHookProperties:
    """What deltalake does beside the commit; None is as the table's properties say."""
    from deltalake import PostCommitHookProperties

    clean = None if version % CLEAN_LOG_EVERY == 0 else False
    return PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=clean)


def _is_plain(table: DeltaTable, names: Sequence[str]) -> bool:
    protocol = table.protocol()
    features = set(protocol.writer_features or ())
    known = features <= WRITER_FEATURES if features else protocol.min_writer_version <= PLAIN_WRITER
    if not known or protocol.min_reader_version > PLAIN_READER:
        return False
    # Spark must respect the user's settings of the table. A table that another program made
    # may have partitions that the pipeline does not declare, and the two do not name the folder of
    # a partition alike: a file that was replaced would stay.
    metadata = table.metadata()
    made_plain = not metadata.configuration and not metadata.partition_columns
    columns = table.schema().fields
    ruled = any(set(one.metadata or ()) - SAID_OF_COLUMNS for one in columns)
    return made_plain and not ruled and {one.name for one in columns} == set(names)


def _in_utc(rows: pyarrow.Table) -> pyarrow.Table:
    """Delta's times are moments; Arrow names the session's zone with them."""
    import pyarrow

    def as_delta(field: Any) -> Any:
        moment = pyarrow.types.is_timestamp(field.type)
        kind = pyarrow.timestamp(*UTC_MICROS) if moment else field.type
        return pyarrow.field(field.name, kind, nullable=True)

    return rows.cast(pyarrow.schema([as_delta(one) for one in rows.schema]))
