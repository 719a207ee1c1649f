"""Small pipelines and their records, made up from a seed, for Spark and for plain Python.

A pipeline is a few steps row by row (select, filter, join with a table, union with a part of it)
and an end: rows appended, rows replaced by key, a window with totals, or each value once. Records
come late, twice, with nulls, in text and numbers, and some are no rows. Nothing is too late here:
`late` is longer than all times lie apart, so that stream and history must be equal.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.pipelines import Table, Topic, pipeline
from headrace.pipelines.declaration import Pipeline

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "id LONG NOT NULL, key STRING, t TIMESTAMP NOT NULL, n LONG"
NAMES = [("a", "Ada"), ("b", "Ben"), ("b", "Bob"), ("d", "Dora")]  # b twice, and no c
PARTITIONS = 2
BAD = (b"{", b"null", b'{"id": "x"}', b'{"id": 1, "t": "10:15:00"}', b"[]", b'{"id": 1, "t": 12}')

Row = dict[str, Any]
Step = tuple[str, Callable[[DataFrame], DataFrame], Callable[[list[Row]], list[Row]]]


@dataclass(slots=True)
class Case:
    """What is run and what must come out; `parts` are the records of each run of the stream."""

    seed: int
    shape: str
    made: Pipeline
    parts: list[list[tuple[bytes, int]]]  # value and time of each record; its number is its place
    wanted: list[tuple[Any, ...]]
    columns: list[str]
    bad: int
    repeats: bool  # the last batch of a run is done again by the next one
    anew: bool  # the topic is deleted and made anew at the end, with the same records
    steps: list[str] = field(default_factory=list)


def case(seed: int, topic: str) -> Case:
    chance = random.Random(seed)
    values = [_record(chance) for _ in range(chance.randint(15, 30))]
    steps = [_step(chance) for _ in range(chance.randint(0, 3))]
    shape = chance.choice(["append", "newest", "window", "once"])
    if shape == "newest" and any(name.startswith("and again") for name, _, _ in steps):
        shape = "append"  # such rows have no place of a record that could decide
    rows = _good(values)
    for _, _, plain in steps:
        rows = plain(rows)
    end, columns, wanted = _end(shape, rows)

    per_batch = chance.choice([None, 15])
    source = Topic(topic, schema=SCHEMA, event_time="t", late="9000 days", per_batch=per_batch)
    sink = {
        "append": Table(topic),
        "newest": Table(topic, mode="upsert", key="id", newest="t"),
        "window": Table(topic, mode="upsert", key=("hour", "key")),
        "once": Table(topic),
    }[shape]

    @pipeline(source=source, sink=sink, name=topic)
    def made(frame: DataFrame) -> DataFrame:
        for _, spark, _ in steps:
            frame = spark(frame)
        return end(frame)

    cut = [chance.randint(1, len(values) - 1)]  # the stream is started twice
    places = list(enumerate(values))
    parts = [places[a:b] for a, b in zip([0, *cut], [*cut, len(values)], strict=True)]
    return Case(
        seed=seed,
        shape=shape,
        made=made,
        parts=[[value for _, value in part] for part in parts],
        wanted=sorted(wanted, key=str),
        columns=columns,
        bad=sum(1 for value, _ in values if value in BAD or b'"t"' not in value),
        repeats=chance.random() < 0.5,
        anew=chance.random() < 0.3,
        steps=[name for name, _, _ in steps],
    )


# ---- records


def _record(chance: random.Random) -> tuple[bytes, int]:
    at = BEGAN + timedelta(minutes=chance.randint(0, 600))
    written_ms = int((BEGAN + timedelta(minutes=600)).timestamp() * 1000)
    if chance.random() < 0.15:
        return chance.choice(BAD), written_ms
    value: Row = {"id": chance.randint(0, 9), "n": chance.choice([None, *range(-5, 6)])}
    value["key"] = chance.choice(["a", "b", "c", "d", None])
    if chance.random() < 0.5:
        value["t"] = int(at.timestamp() * 1000)
    else:
        value["t"] = at.astimezone().isoformat() if chance.random() < 0.5 else at.isoformat()
    if chance.random() < 0.1:
        del value["n"]
    if chance.random() < 0.1:
        value["more"] = {"n": 1}
    return json.dumps(value).encode(), written_ms


def _good(values: list[tuple[bytes, int]]) -> list[Row]:
    """As rows, with the place of their record."""
    rows = []
    for number, (value, _) in enumerate(values):
        if value in BAD:
            continue
        found = json.loads(value)
        t = found["t"]
        at = (
            datetime.fromtimestamp(t / 1000, UTC)
            if isinstance(t, int)
            else datetime.fromisoformat(t).astimezone(UTC)
        )
        row = {"id": found["id"], "key": found["key"], "t": at.replace(tzinfo=None)}
        place = (number % PARTITIONS, number // PARTITIONS)
        rows.append({**row, "n": found.get("n"), "place": place})
    return rows


# ---- steps


def _names(frame: DataFrame) -> DataFrame:
    return frame.sparkSession.createDataFrame(NAMES, "key STRING, name STRING")


def _step(chance: random.Random) -> Step:
    sort = chance.choice(["filter", "select", "inner", "left", "anti", "semi", "union"])
    number = chance.randint(-3, 3)
    if sort == "filter":
        return (
            f"n > {number}",
            lambda frame: frame.where(f"n > {number}"),
            lambda rows: [one for one in rows if one["n"] is not None and one["n"] > number],
        )
    if sort == "select":
        return (
            f"n * 2 + {number}",
            lambda frame: frame.withColumn("n", F.col("n") * 2 + number),
            lambda rows: [
                {**one, "n": None if one["n"] is None else one["n"] * 2 + number} for one in rows
            ],
        )
    if sort == "union":
        return (
            f"and again where n < {number}",
            lambda frame: frame.unionByName(frame.where(f"n < {number}")),
            lambda rows: (
                rows + [dict(one) for one in rows if one["n"] is not None and one["n"] < number]
            ),
        )
    if sort in ("anti", "semi"):
        known = {key for key, _ in NAMES}
        return (
            f"{sort} join",
            lambda frame: frame.join(_names(frame), "key", f"left_{sort}").select(*frame.columns),
            lambda rows: [one for one in rows if (one["key"] in known) == (sort == "semi")],
        )

    def joined(rows: list[Row]) -> list[Row]:
        found = []
        for one in rows:
            names = [name for key, name in NAMES if key == one["key"]]
            if sort == "left" and not names:
                names = [""]
            found += [{**one, "id": one["id"] + len(name)} for name in names]
        return found

    def on_spark(frame: DataFrame) -> DataFrame:
        both = frame.join(_names(frame), "key", sort)
        size = F.coalesce(F.length("name"), F.lit(0))
        return both.withColumn("id", F.col("id") + size).select(*frame.columns)

    return f"{sort} join", on_spark, joined


# ---- ends


def _end(
    shape: str, rows: list[Row]
) -> tuple[Callable[[DataFrame], DataFrame], list[str], list[tuple[Any, ...]]]:
    if shape == "append":
        columns = ["id", "key", "t", "n"]
        return (
            lambda frame: frame.select(*columns),
            columns,
            [tuple(one[name] for name in columns) for one in rows],
        )
    if shape == "newest":
        # Where one record makes two rows of a key, they differ in nothing that is looked at.
        columns = ["id", "t"]
        last: dict[int, Row] = {}
        for one in rows:
            before = last.setdefault(one["id"], one)
            if (one["t"], one["place"]) >= (before["t"], before["place"]):
                last[one["id"]] = one
        wanted = [(one["id"], one["t"], *one["place"]) for one in last.values()]
        return lambda frame: frame.select("id", "t"), [*columns, *PLACE], wanted
    if shape == "once":
        columns = ["id", "key"]
        return (
            lambda frame: frame.select(*columns).dropDuplicates(columns),
            columns,
            list({(one["id"], one["key"]) for one in rows}),
        )
    groups: dict[tuple[Any, Any], list[int | None]] = {}
    for one in rows:
        hour = one["t"].replace(minute=0, second=0)
        groups.setdefault((hour, one["key"]), []).append(one["n"])

    def totals(frame: DataFrame) -> DataFrame:
        made = frame.groupBy(F.window("t", "1 hour"), "key").agg(
            F.count("*").alias("rows"), F.sum("n").alias("sum"), F.max("n").alias("most")
        )
        return made.select(F.col("window.start").alias("hour"), "key", "rows", "sum", "most")

    def total(numbers: list[int | None]) -> tuple[Any, ...]:
        known = [one for one in numbers if one is not None]
        return (len(numbers), sum(known) if known else None, max(known, default=None))

    columns = ["hour", "key", "rows", "sum", "most"]
    return totals, columns, [(*group, *total(numbers)) for group, numbers in groups.items()]


PLACE = ["_record_partition", "_record_offset"]
