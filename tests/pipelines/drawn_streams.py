"""Streams with late rows, upserts and kills, drawn from a seed, and their tables by plain Python.

Spark decides which records a batch takes; that is read from its checkpoint. All else is computed
here from the records: which are bad, how far the watermark is, which rows are too late for it,
which windows are closed, and which row of a key is the newest.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.pipelines import Jdbc, Table, Topic, by_day, day, expect, pipeline
from headrace.pipelines.declaration import Pipeline, Sink

SCHEMA = (
    "id LONG NOT NULL, key STRING, t TIMESTAMP NOT NULL, n LONG, x DOUBLE, d DECIMAL(20,4), "
    "born DATE, tags ARRAY<STRING>, sub STRUCT<a: LONG, b: TIMESTAMP>"
)
BEGAN = datetime(2026, 3, 28, tzinfo=UTC)  # summer time begins in Europe on the next day
WRITTEN_MS = int((BEGAN + timedelta(days=30)).timestamp() * 1000)
TEXTS = ["a", "b", "A", "", "ä", "日", "😀", "x'y", 'q"\\', "a b", "null", "\u2028", None]
ZONES = ["UTC", "UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns"]
BAD = (None, b"", b"{", b"null", b"[]", b'{"id": 1}', b'{"id": 1, "t": "25:00"}', b'{"id": NaN}')
BAD += (b'{"id": 1.5, "t": 1775000000000}', b'{"id": 1, "t": "2126-01-01T00:00:00Z"}', b"\xff")
BAD += (b'{"id": 1, "t": "1969-12-31T23:59:59Z"}', b'{"id": 99999999999999999999, "t": 1}')
SHAPES = [
    "rows",
    "newest",
    "newest",
    "totals",
    "window",
    "window",
    "closed",
    "once",
    "once t",
    "days",
]
KILLS = ["", "", "before", "after", "letters", "forgotten", "interrupted"]

Row = dict[str, Any]
Place = tuple[int, int]
Record = tuple[bytes | None, int]  # value and partition


@dataclass(slots=True)
class DrawnStream:
    seed: int
    shape: str
    sink: str
    made: Pipeline
    partitions: int
    parts: list[list[Record]]
    kills: list[str]
    late: timedelta
    width: timedelta
    slide: timedelta
    keys: tuple[str, ...]
    newest: str
    zone: ZoneInfo
    rule: str
    columns: list[str] = field(default_factory=list)

    @property
    def said(self) -> str:
        return f"seed {self.seed}: {self.shape} into {self.sink}, {self.rule}, kills {self.kills}"


# ---- records


def _time(chance: random.Random, at: datetime, zone: ZoneInfo) -> Any:
    sort = chance.randint(0, 4)
    if sort == 0:
        return int(at.timestamp() * 1000)
    if sort == 1:
        return at.astimezone(ZoneInfo("Asia/Tokyo")).isoformat()
    if sort == 2:
        return at.astimezone(zone).replace(tzinfo=None).isoformat(" ")
    return at.isoformat()


def _value(chance: random.Random, minutes: int, zone: ZoneInfo) -> bytes:
    at = BEGAN + timedelta(minutes=minutes + chance.choice([0, 0, 0, -90, -600, -3000, 20]))
    at += timedelta(microseconds=chance.choice([0, 0, 1, 999_000, 999_999]))
    value: Row = {"id": chance.randint(0, 6), "t": _time(chance, at, zone)}
    value["key"] = chance.choice(TEXTS)
    value["n"] = chance.choice([None, *range(-5, 6), 2**40])
    value["x"] = chance.choice([None, 0.0, -0.0, 1.5, -2.25, 1e300, 5e-324])
    value["born"] = chance.choice([None, "2000-02-29", "0001-01-02", "9999-12-31", "1970-01-01"])
    value["tags"] = chance.choice([None, [], ["a"], ["", None, "ä"]])
    value["sub"] = chance.choice([None, {}, {"a": 1}, {"a": None, "b": "2026-01-01T00:00:00Z"}])
    for name in chance.sample(["key", "n", "x", "born", "tags", "sub"], chance.choice([0, 0, 1])):
        del value[name]
    text = json.dumps(value, ensure_ascii=chance.random() < 0.5)
    number = chance.choice(["null", "0", "1.5", "-99.9999", '"12.50"', "9999999999999999.9999"])
    return (text[:-1] + f', "d": {number}}}').encode()


def _records(chance: random.Random, count: int, partitions: int, zone: ZoneInfo) -> list[Record]:
    found: list[Record] = []
    for number in range(count):
        partition = chance.randrange(partitions)
        if found and chance.random() < 0.1:
            found.append((chance.choice(found)[0], partition))  # sent again
        elif chance.random() < 0.12:
            found.append((chance.choice(BAD), partition))
        else:
            found.append((_value(chance, number * 20, zone), partition))
    return found


def read(value: bytes | None, zone: ZoneInfo) -> Row | None:
    """The row of a value; None if it is bad. Only what `_value` and BAD hold is looked at."""
    if value is None or value in BAD:
        return None
    found = json.loads(value, parse_float=Decimal)
    t, sub = found["t"], found.get("sub")
    return {
        "id": found["id"],
        "key": found.get("key"),
        "t": _moment(t, zone),
        "n": found.get("n"),
        "x": None if found.get("x") is None else float(found["x"]),
        "d": None if found.get("d") is None else Decimal(found["d"]),
        "born": None if found.get("born") is None else date.fromisoformat(found["born"]),
        "tags": found.get("tags"),
        "sub": None
        if sub is None
        else (sub.get("a"), None if sub.get("b") is None else _moment(sub["b"], zone)),
    }


def _moment(t: Any, zone: ZoneInfo) -> datetime:
    if isinstance(t, int):
        return datetime(1970, 1, 1) + timedelta(milliseconds=t)
    at = datetime.fromisoformat(t)
    at = at.replace(tzinfo=zone) if at.tzinfo is None else at
    return at.astimezone(UTC).replace(tzinfo=None)


# ---- pipelines

RULES: dict[str, tuple[str, Callable[[Row], bool]]] = {
    "none": ("", lambda row: True),
    "n small": ("n IS NULL OR n < 4", lambda row: row["n"] is None or row["n"] < 4),
    "key known": ("key <> ''", lambda row: row["key"] is not None and row["key"] != ""),
    "divides": ("12 / n > 2", lambda row: bool(row["n"]) and 12 / row["n"] > 2),
}
FILTERS: dict[str, Callable[[Row], bool]] = {
    "true": lambda row: True,
    "id <> 3": lambda row: row["id"] != 3,
    "x IS NULL OR x >= 0": lambda row: row["x"] is None or row["x"] >= 0,
}
FILTER_OF_SEED = list(FILTERS)


def drawn(seed: int, name: str, url: str) -> DrawnStream:
    chance = random.Random(seed)
    zone = chance.choice(ZONES)
    shape = chance.choice(SHAPES)
    rule = chance.choice(list(RULES))
    sink_kind = chance.choice(
        ["delta", "jdbc"]
        if shape in ("newest", "totals", "window", "days")
        else ["delta", "iceberg", "parquet", "jdbc", "topic"]
    )
    keys = chance.choice([("id",), ("key",), ("key", "id"), ("d",), ("born", "key"), ("x",)])
    newest = chance.choice(["t", "n", "d", "x", "born"])
    if sink_kind == "jdbc":
        keys = ("id",)  # a key of PostgreSQL is never null
    width = timedelta(minutes=chance.choice([10, 60, 90]))
    slide = chance.choice([width, width, width / 2])
    late = timedelta(minutes=chance.choice([1, 120, 1000]))
    partitions = chance.randint(1, 3)
    case = DrawnStream(
        seed=seed,
        shape=shape,
        sink=sink_kind,
        made=None,
        partitions=partitions,
        parts=[],
        kills=[],
        late=late,
        width=width,
        slide=slide,
        keys=keys,
        newest=newest,
        zone=ZoneInfo(zone),
        rule=rule,
    )
    drops = chance.choice(["dead_letter", "drop"])
    source = Topic(
        name,
        schema=SCHEMA,
        event_time="t",
        late=f"{int(late.total_seconds())} seconds",
        per_batch=chance.choice([None, 3, 7]),
        expect=() if rule == "none" else (expect(RULES[rule][0], then=drops),),
    )
    case.rule = f"{rule} {drops} where {seed % len(FILTERS)}"
    sink = _sink(case, name, url, chance)
    function = _function(case, FILTER_OF_SEED[seed % len(FILTERS)])
    case.made = pipeline(source=source, sink=sink, name=name, zone=zone)(function)
    runs = chance.randint(2, 3)
    case.parts = [
        _records(chance, chance.randint(4, 14), partitions, case.zone) for _ in range(runs)
    ]
    case.kills = [chance.choice(KILLS) for _ in range(runs)]
    return case


def _sink(case: DrawnStream, name: str, url: str, chance: random.Random) -> Sink:
    keys: tuple[str, ...] = {
        "newest": case.keys,
        "totals": case.keys,
        "window": ("begin", "id"),
        "days": ("day", "id"),
    }.get(case.shape, ())
    newest = case.newest if case.shape == "newest" else None
    if case.sink == "topic":
        return Topic(f"{name}-out")
    if case.sink == "jdbc":
        return Jdbc(name, url=url, key=keys, newest=newest, options={"user": "headrace"})
    if keys:
        parts = chance.choice([(), (), ("id",)]) if "id" in keys else ()
        return Table(name, mode="upsert", key=keys, newest=newest, partition_by=parts)
    return Table(name, format=case.sink)


def _function(case: DrawnStream, where: str) -> Callable[[DataFrame], DataFrame]:
    shape, width, slide = case.shape, case.width, case.slide
    seconds, step = f"{int(width.total_seconds())} seconds", f"{int(slide.total_seconds())} seconds"
    whole = ["id", "key", "t", "n", "x", "d", "born"]
    if case.sink in ("delta", "iceberg", "parquet"):
        whole += ["tags", "sub"]
    totals = ["rows", "sum", "most", "first"]
    case.columns = {
        "rows": whole,
        "newest": whole,
        "totals": [*case.keys, *totals],
        "window": ["begin", "id", *totals],
        "closed": ["begin", "id", *totals],
        "days": ["day", "id", *totals],
        "once": ["id", "key"],
        "once t": ["id", "t"],
    }[shape]
    columns, keys = list(case.columns), case.keys

    def function(rows: DataFrame) -> DataFrame:
        numbers = [F.count("*").alias("rows"), F.sum("n").alias("sum")]
        numbers += [F.max("d").alias("most"), F.min("t").alias("first")]
        rows = rows.where(where)
        if shape == "totals":
            rows = rows.groupBy(*keys).agg(*numbers)
        elif shape == "days":
            rows = by_day(rows, "t", "id").agg(*numbers).select(day().alias("day"), "id", *totals)
        elif shape in ("window", "closed"):
            rows = rows.groupBy(F.window("t", seconds, step), "id").agg(*numbers)
            rows = rows.withColumn("begin", F.col("window.start"))
        elif shape.startswith("once"):
            rows = rows.select(*columns).dropDuplicates(columns)
        return rows.select(*columns)

    return function


# ---- the table, by plain Python


@dataclass(slots=True)
class Wanted:
    rows: list[tuple[Any, ...]]
    bad: set[Place]
    dropped: int = 0  # rows that were too late


def batches(checkpoint: Path, topic: str, partitions: int) -> list[list[Place]]:
    """The places of the records of each batch, by the ends in Spark's checkpoint."""
    files = sorted((int(one.name), one) for one in (checkpoint / "offsets").glob("[0-9]*"))
    assert [number for number, _ in files] == list(range(len(files)))
    before, found = dict.fromkeys(range(partitions), 0), []
    for _, file in files:
        ends = json.loads(file.read_text().splitlines()[-1])[topic]
        found.append([(p, o) for p in before for o in range(before[p], ends[str(p)])])
        before = {p: ends[str(p)] for p in before}
    return found


