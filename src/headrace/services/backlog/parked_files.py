"""Parked records as Parquet files of a folder, which DuckDB, Spark and pandas read as they are.

    FOLDER/<topic>.<group>/<topic id>/<parking>/
        parking.json             what it is, and whether it counts
        records-00000.parquet    partition, offset, timestamp, key, value, headers
        brought-back.jsonl       stretches of offsets that were sent to the group again

A file is written under another name and gets its own when it is whole and flushed; the parking
counts when `parking.json` says so, which is replaced in one step. If a record is in two parkings,
because the group went back in between, it belongs to the later one. The last line of
`brought-back.jsonl` may be incomplete after a kill: the next run notes it again.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.app.names import retry_topic
from headrace.client.records import Record
from headrace.private_files import FOLDER_MODE, private_folder
from headrace.services.backlog.parked import (
    Owner,
    ParkedSpan,
    ParkingRun,
    RecordId,
    StoreFailed,
    Stretches,
)
from headrace.wire.contract.companions import RETRY_SUFFIX

ROWS_PER_GROUP = 20_000
BYTES_PER_GROUP = 16 << 20
BYTES_PER_FILE = 256 << 20
ROWS_PER_READ = 1_000
FORMAT = 1
SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))),
    ]
)


class ParkedFiles:
    def __init__(self, folder: Path, owner: Owner) -> None:
        self._owner = owner
        named = retry_topic(owner.topic, owner.group).removesuffix(RETRY_SUFFIX)
        self._home = folder / named / owner.topic_id
        self._writer: _Writer | None = None
        self._sent: dict[str, _Sent] = {}  # by run

    # ---- parking

    def prepare(self) -> None:
        with _in_words():
            private_folder(self._home)

    def begin(self, run: ParkingRun) -> None:
        with _in_words():
            (self._home / run.name).mkdir(FOLDER_MODE)
            self._write(run, records=0)
            self._writer = _Writer(self._home / run.name)

    def put(self, records: Sequence[Record]) -> None:
        assert self._writer is not None, "begun"
        with _in_words():
            self._writer.add(records)

    def finish(self, run: ParkingRun) -> None:
        assert self._writer is not None, "begun"
        with _in_words():
            self._writer.close()
            self._write(run, records=self._writer.rows)

    def note_moved(self, name: str, *, moved: bool) -> None:
        with _in_words():
            [run] = [run for run in self.runs() if run.name == name]
            run.moved = moved
            self._write(run, records=None)

    def _write(self, run: ParkingRun, *, records: int | None) -> None:
        path = self._home / run.name / "parking.json"
        said: dict[str, Any] = {}
        if path.exists():
            said = json.loads(path.read_bytes())
        said |= {
            "format": FORMAT,
            "group": self._owner.group,
            "topic": self._owner.topic,
            "topic_id": self._owner.topic_id,
            "moved": run.moved,
            "at_ms": run.at_ms,
            "partitions": {str(p): list(span) for p, span in sorted(run.spans.items())},
        }
        if records is not None:
            said["records"] = records
        _replace(path, json.dumps(said, indent=1).encode())

    def close(self) -> None:
        if self._writer is not None:
            with _in_words():
                self._writer.drop()
            self._writer = None

    # ---- looking

    def is_prepared(self) -> bool:
        return self._home.exists()

    def runs(self) -> list[ParkingRun]:
        """The oldest first."""
        with _in_words():
            found = [self._run(path) for path in self._home.glob("*/parking.json")]
        return sorted(found, key=lambda run: (run.at_ms, run.name))

    def _run(self, path: Path) -> ParkingRun:
        try:
            said = json.loads(path.read_bytes())
            if said["format"] != FORMAT:
                raise StoreFailed(f"{path} has format {said['format']}; known is {FORMAT}.")
            spans = {int(p): (int(a), int(b)) for p, (a, b) in said["partitions"].items()}
            return ParkingRun(path.parent.name, spans, bool(said["moved"]), int(said["at_ms"]))
        except (ValueError, KeyError, TypeError) as unreadable:
            raise StoreFailed(f"{path} cannot be read: {unreadable!r}.") from unreadable

    def spans(self, of_run: str | None = None) -> list[ParkedSpan]:
        found: dict[int, ParkedSpan] = {}
        for run, claimed in self._claims():
            if of_run not in (None, run.name):
                continue
            sent = self._sent_of(run)
            for batch in self._batches(run, ["partition", "offset"]):
                numbers, offsets = batch.column(0).to_pylist(), batch.column(1).to_pylist()
                for p, offset in zip(numbers, offsets, strict=True):
                    if not claimed.holds(p, offset):
                        continue
                    span = found.setdefault(p, ParkedSpan(p, offset, offset, 0, 0))
                    span.first, span.last = min(span.first, offset), max(span.last, offset)
                    span.rows += 1
                    span.waiting += not sent.holds(p, offset)
        return [found[p] for p in sorted(found)]

    def _claims(self) -> list[tuple[ParkingRun, Stretches]]:
        """Returns the runs that count, each with the offsets that no later one has."""
        counting = [run for run in self.runs() if run.moved]
        return [
            (run, _without(run, Stretches.of([later.spans for later in counting[at + 1 :]])))
            for at, run in enumerate(counting)
        ]

    # ---- bringing back

    def waiting(self, starts: dict[int, int]) -> Iterator[Record]:
        for run, claimed in self._claims():
            sent = self._sent_of(run)
            for batch in self._batches(run, None):
                for record in self._records(batch):
                    p, offset = record.partition, record.offset
                    if p not in starts or offset < starts[p] or not claimed.holds(p, offset):
                        continue
                    if not sent.holds(p, offset):
                        yield record

    def _batches(self, run: ParkingRun, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        with _in_words():
            for path in sorted((self._home / run.name).glob("records-*.parquet")):
                with pq.ParquetFile(path) as file:
                    yield from file.iter_batches(ROWS_PER_READ, columns=columns)

    def _records(self, batch: pa.RecordBatch) -> Iterator[Record]:
        times = batch.column("timestamp").cast(pa.int64()).to_pylist()
        columns = [batch.column(name).to_pylist() for name in ("partition", "offset")]
        contents = [batch.column(name).to_pylist() for name in ("key", "value", "headers")]
        for p, offset, at_ms, key, value, headers in zip(*columns, times, *contents, strict=True):
            pairs = [(each["name"], each["value"]) for each in headers or ()]
            yield Record(self._owner.topic, p, offset, at_ms, "create", key, value, pairs)

    def mark_brought_back(self, record_ids: Sequence[RecordId]) -> None:
        claims = self._claims()
        for run, claimed in claims:
            mine = [record_id for record_id in record_ids if claimed.holds(*record_id)]
            if mine:
                with _in_words():
                    self._sent_of(run).add(mine)

    def _sent_of(self, run: ParkingRun) -> _Sent:
        if run.name not in self._sent:
            with _in_words():
                self._sent[run.name] = _Sent(self._home / run.name / "brought-back.jsonl")
        return self._sent[run.name]


@dataclass(slots=True)
class _Sent:
    """Offsets that were brought back, in a file that only grows."""

    path: Path
    stretches: dict[int, list[list[int]]] = field(default_factory=dict)  # sorted, end not included

    def __post_init__(self) -> None:
        lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        for line in lines:
            try:
                partition, first, end = json.loads(line)
            except ValueError:
                continue  # empty, or torn by a kill
            self._merge(partition, first, end)

    def holds(self, partition: int, offset: int) -> bool:
        known = self.stretches.get(partition)
        if not known:
            return False
        at = bisect_right(known, [offset, 1 << 62]) - 1
        return at >= 0 and offset < known[at][1]

    def add(self, record_ids: Sequence[RecordId]) -> None:
        runs: list[list[int]] = []
        for partition, offset in sorted(record_ids):
            if runs and runs[-1][0] == partition and runs[-1][2] == offset:
                runs[-1][2] = offset + 1
            else:
                runs.append([partition, offset, offset + 1])
        # A newline first: the line before may be torn.
        text = "".join(f"\n{json.dumps(run)}" for run in runs)
        with self.path.open("ab") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        for partition, first, end in runs:
            self._merge(partition, first, end)

    def _merge(self, partition: int, first: int, end: int) -> None:
        known = self.stretches.setdefault(partition, [])
        at = bisect_right(known, [first, 1 << 62])
        if at and known[at - 1][1] >= first:
            at -= 1
            known[at][1] = max(known[at][1], end)
        else:
            known.insert(at, [first, end])
        while at + 1 < len(known) and known[at + 1][0] <= known[at][1]:
            known[at][1] = max(known[at][1], known.pop(at + 1)[1])


class _Writer:
    """Writes Parquet files, each under another name until it is whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: list[Record] = []
        self._held_bytes = 0
        self._files = 0
        self._open: tuple[Path, pq.ParquetWriter] | None = None
        self._open_bytes = 0
        self.rows = 0

    def add(self, records: Sequence[Record]) -> None:
        self._held.extend(records)
        self._held_bytes += sum(len(r.value or b"") + len(r.key or b"") for r in records)
        if len(self._held) >= ROWS_PER_GROUP or self._held_bytes >= BYTES_PER_GROUP:
            self._write_group()

    def close(self) -> None:
        self._write_group()
        self._end_file()
        _flush_folder(self._folder)

    def drop(self) -> None:
        """Ends a parking early: its last file does not get its own name."""
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def _write_group(self) -> None:
        if not self._held:
            return
        if self._open is None:
            path = self._folder / f"records-{self._files:05}.parquet"
            part = path.with_suffix(".part")
            self._open = path, pq.ParquetWriter(part, SCHEMA, compression="zstd")
            self._files += 1
        self._open[1].write_table(_table(self._held))
        self.rows += len(self._held)
        self._open_bytes += self._held_bytes
        self._held, self._held_bytes = [], 0
        if self._open_bytes >= BYTES_PER_FILE:
            self._end_file()

    def _end_file(self) -> None:
        if self._open is None:
            return
        path, writer = self._open
        writer.close()
        part = path.with_suffix(".part")
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
        self._open, self._open_bytes = None, 0


