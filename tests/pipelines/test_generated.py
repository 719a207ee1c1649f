"""Pipelines and records made up from seeds: stream, history and plain Python make the same table.

Of some the topic is then deleted and made anew: the checkpoint is refused, and after a reset the
table is the same again.
A few seeds that were chosen for their different ends run always; `PIPELINE_SEEDS=100` runs so many
from `PIPELINE_SEED` on. A seed that fails is its own report: run it again with `PIPELINE_SEED=n`.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.stream.folder import Folder
from headrace.pipelines.stream.span import parse
from tests.pipelines.conftest import Run
from tests.pipelines.generated import PARTITIONS, Case, case
from tests.pipelines.orders import forget_last_batch, read
from tests.pipelines.seeds import seeds

pytestmark = pytest.mark.timeout(7200)

# Rows by key, a window, each value once: with joins, a union, repeats.
SEEDS = seeds(3, 18, 24)


def make(connection: ClientSettings, topic: str) -> None:
    Topics(connection).create(topic, partitions=PARTITIONS, settings={"retention.ms": "-1"})


def put(connection: ClientSettings, topic: str, part: list[tuple[bytes, int]], first: int) -> None:
    producer = Producer({"bootstrap.servers": connection.bootstrap})
    for number, (value, at_ms) in enumerate(part, first):
        producer.produce(topic, value, partition=number % PARTITIONS, timestamp=at_ms)
    assert producer.flush(60) == 0


def held(spark: SparkSession, place: Path, columns: list[str]) -> list[tuple[Any, ...]]:
    rows = spark.read.format("delta").load(str(place)).select(*columns).collect()
    found = [tuple(_plain(value) for value in row) for row in rows]
    return sorted(found, key=str)


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


@pytest.mark.parametrize("seed", SEEDS)
def test_stream_history_and_plain_python_agree(
    seed: int, spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = f"generated-{seed}"
    make(connection, topic)
    one: Case = case(seed, topic)
    first = 0
    for part in one.parts:
        put(connection, topic, part, first)
        first += len(part)
        runner = run(one.made)
        runner.stream(once=True)
        if one.repeats and Folder(tmp_path, topic).checkpoint.exists():
            forget_last_batch(tmp_path, topic)
    if one.repeats:
        runner = run(one.made)
        runner.stream(once=True)  # what was forgotten last
    run(one.made).history(parse(".."), into=f"{topic}-history")

    said = f"seed {seed}: {' | '.join(one.steps)} | {one.shape}"
    assert held(spark, tmp_path / "tables" / topic, one.columns) == one.wanted, said
    assert held(spark, tmp_path / "tables" / f"{topic}-history", one.columns) == one.wanted, said
    letters = read(connection.bootstrap, one.made.dead_topic, runner.dead)
    places = Counter(letter["headrace-message-id"].decode() for letter in letters)
    assert len(places) == one.bad, said
    assert one.repeats or runner.dead == one.bad, (said, letters)
    if one.anew:
        assert_that_the_topic_is_known_to_be_another(one, spark, connection, run, tmp_path)


def assert_that_the_topic_is_known_to_be_another(
    one: Case, spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    """Its offsets mean other records: nothing is written of them until the pipeline begins anew,
    and then all of them are."""
    topic, said = one.made.name, f"seed {one.seed}, made anew"
    Topics(connection).delete(topic)
    make(connection, topic)
    put(connection, topic, [record for part in one.parts for record in part], 0)
    with pytest.raises(PipelineError, match=f"{topic} was deleted and created again"):
        run(one.made).stream(once=True)
    assert held(spark, tmp_path / "tables" / topic, one.columns) == one.wanted, said
    Folder(tmp_path, topic).reset(table=True)
    again = run(one.made)
    again.stream(once=True)
    assert held(spark, tmp_path / "tables" / topic, one.columns) == one.wanted, said
    assert again.dead == one.bad, said  # those of the topic before are not counted
