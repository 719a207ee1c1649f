"""Times that Spark wrote as INT96 into a Delta table, and whether deltalake reads them right.

INT96 is Spark's own default for times in Parquet files. deltalake takes such a time for nanoseconds
since 1970 in 64 bits, which reach from 1677 to 2262; a time beyond, such as the 9999-12-31 of a row
without an end, silently becomes another time, permanently if deltalake rewrites the file. Our
sessions write microseconds instead (`session.py`); other sessions, and our earlier ones, did not.
Delta's own statistics say how far the times of a file reach; where they do not, its footer says
whether it has INT96 at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from deltalake import DeltaTable

# In microseconds since 1970, a little within the range of nanoseconds in 64 bits.
FIRST, LAST = -(1 << 63) // 1_000 + 1_000_000, (1 << 63) // 1_000 - 1_000_000


def is_read_right(location: str, table: DeltaTable) -> bool:
    """Returns whether deltalake reads all times of the loaded version right: no file has INT96
    beyond its range."""
    schema = table.schema()
    parts = set(table.metadata().partition_columns)  # they are text in the log
    columns = [one for one in schema.fields if one.name not in parts]
    times = [path for one in columns for path in _times(one.name, one.type)]
    if not times:
        return True
    return all(
        _reaches_not_far(file, times) or not _has_int96(Path(location) / unquote(file["path"]))
        for file in _files(table)
    )


def _files(table: DeltaTable) -> list[dict[str, Any]]:
    """Returns each file with its statistics, moments as numbers: Python's own end with the year
    9999."""
    import pyarrow

    found = pyarrow.table(table.get_add_actions(flatten=True))
    for n, field in enumerate(found.schema):
        if pyarrow.types.is_timestamp(field.type):
            micros = found.column(n).cast(pyarrow.timestamp("us", field.type.tz))
            found = found.set_column(n, field.name, micros.cast(pyarrow.int64()))
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def _times(name: str, kind: Any) -> Iterator[str | None]:
    """Returns columns of moments, as the statistics name them; None for a column without
    statistics."""
    from deltalake.schema import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        for one in kind.fields:
            yield from _times(f"{name}.{one.name}", one.type)
    elif isinstance(kind, ArrayType):
        yield from (None for _ in _times(name, kind.element_type))
    elif isinstance(kind, MapType):
        for inner in (kind.key_type, kind.value_type):
            yield from (None for _ in _times(name, inner))
    elif kind.type == "timestamp":
        yield name


def _reaches_not_far(file: Mapping[str, Any], times: list[str | None]) -> bool:
    return all(one is not None and _is_near(file, one) for one in times)


def _is_near(file: Mapping[str, Any], column: str) -> bool:
    nulls, rows = file.get(f"null_count.{column}"), file.get("num_records")
    if rows is not None and nulls == rows:
        return True
    least, greatest = file.get(f"min.{column}"), file.get(f"max.{column}")
    return least is not None and greatest is not None and least >= FIRST and greatest < LAST


def _has_int96(path: Path) -> bool:
    from pyarrow import ArrowException
    from pyarrow.parquet import read_metadata

    try:
        schema = read_metadata(path).schema
    except (OSError, ArrowException):
        return True  # the file cannot be read here, so it may have INT96
    return any(schema.column(n).physical_type == "INT96" for n in range(len(schema)))
