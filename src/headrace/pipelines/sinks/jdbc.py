"""Into a table of PostgreSQL: one row per key, each batch once.

The executors write a batch side by side into a table of its own; then one transaction of the driver
writes down the batch's number in `headrace_batches`, takes the rows over with INSERT ... ON
CONFLICT and drops that table. All of it is there or nothing; a batch that is written down already
is left out, also when two drivers are at it: the row of their stream is locked.
Not done: other databases.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.pipelines.declaration import Jdbc
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows.record_place import TOPIC
from headrace.pipelines.sinks.console_lines import Once, Say
from headrace.pipelines.sinks.latest import ByColumns, Latest
from headrace.pipelines.sinks.table_memory import TableMemory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DRIVER = "org.postgresql.Driver"
BATCHES = "headrace_batches"
# Options of the driver and of Spark's writer: many rows per round trip.
QUICK = {"reWriteBatchedInserts": "true", "batchsize": "10000"}

NONE = "0"  # the id that means: no table
NO_SUCH_INDEX, TWICE_IN_ONE, OTHER_TYPE = "42P10", "21000", "42804"


@dataclass(slots=True)
class JdbcWriter:
    """Into the table of `sink`, for the stream of that name."""

    sink: Jdbc
    stream: str
    note: Say
    # The object id of the table that it has seen; another table is not written to.
    oid: int | None = None

    @property
    def location(self) -> str:
        return self.sink.name

    def named(self, name: str) -> Jdbc:
        return replace(self.sink, name=name)

    def would_repeat(self, spark: SparkSession) -> bool:
        return not self.sink.upserts and exists(spark, self.sink, target_of(self.sink))

    def memory(self, spark: SparkSession) -> TableMemory | None:
        batches = beside(self.sink, BATCHES)
        [(target, noted)] = _asked(
            spark, self.sink, f"SELECT {_oid(target_of(self.sink))}, {_oid(batches)}"
        )
        if target == NONE:
            return None
        self.oid = int(target)
        if noted == NONE:
            return TableMemory(f"{target}@", knows_all=True)
        found = _asked(spark, self.sink, f"SELECT stream, batch FROM {batches}")
        streams = {stream: int(batch) for stream, batch in found}
        return TableMemory(f"{target}@{noted}", streams, knows_all=True)

    def version(self, known: int) -> int:
        return -1

    def has_rows(self, spark: SparkSession) -> bool:
        target = target_of(self.sink)
        there = exists(spark, self.sink, target)
        return there and bool(_asked(spark, self.sink, f"SELECT 1, 1 FROM {target} LIMIT 1"))

    def write(self, rows: DataFrame, once: Once | None, latest: Latest | None = None) -> None:
        self.oid = write(rows, self.sink, self.stream, once, latest, self.note, self.oid)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def beside(sink: Jdbc, name: str) -> str:
    """Returns the name of one of our tables, in the same schema as the sink's."""
    schema, dot, _ = sink.name.rpartition(".")
    return f"{quoted(schema)}.{quoted(name)}" if dot else quoted(name)


def target_of(sink: Jdbc) -> str:
    return ".".join(quoted(part) for part in sink.name.split("."))


def _oid(name: str) -> str:
    """SQL: the number of a table, which another one of that name does not have."""
    text = name.replace("'", "''")
    return f"COALESCE(to_regclass('{text}')::oid, 0)"


def stage_of(sink: Jdbc, stream: str) -> str:
    digest = hashlib.sha256(f"{stream}/{sink.name}".encode()).hexdigest()[:16]
    return beside(sink, f"headrace_stage_{digest}")


def statements(
    sink: Jdbc,
    stage: str,
    columns: Sequence[str],
    order: Sequence[str] = (),
    texts: Collection[str] = (),
) -> list[str]:
    """SQL from the batch's own table to the sink's; a row stays if it is greater by `order`, of
    which `texts` are columns of text. Knows no Spark."""
    target, names = target_of(sink), ", ".join(quoted(column) for column in columns)
    keys = ", ".join(quoted(key) for key in sink.keys)
    unique = f", PRIMARY KEY ({keys})" if keys else ""
    taken = f"INSERT INTO {target} AS t ({names}) SELECT {names} FROM {stage}"
    if keys:
        others = [column for column in columns if column not in sink.keys]
        changed = ", ".join(f"{quoted(one)} = EXCLUDED.{quoted(one)}" for one in others)
        taken += f" ON CONFLICT ({keys}) DO " + (f"UPDATE SET {changed}" if others else "NOTHING")
        if others and order:
            taken += f" WHERE {_is_newer(order, texts)}"
    return [
        f"CREATE TABLE IF NOT EXISTS {target} (LIKE {stage}{unique})",
        taken,
    ]


