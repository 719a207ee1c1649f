"""Streams drawn from seeds, with late rows, upserts and kills: the table is what Python computes.

A few seeds run always, `make drawn-pipelines` runs more.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.consumer.fetched import headers_of
from headrace.pipelines.declaration import Topic
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.sinks.writer import Writer
from headrace.pipelines.stream.dead_letters import DeadLetters
from headrace.pipelines.stream.folder import Folder
from headrace.pipelines.stream.runner import Runner
from headrace.pipelines.stream.span import parse
from tests.pipelines.conftest import Run
from tests.pipelines.drawn_streams import (
    WRITTEN_MS,
    DrawnStream,
    Record,
    batches,
    comparable,
    drawn,
    wanted,
)
from tests.pipelines.killing import everything
from tests.pipelines.orders import forget_last_batch
from tests.pipelines.seeds import seeds
from tests.services.servers import Postgres

pytestmark = pytest.mark.timeout(7200)

KILLED = "killed by the test"


def put(bootstrap: str, topic: str, part: list[Record]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value, partition in part:
        producer.produce(topic, value, partition=partition, timestamp=WRITTEN_MS)
    assert producer.flush(60) == 0


@contextmanager
def killed(
    how: str, chance: random.Random, runner: Runner, patch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Ends a run at a batch: before its rows are written, after that, after its dead letters too,
    or by a stop that interrupts it somewhere."""
    left = chance.randint(0, 2)  # batches until then
    write, bury = Writer.write, DeadLetters.write

    def due() -> bool:
        nonlocal left
        left -= 1
        return left == -1

    def written(self: Writer, *given: Any) -> None:
        if how == "interrupted" and due():
            threading.Timer(chance.uniform(0, 0.6), setattr, (runner, "stopping", True)).start()
        if how == "before" and due():
            raise PipelineError(KILLED)
        write(self, *given)
        if how == "after" and due():
            raise PipelineError(KILLED)

    def buried(self: DeadLetters, *given: Any) -> None:
        bury(self, *given)
        if how == "letters" and due():
            raise PipelineError(KILLED)

    with patch.context() as patched:
        patched.setattr(Writer, "write", written)
        patched.setattr(DeadLetters, "write", buried)
        yield


def stream(case: DrawnStream, run: Run, how: str, patch: pytest.MonkeyPatch) -> None:
    runner = run(case.made)
    with killed(how, random.Random(case.seed), runner, patch):
        try:
            runner.stream(once=True)
        except PipelineError as ended:
            if KILLED not in str(ended):
                raise
    commits = Folder(run.data, case.made.name).checkpoint / "commits"
    if how == "forgotten" and any(commits.glob("[0-9]*")):
        forget_last_batch(run.data, case.made.name)


def held(
    case: DrawnStream, spark: SparkSession, name: str, data: Path, bootstrap: str, at: Postgres
) -> list[str]:
    """The rows of the sink as it is now."""
    columns = case.columns
    if case.sink == "jdbc":
        names = ", ".join(f'"{one}"' for one in columns)
        with psycopg.connect(f"postgresql://headrace@{at.place}") as database:
            return comparable(database.execute(f'SELECT {names} FROM "{name}"').fetchall())
    if case.sink == "topic":
        return comparable(_sent(case, f"{name}-out", bootstrap))
    place = data / "tables" / name
    if not place.exists():
        return []
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    rows = spark.read.format(case.sink).load(str(place)).select(*columns).collect()
    return comparable(rows)


def _sent(case: DrawnStream, topic: str, bootstrap: str) -> list[tuple[Any, ...]]:
    """Each record once: a batch that is repeated has the same ids."""
    by_id = {}
    for one in everything(bootstrap, topic):
        headers = dict(headers_of(one))
        by_id[headers["headrace-message-id"]] = json.loads(one.value(), parse_float=Decimal)
    kinds: dict[str, Callable[[str], Any]] = {
        "t": datetime.fromisoformat,
        "begin": datetime.fromisoformat,
    }
    kinds |= {"first": datetime.fromisoformat, "x": float, "d": Decimal, "most": Decimal}
    kinds["born"] = lambda text: datetime.fromisoformat(text).date()
    return [
        tuple(
            None if value[name] is None else kinds.get(name, lambda one: one)(value[name])
            for name in case.columns
        )
        for value in by_id.values()
    ]


@pytest.mark.parametrize("seed", seeds(1, 2, 3))
def test_the_table_of_a_drawn_stream_is_what_python_computes(
    seed: int,
    spark: SparkSession,
    connection: ClientSettings,
    run: Run,
    tmp_path: Path,
    postgres: Postgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"drawn-{seed}"
    case = drawn(seed, name, f"jdbc:postgresql://{postgres.place}")
    Topics(connection).create(name, partitions=case.partitions, settings={"retention.ms": "-1"})
    for part, how in zip(case.parts, case.kills, strict=True):
        put(connection.bootstrap, name, part)
        stream(case, run, how, monkeypatch)
    stream(case, run, "", monkeypatch)

    folder = Folder(tmp_path, name)
    by_batch = batches(folder.checkpoint, name, case.partitions)
    should = wanted(case, by_batch)
    sent = sum(map(len, case.parts))
    assert sum(map(len, by_batch)) == sent, case.said
    assert held(case, spark, name, tmp_path, connection.bootstrap, postgres) == comparable(
        should.rows
    ), case.said
    letters = {
        dict(headers_of(one))["headrace-message-id"].decode().partition("@")[0]
        for one in everything(connection.bootstrap, case.made.dead_topic)
    }
    assert letters == {f"{name}/{p}/{o}" for p, o in should.bad}, case.said
    if not isinstance(case.made.sink, Topic):
        run(case.made).history(parse(".."), into=f"{name}-history")
        whole = wanted(case, [[place for batch in by_batch for place in batch]], history=True)
        found = held(case, spark, f"{name}-history", tmp_path, connection.bootstrap, postgres)
        assert found == comparable(whole.rows), f"{case.said}: history"