def _table(records: Sequence[Record]) -> pa.Table:
    columns = {
        "partition": [record.partition for record in records],
        "offset": [record.offset for record in records],
        "timestamp": [record.timestamp_ms for record in records],
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        "headers": [
            [{"name": name, "value": value} for name, value in record.headers] for record in records
        ],
    }
    return pa.table(
        {
            name: pa.array(values, pa.int64()).cast(SCHEMA.field(name).type)
            if name == "timestamp"
            else pa.array(values, SCHEMA.field(name).type)
            for name, values in columns.items()
        },
        schema=SCHEMA,
    )


def _without(run: ParkingRun, later: Stretches) -> Stretches:
    """The run's stretches less those of later runs."""
    left = Stretches()
    for partition, (first, end) in run.spans.items():
        at = first
        for taken_first, taken_end in later.by_partition.get(partition, ()):
            left.add(partition, at, min(end, taken_first))
            at = max(at, taken_end)
        left.add(partition, at, end)
    return left


def _replace(path: Path, contents: bytes) -> None:
    part = path.with_suffix(".new")
    with part.open("wb") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except OSError as refused:
        where = f" ({refused.filename})" if refused.filename else ""
        raise StoreFailed(f"The folder refused: {refused.strerror or refused}{where}.") from refused
    except pa.ArrowException as refused:
        raise StoreFailed(f"A file of parked records cannot be used: {refused}") from refused