def _is_newer(order: Sequence[str], texts: Collection[str]) -> str:
    """As Spark decides between rows of one batch (`latest.ByColumns`), or the table would depend on
    how records fell into batches: null is the least, and text is compared by its bytes, not by the
    rules of a language. Where a row of before has no place, the new one stays."""
    first, *rest = order

    def side(of: str, names: Sequence[str]) -> str:
        return ", ".join(_comparable(of, name, texts, is_place=name != first) for name in names)

    whole = f"({side('EXCLUDED', order)}) >= ({side('t', order)})"
    both_null = f"({side('EXCLUDED', rest)}) >= ({side('t', rest)})" if rest else "TRUE"
    new, old = f"EXCLUDED.{quoted(first)} IS NULL", f"t.{quoted(first)} IS NULL"
    return f"CASE WHEN {old} THEN NOT {new} OR {both_null} ELSE {whole} END"


def _comparable(of: str, name: str, texts: Collection[str], *, is_place: bool) -> str:
    value = f"{of}.{quoted(name)}"
    if is_place:
        none = "''" if name == TOPIC else "-1"
        value = f"COALESCE({value}, {none})"
    return f'{value} COLLATE "C"' if name in texts else value


def write(
    rows: DataFrame,
    sink: Jdbc,
    stream: str,
    once: Once | None,
    latest: Latest | None,
    note: Say,
    oid: int | None,
) -> int:
    """Returns the number of the table; refuses one that is not `oid`, if that is given."""
    from py4j.protocol import Py4JJavaError

    missing = [key for key in sink.keys if key not in rows.columns]
    if missing:
        raise PipelineError(f"The rows have no column {', '.join(missing)} for {sink.name}'s key.")
    stage = stage_of(sink, stream)
    given = {"url": sink.url, "dbtable": stage, "driver": DRIVER, **QUICK, **sink.options}
    try:
        chosen = rows if latest is None else latest.of_each_key(rows, sink.keys)
        chosen.write.format("jdbc").options(**given).mode("overwrite").save()
        order = latest.columns if isinstance(latest, ByColumns) else ()
        return _take_over(rows, sink, stage, once, order, note, oid)
    except Py4JJavaError as failure:
        raise PipelineError(_explained(sink, failure.java_exception)) from failure


def exists(spark: SparkSession, sink: Jdbc, name: str) -> bool:
    """Whether a table is there."""
    from py4j.protocol import Py4JJavaError

    try:
        connection = _connect(spark, sink)
        try:
            asked = connection.prepareStatement("SELECT to_regclass(?) IS NOT NULL")
            asked.setString(1, name)
            answer = asked.executeQuery()
            answer.next()
            return bool(answer.getBoolean(1))
        finally:
            connection.close()
    except Py4JJavaError as failure:
        raise PipelineError(_explained(sink, failure.java_exception)) from failure


def _asked(spark: SparkSession, sink: Jdbc, query: str) -> list[tuple[str, str]]:
    """Returns the first two columns of a query's rows, as text."""
    from py4j.protocol import Py4JJavaError

    try:
        connection = _connect(spark, sink)
        try:
            answer = connection.createStatement().executeQuery(query)
            found = []
            while answer.next():
                found.append((str(answer.getString(1)), str(answer.getString(2))))
            return found
        finally:
            connection.close()
    except Py4JJavaError as failure:
        raise PipelineError(_explained(sink, failure.java_exception)) from failure


def _connect(spark: SparkSession, sink: Jdbc) -> Any:
    jvm: Any = spark._jvm
    properties = jvm.java.util.Properties()
    for name, value in sink.options.items():
        properties.setProperty(name, value)
    return jvm.org.postgresql.Driver().connect(sink.url, properties)


def _take_over(
    rows: DataFrame,
    sink: Jdbc,
    stage: str,
    once: Once | None,
    order: Sequence[str],
    note: Say,
    oid: int | None,
) -> int:
    """Runs as one transaction; closing a connection that has not committed undoes it."""
    connection = _connect(rows.sparkSession, sink)
    try:
        connection.setAutoCommit(False)
        statement = connection.createStatement()
        if once is None or _first_time(connection, beside(sink, BATCHES), once):
            make, take = statements(sink, stage, rows.columns, order, _texts(rows))
            statement.executeUpdate(make)
            _refuse_another(connection, sink, oid)
            _widen(connection, sink, stage, note)
            statement.executeUpdate(take)
            _refuse_rounded(connection, sink, stage)
        statement.executeUpdate(f"DROP TABLE {stage}")
        now = _oid_now(connection, sink)
        connection.commit()
        return now
    finally:
        connection.close()


def _oid_now(connection: Any, sink: Jdbc) -> int:
    answer = connection.createStatement().executeQuery(f"SELECT {_oid(target_of(sink))}")
    answer.next()
    return int(answer.getLong(1))


