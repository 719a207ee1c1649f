"""Which part of a table a batch can touch, as literals: MERGE opens only files that may hold it.

A Delta table knows the least and greatest value of each column in each file, and the values of its
partitions. A condition over the target alone, with literals, lets it leave files out; the join with
the batch does not. Only types whose literals are exact are used: whole numbers, dates, times, and
plain text; a column with a key that is null, or of another type, is left out of the condition.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from headrace.pipelines.sinks.latest import quoted

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame

# Keys of at most so many rows are looked at here, instead of by more jobs of Spark.
FEW_ROWS = 10_000
# A condition that would name more values than this says from which to which instead.
MOST_VALUES = 50
WHOLE = ("tinyint", "smallint", "int", "bigint")
KINDS = (*WHOLE, "date", "timestamp", "string")
# Text that means itself in SQL, whatever Spark's settings for escapes are.
PLAIN_TEXT = re.compile(r"[A-Za-z0-9 _./:@#=-]{0,200}")
EPOCH = datetime(1970, 1, 1)

Key = tuple[Any, ...]


@dataclass(slots=True)
class Touched:
    """`condition` is over the target `t`. Of keys that are few enough to be looked at: `twice` is
    one that comes more than once, as text; `plain` says that none is null, nor of a type of which
    equal values may differ."""

    rows: int
    text_bytes: int = 0  # of all columns of text
    condition: str | None = None
    looked: bool = False
    twice: str | None = None
    plain: bool = False


def touched(rows: DataFrame, keys: Sequence[str], partitions: Sequence[str]) -> Touched:
    """Finds what a batch touches. `rows` must be cached meanwhile: they are read twice."""
    kinds = [rows.schema[key].dataType.simpleString() for key in keys]
    found = Touched(*_counted(rows))
    columns = [_plain(key, kind) for key, kind in zip(keys, kinds, strict=True)]
    if not found.rows:
        return found
    if found.rows > FEW_ROWS:
        ends = _ends(rows, columns, kinds)
        found.condition = condition(keys, kinds, ends, ())
        return found
    seen = [tuple(row) for row in rows.select(*columns).collect()]
    return _looked_at(found, seen, keys, kinds, partitions)


def touched_by(rows: pyarrow.Table, keys: Sequence[str], kinds: Sequence[str]) -> Touched:
    """The same for rows that are in this process already, and a table without partitions."""
    found = Touched(rows.num_rows)
    if not 0 < found.rows <= FEW_ROWS:
        return found
    columns = [_numbers(rows[key], kind) for key, kind in zip(keys, kinds, strict=True)]
    return _looked_at(found, list(zip(*columns, strict=True)), keys, kinds, ())


def _numbers(column: pyarrow.ChunkedArray, kind: str) -> list[Any]:
    """As `_plain` has Spark give them."""
    import pyarrow

    if kind == "timestamp":
        column = column.cast(pyarrow.timestamp("us", "UTC")).cast(pyarrow.int64())
    elif kind == "date":
        column = column.cast(pyarrow.int32())
    values: list[Any] = column.to_pylist()
    return values


def _looked_at(
    found: Touched,
    seen: Sequence[Key],
    keys: Sequence[str],
    kinds: Sequence[str],
    partitions: Sequence[str],
) -> Touched:
    found.looked = True
    if (again := _twice(seen)) is not None:
        found.twice = ", ".join(
            f"{key} = {shown(value, kind)}"
            for key, kind, value in zip(keys, kinds, again, strict=True)
        )[:200]
    found.plain = set(kinds) <= set(KINDS) and all(None not in key for key in seen)
    found.condition = condition(keys, kinds, seen, partitions)
    return found


def condition(
    keys: Sequence[str], kinds: Sequence[str], seen: Sequence[Key], partitions: Sequence[str]
) -> str | None:
    """Returns SQL that is true for each row of the target whose key is among those seen. Partitions
    are listed value by value, other columns as a range from the least to the greatest. Does not use
    Spark."""
    said = []
    for n, (key, kind) in enumerate(zip(keys, kinds, strict=True)):
        values: set[Any] = {one[n] for one in seen} if kind in KINDS else {None}
        if None in values:
            continue
        listed = key in partitions and len(values) <= MOST_VALUES
        if not listed:
            values = {min(values), max(values)}
        texts = [literal(one, kind) for one in sorted(values)]
        if None not in texts:
            column = f"t.{quoted(key)}"
            told = f"IN ({', '.join(map(str, texts))})" if listed else f">= {texts[0]}"
            said.append(f"{column} {told}" + ("" if listed else f" AND {column} <= {texts[-1]}"))
    return " AND ".join(said) or None


def literal(value: Any, kind: str) -> str | None:
    """Returns SQL for a value; None for text that might mean something else there. Times are
    microseconds, dates are days since 1970."""
    if kind in WHOLE:
        return str(int(value))
    if kind == "date":
        return None if (day := _day(value)) is None else f"DATE'{day}'"
    if kind == "timestamp":
        return None if (at := _moment(value)) is None else f"TIMESTAMP'{at}+00:00'"
    return f"'{value}'" if PLAIN_TEXT.fullmatch(value) else None


def shown(value: Any, kind: str) -> str:
    """For people."""
    if value is None:
        return "null"
    if kind == "date":
        return str(_day(value))
    return f"{_moment(value)} UTC" if kind == "timestamp" else repr(value)


def _day(days: int) -> date | None:
    moment = _since_1970(timedelta(days=days))
    return None if moment is None else moment.date()


def _moment(micros: int) -> str | None:
    moment = _since_1970(timedelta(microseconds=micros))
    return None if moment is None else moment.isoformat(" ")


def _since_1970(span: timedelta) -> datetime | None:
    """Returns microseconds or days since 1970; None outside the years 1 to 9999; Spark's own times
    go further."""
    try:
        return EPOCH + span
    except OverflowError:
        return None


def _plain(key: str, kind: str) -> Column:
    """A key as what has one meaning in every zone."""
    from pyspark.sql import functions as F

    column = F.col(quoted(key))
    if kind == "timestamp":
        return F.unix_micros(column).alias(key)
    return F.unix_date(column).alias(key) if kind == "date" else column


def _counted(rows: DataFrame) -> tuple[int, int]:
    """How many, and the bytes of their text."""
    from pyspark.sql import functions as F

    texts = [one.name for one in rows.schema.fields if one.dataType.simpleString() == "string"]
    sizes = [F.coalesce(F.octet_length(F.col(quoted(name))), F.lit(0)) for name in texts]
    whole = F.sum(sum(sizes, F.lit(0)).cast("long"))
    [(count, text_bytes)] = rows.agg(F.count(F.lit(1)), whole).collect()
    return int(count), int(text_bytes or 0)


def _ends(rows: DataFrame, columns: Sequence[Column], kinds: Sequence[str]) -> list[Key]:
    """Returns the least and the greatest value of each column; null if the column has a null, or a
    type without exact literals."""
    from pyspark.sql import functions as F

    asked = []
    for column, kind in zip(columns, kinds, strict=True):
        whole = F.count(column) == F.count(F.lit(1))
        ends = (F.min(column), F.max(column)) if kind in KINDS else (F.lit(None), F.lit(None))
        asked += [F.when(whole, one) for one in ends]
    [row] = rows.agg(*(one.alias(f"c{n}") for n, one in enumerate(asked))).collect()
    return [tuple(row[0::2]), tuple(row[1::2])]


def _twice(seen: Sequence[Key]) -> Key | None:
    met = set()
    for key in seen:
        known = tuple(_same(value) for value in key)
        if known in met:
            return key
        met.add(known)
    return None


def _same(value: Any) -> Any:
    """Equal for values that are the same key to Spark: NaN is one, and zero has no sign."""
    if isinstance(value, float):
        return repr(value + 0.0)
    plain = value is None or isinstance(value, int | str | bytes)
    return value if plain else repr(value)