def wanted(case: DrawnStream, by_batch: Iterable[list[Place]], *, history: bool = False) -> Wanted:
    """`history`: all records are one batch, and nothing is too late."""
    values: dict[Place, bytes | None] = {}
    ends = dict.fromkeys(range(case.partitions), 0)
    for value, partition in (record for part in case.parts for record in part):
        values[partition, ends[partition]] = value
        ends[partition] += 1
    rule, drops, _, number = case.rule.rsplit(" ", 3)
    keeps, passes = RULES[rule][1], FILTERS[FILTER_OF_SEED[int(number)]]

    found = Wanted([], set())
    state = _State(case, history=history)
    for places in by_batch:
        rows = []
        for place in places:
            row = read(values[place], case.zone)
            if row is None or (not keeps(row) and drops == "dead_letter"):
                found.bad.add(place)
            elif keeps(row):
                rows.append({**row, "place": place})
        state.batch(rows, passes)
    found.rows, found.dropped = state.table(), state.dropped
    return found


class _State:
    """What a stream holds between batches, as the guide and Spark's documentation say."""

    def __init__(self, case: DrawnStream, *, history: bool) -> None:
        self.case, self.history = case, history
        self.seen = datetime.min  # the newest event time of the batches before
        self.late = self.closing = datetime.min  # watermarks: for late rows, and to close windows
        self.dropped = 0
        self.appended: list[Row] = []
        self.by_key: dict[Any, Row] = {}
        self.groups: dict[Any, list[Row]] = {}
        self.known: set[Any] = set()

    def batch(self, rows: list[Row], passes: Callable[[Row], bool]) -> None:
        self.late = self.closing
        if self.seen > datetime.min and not self.history:
            self.closing = max(self.closing, _in_ms(self.seen) - self.case.late)
        self.take([row for row in rows if passes(row)])
        self.seen = max([self.seen, *(row["t"] for row in rows)])

    def take(self, rows: list[Row]) -> None:
        case, columns = self.case, self.case.columns
        if case.shape == "rows":
            self.appended += rows
        elif case.shape == "newest":
            for row in rows:
                key = tuple(_same(row[name]) for name in case.keys)
                before = self.by_key.get(key)
                if before is None or self._age(row) >= self._age(before):
                    self.by_key[key] = row
        elif case.shape in ("once", "once t"):
            for row in rows:
                key = tuple(row[name] for name in columns)
                if case.shape == "once t" and row["t"] <= self.late:
                    self.dropped += 1
                elif key not in self.known:
                    self.known.add(key)
                    self.appended.append(row)
        else:
            for row in rows:
                for group, end in self._groups_of(row):
                    if end <= self.late:
                        self.dropped += 1
                    else:
                        self.groups.setdefault(group, []).append(row)

    def _age(self, row: Row) -> tuple[Any, ...]:
        value = row[self.case.newest]
        return (value is not None, value if value is not None else 0, row["place"])

    def _groups_of(self, row: Row) -> list[tuple[Any, datetime]]:
        case = self.case
        if case.shape == "totals":
            return [(tuple(_same(row[name]) for name in case.keys), datetime.max)]
        if case.shape == "days":
            local = row["t"].replace(tzinfo=UTC).astimezone(case.zone).date()
            midnight = datetime.combine(local + timedelta(days=1), datetime.min.time(), case.zone)
            return [((local, row["id"]), midnight.astimezone(UTC).replace(tzinfo=None))]
        begin = datetime(1970, 1, 1) + (row["t"] - datetime(1970, 1, 1)) // case.slide * case.slide
        found = []
        while begin > row["t"] - case.width:
            found.append(((begin, row["id"]), begin + case.width))
            begin -= case.slide
        return found

    def table(self) -> list[tuple[Any, ...]]:
        rows = [*self.appended, *self.by_key.values()]
        found = [tuple(row[name] for name in self.case.columns) for row in rows]
        for group, members in self.groups.items():
            closes = group[0] + self.case.width if self.case.shape == "closed" else None
            if closes is None or self.history or closes <= self.closing:
                found.append((*group, *_totals(members)))
        return found


def _in_ms(at: datetime) -> datetime:
    """Watermarks have milliseconds."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def _same(value: Any) -> Any:
    """As a key: zero has no sign."""
    return value + 0.0 if isinstance(value, float) else value


def _totals(rows: list[Row]) -> tuple[Any, ...]:
    numbers = [row["n"] for row in rows if row["n"] is not None]
    exact = [row["d"] for row in rows if row["d"] is not None]
    return (
        len(rows),
        sum(numbers) if numbers else None,
        max(exact, default=None),
        min(row["t"] for row in rows),
    )


def comparable(rows: Iterable[Iterable[Any]]) -> list[str]:
    """Rows as text, in an order that does not depend on how they were read."""
    return sorted(repr(tuple(_comparable(value) for value in row)) for row in rows)


def _comparable(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    if isinstance(value, Decimal):
        return str(value.normalize() + 0)
    if isinstance(value, float):
        return value + 0.0  # of a group with 0.0 and -0.0 either may be there
    if isinstance(value, list | tuple):
        return tuple(map(_comparable, value))
    return value