def _refuse_another(connection: Any, sink: Jdbc, oid: int | None) -> None:
    """Refuses a table that was dropped while the stream runs and has just been created again,
    without its rows. Nothing is committed yet."""
    if oid is not None and _oid_now(connection, sink) != oid:
        raise PipelineError(
            f"{sink.name} was dropped or created again while it was written to: put it back from a "
            "copy, with headrace_batches, or start over with another table."
        )


def _widen(connection: Any, sink: Jdbc, stage: str, note: Say) -> None:
    """Adds the columns that the batch has and the table lacks."""
    asked = connection.prepareStatement(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = ?::regclass AND attnum > 0 AND NOT attisdropped AND attname NOT IN "
        "(SELECT attname FROM pg_attribute WHERE attrelid = ?::regclass AND NOT attisdropped)"
    )
    asked.setString(1, stage)
    asked.setString(2, target_of(sink))
    found, new = asked.executeQuery(), []
    while found.next():
        new.append((str(found.getString(1)), str(found.getString(2))))
    for name, kind in new:
        added = f"ALTER TABLE {target_of(sink)} ADD COLUMN {quoted(name)} {kind}"
        connection.createStatement().executeUpdate(added)
    if new:
        shown = ", ".join(f"{name} {kind}" for name, kind in new)
        note(f"new columns in {sink.name}: {shown}")


def _texts(rows: DataFrame) -> list[str]:
    from pyspark.sql.types import StringType

    return [one.name for one in rows.schema.fields if isinstance(one.dataType, StringType)]


def _refuse_rounded(connection: Any, sink: Jdbc, stage: str) -> None:
    """PostgreSQL silently rounds 1.5 for a column of integers, and a time for a column of days.
    Called when the rows have been taken over: a type that they cannot become at all has been
    refused by then, and nothing is committed yet.
    """
    asked = connection.prepareStatement(
        "SELECT s.attname, format_type(s.atttypid, s.atttypmod), format_type(t.atttypid, "
        "t.atttypmod) FROM pg_attribute s JOIN pg_attribute t USING (attname) "
        "WHERE s.attrelid = ?::regclass AND t.attrelid = ?::regclass AND s.attnum > 0 "
        "AND (s.atttypid, s.atttypmod) <> (t.atttypid, t.atttypmod)"
    )
    asked.setString(1, stage)
    asked.setString(2, target_of(sink))
    found, others = asked.executeQuery(), []
    while found.next():
        others.append(tuple(str(found.getString(n)) for n in (1, 2, 3)))
    for name, sent, kept in others:
        if kept == "real":  # a column that is meant to have seven digits
            continue
        value = quoted(name)
        back = f"{value}::{kept}::{sent}"
        same = f"octet_length({back}) = octet_length({value})" if sent == "text" else "TRUE"
        lost = connection.createStatement().executeQuery(
            f"SELECT {value}::text FROM {stage} WHERE {value} IS NOT NULL "
            f"AND NOT ({back} IS NOT DISTINCT FROM {value} AND {same}) LIMIT 1"
        )
        if lost.next():
            raise PipelineError(
                f"{sink.shown} did not take a batch: the column {name} of {sink.name} is {kept}, "
                f"and {lost.getString(1)!r} would become another value in it. Change the column to "
                f"{sent}, or the value in the function."
            )


def _first_time(connection: Any, batches: str, once: Once) -> bool:
    connection.createStatement().executeUpdate(
        f"CREATE TABLE IF NOT EXISTS {batches} (stream text PRIMARY KEY, batch bigint NOT NULL)"
    )
    noted = connection.prepareStatement(
        f"INSERT INTO {batches} AS b (stream, batch) VALUES (?, ?) ON CONFLICT (stream) "
        "DO UPDATE SET batch = EXCLUDED.batch WHERE b.batch < EXCLUDED.batch"
    )
    noted.setString(1, once[0])
    noted.setLong(2, once[1])
    return int(noted.executeUpdate()) == 1


def _explained(sink: Jdbc, failure: Any) -> str:
    while failure.getCause() is not None:
        failure = failure.getCause()
    is_sql = "PSQLException" in str(failure.getClass().getName())
    state = failure.getSQLState() if is_sql else None
    if state == NO_SUCH_INDEX:
        return f"{sink.name} has no unique index on {', '.join(sink.keys)}: create one."
    if state == TWICE_IN_ONE:
        return (
            f"A batch has two rows with the same key for {sink.name}: name the column that says "
            "which is newer with Jdbc(..., newest=)."
        )
    if state == OTHER_TYPE:
        return (
            f"{sink.shown} did not take a batch, as a column of it has another type: "
            f"{failure.getMessage()}. Write to another table, or change the column there."
        )
    return f"{sink.shown} did not take a batch: {failure.getMessage()}"
