"""Parked records: a backlog in a table of a database until there is time for it.

One row per record, named by the group, the topic's id, partition and offset, so that parking the
same stretch twice writes each record once. Rows stay until somebody removes them; `brought_back`
says that a record was sent to the group again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
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
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from headrace.client.errors import ClientError
from headrace.client.records import HeaderList, Record
from headrace.services.outbox.engines import engine_for
from headrace.services.outbox.schema import OutboxError

ROWS_PER_READ = 1_000
_LARGE = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
_LONG = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")

metadata = MetaData()
TABLE = Table(
    "headrace_parked",
    metadata,
    Column("group_id", String(255), primary_key=True),
    Column("topic_id", String(40), primary_key=True),
    Column("partition_number", Integer, primary_key=True, autoincrement=False),
    Column("record_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("topic", String(255), nullable=False),
    Column("timestamp_ms", BigInteger),
    Column("record_key", _LARGE),
    Column("record_value", _LARGE),
    Column("headers", _LONG, nullable=False),
    Column("brought_back", Boolean, nullable=False),
)


class StoreFailed(ClientError):
    """The database refused, in its own words."""


@dataclass(slots=True)
class ParkedSpan:
    """What is parked of one partition, both ends included."""

    partition: int
    first: int
    last: int
    rows: int
    waiting: int  # not brought back yet


class ParkedRecords:
    """The parked records of one group and one topic."""

    def __init__(self, engine: Engine, *, group: str, topic: str, topic_id: str) -> None:
        self._engine = engine
        self._group = group
        self._topic = topic
        self._topic_id = topic_id
        columns = TABLE.c
        self._ours = and_(columns.group_id == group, columns.topic_id == topic_id)

    def prepare(self) -> None:
        with _in_words():
            metadata.create_all(self._engine)

    def put(self, records: Sequence[Record]) -> None:
        """All or none; those that are there already stay as they are."""
        rows = [
            {
                "group_id": self._group,
                "topic_id": self._topic_id,
                "partition_number": record.partition,
                "record_offset": record.offset,
                "topic": self._topic,
                "timestamp_ms": record.timestamp_ms,
                "record_key": record.key,
                "record_value": record.value,
                "headers": _headers_text(record.headers),
                "brought_back": False,
            }
            for record in records
        ]
        with _in_words(), self._engine.begin() as db:
            match db.dialect.name:
                case "postgresql":
                    db.execute(postgresql.insert(TABLE).on_conflict_do_nothing(), rows)
                case "sqlite":
                    db.execute(sqlite.insert(TABLE).on_conflict_do_nothing(), rows)
                case _:
                    db.execute(insert(TABLE).prefix_with("IGNORE"), rows)

    def spans(self) -> list[ParkedSpan]:
        columns = TABLE.c
        query = (
            select(
                columns.partition_number,
                func.min(columns.record_offset),
                func.max(columns.record_offset),
                func.count(),
                func.sum(func.coalesce(columns.brought_back, False).cast(Integer)),
            )
            .where(self._ours)
            .group_by(columns.partition_number)
            .order_by(columns.partition_number)
        )
        with _in_words(), self._engine.connect() as db:
            return [
                ParkedSpan(partition, first, last, rows, rows - int(back or 0))
                for partition, first, last, rows, back in db.execute(query)
            ]

    def waiting(self, starts: dict[int, int]) -> Iterator[Record]:
        """What was not brought back yet, partition after partition in the order of offsets."""
        for partition, start in sorted(starts.items()):
            at = start
            while rows := self._page(partition, at):
                yield from rows
                at = rows[-1].offset + 1

    def _page(self, partition: int, at: int) -> list[Record]:
        columns = TABLE.c
        query = (
            select(TABLE)
            .where(
                self._ours,
                columns.partition_number == partition,
                columns.record_offset >= at,
                columns.brought_back.is_(False),
            )
            .order_by(columns.record_offset)
            .limit(ROWS_PER_READ)
        )
        with _in_words(), self._engine.connect() as db:
            return [
                Record(
                    self._topic,
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

    def mark_brought_back(self, places: Sequence[tuple[int, int]]) -> None:
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
        if places:
            with _in_words(), self._engine.begin() as db:
                db.execute(statement, [{"p": p, "o": o} for p, o in places])

    def remove_brought_back(self) -> int:
        with _in_words(), self._engine.begin() as db:
            done = db.execute(delete(TABLE).where(self._ours, TABLE.c.brought_back.is_(True)))
            return int(done.rowcount)


def opened(url: str, *, group: str, topic: str, topic_id: str) -> ParkedRecords:
    try:
        engine = engine_for(url)
    except OutboxError as refused:
        raise StoreFailed(
            str(refused).replace("The outbox knows", "Records are parked in")
        ) from refused
    return ParkedRecords(engine, group=group, topic=topic, topic_id=topic_id)


class _in_words:
    """Turns what the database says into one sentence."""

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
