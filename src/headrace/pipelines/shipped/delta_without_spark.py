"""Looking at a Delta table on this machine, and compacting it, without a start of Spark.

`deltalake` reads Delta's log and files itself: a second instead of half a minute. It takes a table
only if it is known to read it right: column mapping makes it answer with nulls, features that it
does not know make it refuse, and Spark's times of the year 9999 would be others (`int96.py`).
`found` is None for all of those, and for Iceberg; then Spark does the work. Both ways show the
same, to the letter (`tests/pipelines`).
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headrace.pipelines import int96, not_a_number
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.shipped.lake_tables import Compacted, Version, milliseconds, moment_text
from headrace.pipelines.sinks.tables import has_delta_log
from headrace.pipelines.stream.folder import TableInUse, table_held

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset
    from deltalake import DeltaTable

# The features that change nothing for a reader that does not know them, or that deltalake knows.
READER_FEATURES = {"timestampNtz"}
WRITER_FEATURES = {"appendOnly", "invariants", "timestampNtz"}
PLAIN_READER, PLAIN_WRITER = 1, 2
MAPPED = "delta.columnMapping.mode"
RETENTION = "delta.deletedFileRetentionDuration"
# The error of deltalake when a file of a table no longer exists.
GONE = ("not found", "no such file")
# Rows of a scan that are in memory at once.
SCANNED_ROWS = 4096


Partition = tuple[Any, ...]  # the values of its columns
# For values of other types it is not certain how a filter must write them; null is not in any of
# these.
NAMED = (str, int, date)


@dataclass(slots=True)
class SmallFiles:
    count: int = 0
    size_bytes: int = 0


class DeltaFiles:
    """A table that needs no Spark."""

    def __init__(self, location: str, table: DeltaTable) -> None:
        self.location = location
        self._table = table

    def versions(self) -> list[Version]:
        """Oldest first."""
        with explained():
            states = reversed(self._table.history())
            return [
                Version(
                    int(state["version"]),
                    moment_text(int(state["timestamp"])),
                    str(state["operation"]).lower(),
                )
                for state in states
            ]

    def rows(
        self,
        *,
        limit: int,
        order: list[str],
        version: int | None = None,
        at: str | None = None,
    ) -> tuple[list[str], list[list[Any]], set[str]]:
        """Names of columns, cells as Spark gives them to people, and which columns hold JSON."""
        from deltalake import QueryBuilder

        with explained():
            wanted = self._version_at(at) if at is not None else version
            if wanted is not None:
                self._table.load_as_version(wanted)
                if not int96.is_read_right(self.location, self._table):
                    raise PipelineError(
                        "That version has times that only Spark reads right: have it ask Spark, "
                        "with a setting such as --spark spark.ui.enabled=false."
                    )
            names = [field.name for field in self._table.schema().fields]
            sorted_by = ", ".join(f"{_quoted(_known(one, names))} NULLS FIRST" for one in order)
            # Each word of it is a name that the table has, in quotes, or a number.
            query = "SELECT * FROM lake" + (f" ORDER BY {sorted_by}" if order else "")
            answer = QueryBuilder().register("lake", self._table).execute(f"{query} LIMIT {limit}")
            return _for_people(_arrow(answer))

    def scanned(
        self, columns: Sequence[str], where: pyarrow.dataset.Expression | None
    ) -> Iterator[dict[str, Any]]:
        """Yields the rows for which the filter holds; files of partitions for which it cannot hold
        are not opened. A map comes as a dictionary."""
        with explained():
            names = [field.name for field in self._table.schema().fields]
            chosen = [_known(one, names) for one in columns]
            rows = self._table.to_pyarrow_dataset()
            kinds = {field.name: field.type for field in rows.schema}
            for batch in rows.to_batches(
                columns=chosen,
                filter=where,
                batch_size=SCANNED_ROWS,
                batch_readahead=1,
                fragment_readahead=1,
            ):
                for row in batch.to_pylist():
                    yield {name: _as_dictionary(row[name], kinds[name]) for name in chosen}

    def ask(self, question: str) -> list[dict[str, Any]]:
        """Returns the answer to SQL over the table `lake`; the SQL must not contain foreign
        text."""
        from deltalake import QueryBuilder

        with explained():
            answer = QueryBuilder().register("lake", self._table).execute(question)
            rows: list[dict[str, Any]] = _arrow(answer).to_pylist()
            return rows

    def _version_at(self, at: str) -> int:
        """Returns the last version that existed at that moment."""
        at_ms = milliseconds(at)
        states = [(int(one["version"]), int(one["timestamp"])) for one in self._table.history()]
        there = [version for version, made_ms in states if made_ms <= at_ms]
        if not there:
            first = moment_text(min(made_ms for _, made_ms in states))
            raise PipelineError(f"There was no table at {at}: its first version is of {first}.")
        return max(there)

    @property
    def may_be_written(self) -> bool:
        protocol = self._table.protocol()
        features = set(protocol.writer_features or ())
        known = bool(features) or protocol.min_writer_version <= PLAIN_WRITER
        plain = features <= WRITER_FEATURES and known and self._has_plain_folders
        return plain and not not_a_number.is_told_of(self._table)

    @property
    def _has_plain_folders(self) -> bool:
        """Spark writes the folder of a partition into the log as it is, deltalake takes it out in
        percent signs: Spark goes on to read such a file, beside the one that replaced it. With a
        tilde deltalake does not find the file."""
        names = self._table.metadata().partition_columns
        values = [part.values() for part in self._table.partitions()] if names else []
        texts = [str(one) for group in (names, *values) for one in group]
        return all(text.isascii() and "~" not in text for text in texts)

    def compact_if_free(self, *, forget_hours: int | None) -> Compacted | None:
        """None: another process writes, or the table has features that only Spark keeps.

        Two writers of different make on one folder are not proven to see each other.
        """
        if not self.may_be_written:
            return None
        try:
            with table_held(self.location, alone=True), explained():
                return self._compact(forget_hours)
        except TableInUse:
            return None

    # ---- one partition at a time, for a stream that has the table alone

    def small_files(self, below_bytes: int) -> dict[Partition, SmallFiles]:
        """How many files of less than so many bytes each partition has, and how large they are."""
        import pyarrow

        with explained():
            files = pyarrow.table(self._table.get_add_actions(flatten=True))
            columns = [f"partition.{name}" for name in self._table.metadata().partition_columns]
        found: dict[Partition, SmallFiles] = {}
        for size, *values in zip(
            files["size_bytes"].to_pylist(),
            *(files[column].to_pylist() for column in columns),
            strict=True,
        ):
            if size < below_bytes:
                part = found.setdefault(tuple(values), SmallFiles())
                part.count += 1
                part.size_bytes += size
        return found

    def compact_partition(self, partition: Partition, *, target_bytes: int) -> int:
        """Returns how many files it rewrote. Files of `target_bytes` and more stay as they are. A
        partition of values that cannot be named in a filter is compacted with the whole table.
        """
        columns = self._table.metadata().partition_columns
        named = all(type(value) in NAMED for value in partition)
        only = [(c, "=", v) for c, v in zip(columns, partition, strict=True)] if named else []
        with explained():
            done = self._table.optimize.compact(
                partition_filters=only or None, target_size=target_bytes
            )
            return int(done["numFilesRemoved"])

    def vacuum(self, hours: int) -> int:
        """Remove files that only versions older than `hours` need, and those of writers that were
        killed; how many. A table that wants to keep them for longer says so in its properties."""
        from deltalake.exceptions import DeltaError

        with explained():
            try:
                gone = self._table.vacuum(retention_hours=hours, dry_run=False, full=True)
            except DeltaError as refusal:
                own = RETENTION in self._table.metadata().configuration
                if not own or "retention period" not in str(refusal):
                    raise
                gone = self._table.vacuum(retention_hours=None, dry_run=False, full=True)
            return len(gone)

    def _compact(self, forget_hours: int | None) -> Compacted:
        before = len(self._table.file_uris())
        self._table.optimize.compact()
        self._table.update_incremental()
        done = Compacted(before, len(self._table.file_uris()))
        if forget_hours is not None:
            removed = self._table.vacuum(retention_hours=forget_hours, dry_run=False, full=True)
            done.removed = len(removed)
        return done


def is_installed() -> bool:
    return importlib.util.find_spec("deltalake") is not None


def found(location: str) -> DeltaFiles | None:
    """Returns the table; None if only Spark can handle it, or deltalake is not installed."""
    if "://" in location or not has_delta_log(location):
        return None
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError:
        return None
    try:
        table = DeltaTable(location)
        understood = _is_understood(table) and int96.is_read_right(location, table)
        return DeltaFiles(location, table) if understood else None
    except DeltaError:
        return None


def _is_understood(table: DeltaTable) -> bool:
    protocol = table.protocol()
    features = set(protocol.reader_features or ())
    if table.metadata().configuration.get(MAPPED, "none") != "none":
        return False
    if not features <= READER_FEATURES:
        return False
    return bool(features) or protocol.min_reader_version <= PLAIN_READER


@contextmanager
def explained() -> Iterator[None]:
    from deltalake.exceptions import DeltaError

    try:
        yield
    except DeltaError as failure:
        said = str(failure)
        if any(sign in said.lower() for sign in GONE):
            raise PipelineError(
                "Files that this version of the table needs are gone: `headrace lake compact "
                "--forget` removes those of old versions."
            ) from failure
        raise PipelineError(f"The table cannot be read: {said.splitlines()[0][:500]}") from failure


# ---- names


def _known(given: str, names: list[str]) -> str:
    """As the table spells it: like Spark, without looking at capitals."""
    for name in names:
        if name == given:
            return name
    for name in names:
        if name.lower() == given.strip().lower():
            return name
    raise PipelineError(f"The table has no column {given!r}; it has {', '.join(names)}.")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# ---- cells


def _arrow(answer: Any) -> pyarrow.Table:
    import pyarrow

    return pyarrow.table(answer.read_all())


def _for_people(rows: pyarrow.Table) -> tuple[list[str], list[list[Any]], set[str]]:
    from pyarrow import types

    nested = {field.name for field in rows.schema if types.is_nested(field.type)}
    columns = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        cells = column.to_pylist()
        if field.name in nested:
            cells = [None if cell is None else _json(cell, field.type) for cell in cells]
        elif types.is_timestamp(field.type):
            cells = [None if cell is None else _moment(cell) for cell in cells]
        columns.append(cells)
    return list(rows.column_names), [list(row) for row in zip(*columns, strict=True)], nested


def _moment(cell: datetime) -> str:
    """In UTC, with as much of the fraction as there is."""
    whole = cell.astimezone(UTC) if cell.tzinfo is not None else cell
    fraction = f"{whole.microsecond:06d}".rstrip("0")
    return f"{whole:%Y-%m-%d %H:%M:%S}" + (f".{fraction}" if fraction else "")


def _json(cell: Any, kind: pyarrow.DataType) -> str:
    return json.dumps(_plain(cell, kind), ensure_ascii=False, separators=(",", ":"))


def _plain(cell: Any, kind: pyarrow.DataType) -> Any:
    """The output of Spark's to_json: null fields of a structure are left out."""
    from pyarrow import types

    if cell is None:
        return None
    if types.is_struct(kind):
        pairs = [(field.name, _plain(cell[field.name], field.type)) for field in kind]
        return {name: value for name, value in pairs if value is not None}
    if types.is_map(kind):
        return {_key(key): _plain(value, kind.item_type) for key, value in cell}
    if types.is_nested(kind):
        return [_plain(one, kind.value_type) for one in cell]
    return _leaf(cell)


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _as_dictionary(cell: Any, kind: pyarrow.DataType) -> Any:
    from pyarrow import types

    return dict(cell) if cell is not None and types.is_map(kind) else cell


def _leaf(cell: Any) -> Any:
    if isinstance(cell, datetime):
        milliseconds = f"{cell:%Y-%m-%dT%H:%M:%S}.{cell.microsecond // 1000:03d}"
        return milliseconds + ("Z" if cell.tzinfo is not None else "")
    if isinstance(cell, date):
        return cell.isoformat()
    if isinstance(cell, Decimal):
        return float(cell)
    if isinstance(cell, bytes):
        import base64

        return base64.b64encode(cell).decode("ascii")
    return cell
