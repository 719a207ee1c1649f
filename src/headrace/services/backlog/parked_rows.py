"""Parked records as rows of a database: PostgreSQL, MariaDB (MySQL) or SQLite.

One row per record, named by the group, the topic's id, partition and offset, so that parking the
same stretch twice writes each record once. The group's name is in the key by its hash: databases
compare text in their own ways, and names that differ in case are different groups.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    and_,
    bindparam,
    delete,
    false,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from headrace.client.records import HeaderList, Record
from headrace.services.backlog.parked import (
    Owner,
    ParkedSpan,
    ParkingRun,
    RecordId,
    StoreFailed,
    Stretches,
)
from headrace.services.outbox.engines import engine_for, require_file
from headrace.services.outbox.schema import OutboxError

ROWS_PER_READ = 1_000
_LARGE = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
_LONG = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")

metadata = MetaData()
TABLE = Table(
    "headrace_parked",
    metadata,
    Column("group_hash", String(64), primary_key=True),
    Column("topic_id", String(40), primary_key=True),
    Column("partition_number", Integer, primary_key=True, autoincrement=False),
    Column("record_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("group_id", _LONG, nullable=False),  # for people
    Column("topic", String(255), nullable=False),
    Column("timestamp_ms", BigInteger),
    Column("record_key", _LARGE),
    Column("record_value", _LARGE),
    Column("headers", _LONG, nullable=False),
    Column("brought_back", Boolean, nullable=False),
)
RUNS = Table(
    "headrace_parkings",
    metadata,
    Column("group_hash", String(64), primary_key=True),
    Column("topic_id", String(40), primary_key=True),
    Column("parking", String(40), primary_key=True),
    Column("partition_number", Integer, primary_key=True, autoincrement=False),
    Column("first_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False),
    Column("moved", Boolean, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
)


class ParkedRows:
    def __init__(self, engine: Engine, owner: Owner) -> None:
        self._engine = engine
        self._owner = owner
        self._hash = hashlib.sha256(owner.group.encode("utf-8", "surrogatepass")).hexdigest()
        self._ours = and_(TABLE.c.group_hash == self._hash, TABLE.c.topic_id == owner.topic_id)
        self._our_runs = and_(RUNS.c.group_hash == self._hash, RUNS.c.topic_id == owner.topic_id)

    # ---- parking

    def prepare(self) -> None:
        with _in_words():
            metadata.create_all(self._engine)

    def begin(self, run: ParkingRun) -> None:
        with _in_words(), self._engine.begin() as db:
            self._write(db, run)

    def finish(self, run: ParkingRun) -> None:
        with _in_words(), self._engine.begin() as db:
            db.execute(delete(RUNS).where(self._our_runs, RUNS.c.parking == run.name))
            self._write(db, run)

    def _write(self, db: Connection, run: ParkingRun) -> None:
        rows = [
            {
                "group_hash": self._hash,
                "topic_id": self._owner.topic_id,
                "parking": run.name,
                "partition_number": partition,
                "first_offset": first,
                "end_offset": end,
                "moved": run.moved,
                "at_ms": run.at_ms,
            }
            for partition, (first, end) in run.spans.items()
        ]
        if rows:
            db.execute(insert(RUNS), rows)

    def note_moved(self, name: str, *, moved: bool) -> None:
        statement = update(RUNS).where(self._our_runs, RUNS.c.parking == name).values(moved=moved)
        with _in_words(), self._engine.begin() as db:
            db.execute(statement)

    def put(self, records: Sequence[Record]) -> None:
        rows = [self._row(record) for record in records]
        # An existing row was brought back by an earlier parking, or comes from one that was killed:
        # it has the same contents, and waits from now on.
        again = {"brought_back": false()}  # written out: PyMySQL takes no parameters there
        keys = TABLE.primary_key
        with _in_words(), self._engine.begin() as db:
            match db.dialect.name:
                case "postgresql":
                    on_postgres = postgresql.insert(TABLE)
                    db.execute(on_postgres.on_conflict_do_update(keys, set_=again), rows)
                case "sqlite":
                    db.execute(sqlite.insert(TABLE).on_conflict_do_update(keys, set_=again), rows)
                case _:
                    db.execute(mysql.insert(TABLE).on_duplicate_key_update(again), rows)

    def _row(self, record: Record) -> dict[str, object]:
        return {
            "group_hash": self._hash,
            "topic_id": self._owner.topic_id,
            "partition_number": record.partition,
            "record_offset": record.offset,
            "group_id": self._owner.group.encode("utf-8", "replace").decode(),
            "topic": self._owner.topic,
            "timestamp_ms": record.timestamp_ms,
            "record_key": record.key,
            "record_value": record.value,
            "headers": _headers_text(record.headers),
            "brought_back": False,
        }

    def close(self) -> None:
        self._engine.dispose()

    # ---- looking

    def is_prepared(self) -> bool:
        try:
            require_file(self._engine)
        except OutboxError:
            return False
        with _in_words():
            return inspect(self._engine).has_table(RUNS.name)

    def runs(self) -> list[ParkingRun]:
        found: dict[str, ParkingRun] = {}
        query = select(RUNS).where(self._our_runs).order_by(RUNS.c.at_ms, RUNS.c.parking)
        with _in_words(), self._engine.connect() as db:
            for row in db.execute(query):
                run = found.setdefault(
                    row.parking, ParkingRun(row.parking, {}, bool(row.moved), row.at_ms)
                )
                run.spans[row.partition_number] = (row.first_offset, row.end_offset)
        return list(found.values())

    def _counting(self, of_run: str | None = None) -> Stretches:
        return Stretches.of(
            [run.spans for run in self.runs() if run.moved and of_run in (None, run.name)]
        )

    def spans(self, of_run: str | None = None) -> list[ParkedSpan]:
        found = []
        with _in_words(), self._engine.connect() as db:
            for partition, stretches in sorted(self._counting(of_run).by_partition.items()):
                parts = [self._span(db, partition, each) for each in stretches]
                parts = [part for part in parts if part.rows]
                if parts:
                    found.append(
                        ParkedSpan(
                            partition,
                            parts[0].first,
                            parts[-1].last,
                            sum(part.rows for part in parts),
                            sum(part.waiting for part in parts),
                        )
                    )
        return found

    def _span(self, db: Connection, partition: int, stretch: tuple[int, int]) -> ParkedSpan:
        columns = TABLE.c
        query = select(
            func.min(columns.record_offset),
            func.max(columns.record_offset),
            func.count(),
            func.sum(func.coalesce(columns.brought_back, False).cast(Integer)),
        ).where(
            self._ours,
            columns.partition_number == partition,
            columns.record_offset >= stretch[0],
            columns.record_offset < stretch[1],
        )
        first, last, rows, back = db.execute(query).one()
        return ParkedSpan(partition, first or 0, last or 0, rows, rows - int(back or 0))

    # ---- bringing back

    def waiting(self, starts: dict[int, int]) -> Iterator[Record]:
        counting = self._counting().by_partition
        for partition, start in sorted(starts.items()):
            for first, end in counting.get(partition, ()):
                at = max(start, first)
                while at < end and (rows := self._page(partition, at, end)):
                    yield from rows
                    at = rows[-1].offset + 1

    def _page(self, partition: int, at: int, end: int) -> list[Record]:
        columns = TABLE.c
        query = (
            select(TABLE)
            .where(
                self._ours,
                columns.partition_number == partition,
                columns.record_offset >= at,
                columns.record_offset < end,
                columns.brought_back.is_(False),
            )
            .order_by(columns.record_offset)
            .limit(ROWS_PER_READ)
        )
        with _in_words(), self._engine.connect() as db:
            return [
                Record(
                    self._owner.topic,
                    partition,
                    row.record_offset,
                    row.timestamp_ms,
                    "create",
                    row.record_key,
                    row.record_value,
                    _headers_of(row.headers),
                )
                for row in db.execute(query)
            ]

    def mark_brought_back(self, record_ids: Sequence[RecordId]) -> None:
        columns = TABLE.c
        statement = (
            update(TABLE)
            .where(
                self._ours,
                columns.partition_number == bindparam("p"),
                columns.record_offset == bindparam("o"),
            )
            .values(brought_back=True)
        )
        if record_ids:
            with _in_words(), self._engine.begin() as db:
                db.execute(statement, [{"p": p, "o": o} for p, o in record_ids])


def opened(url: str, owner: Owner) -> ParkedRows:
    try:
        engine = engine_for(url)
    except OutboxError as refused:
        raise StoreFailed(
            str(refused).replace("The outbox knows", "Records are parked in")
        ) from refused
    return ParkedRows(engine, owner)


class _in_words:
    """Turns a database's error into one sentence."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SQLAlchemyError):
            first = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
            raise StoreFailed(f"The database refused: {first}") from error


def _headers_text(headers: HeaderList) -> str:
    return json.dumps(
        [[name, None if raw is None else base64.b64encode(raw).decode()] for name, raw in headers]
    )


def _headers_of(text: str) -> HeaderList:
    return [
        (name, None if raw is None else base64.b64decode(raw)) for name, raw in json.loads(text)
    ]
