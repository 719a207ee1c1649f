"""Spark's Kafka connector: batch and streaming source, and sink."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.interop.brokers import Node
from tests.interop.ecosystem import FOLDER, spark_jars, spark_python
from tests.interop.topics import create_topic

PARTITIONS = 4
BEGAN_MS = 1_700_000_000_000
STEP_MS = 1_000

Row = dict[str, Any]


class Spark:
    """A Spark of its own process, started on first use; it remembers only what it checkpoints."""

    def __init__(self, broker: Node, folder: Path) -> None:
        self.folder = folder
        self._where = [broker.bootstrap, str(spark_jars()), str(folder / "checkpoints")]
        self._process: subprocess.Popen[str] | None = None

    def ask(self, do: str, **what: Any) -> Any:
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"do": do, **what}) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, (self.folder / "spark.log").read_text(errors="replace")[-6000:]
        return json.loads(answer)

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            command = [str(spark_python()), str(FOLDER / "spark_words.py"), *self._where]
            with (self.folder / "spark.log").open("ab") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=self.folder,
                    text=True,
                )
        return self._process

    def end(self) -> None:
        """It ends by itself, and its JVM with it, when it hears nothing more."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(400)
            finally:
                self._process.kill()
            self._process = None


@pytest.fixture(scope="module")
def spark(broker: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    one = Spark(broker, tmp_path_factory.mktemp("spark"))
    yield one
    one.end()


def put(producer: Producer, topic: str, numbers: range) -> None:
    for n in numbers:
        producer.produce(
            topic,
            f"word {n}".encode(),
            f"key {n}".encode(),
            partition=n % PARTITIONS,
            timestamp=BEGAN_MS + n * STEP_MS,
            headers=[("n", str(n).encode())],
        )


@pytest.fixture
def words(broker: Node) -> str:
    """A topic with 200 records."""
    topic = create_topic(broker.bootstrap, "spark", partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    put(producer, topic, range(200))
    assert producer.flush(60) == 0
    return topic


def numbers(rows: list[Row]) -> list[int]:
    return sorted(int(row["value"].split()[1]) for row in rows)


def test_a_batch_is_the_whole_topic_or_what_lies_between_two_places(
    spark: Spark, words: str
) -> None:
    whole = spark.ask("batch", options={"subscribe": words, "includeHeaders": "true"})
    assert whole == [
        {
            "partition": number,
            "offset": offset,
            "timestamp": BEGAN_MS + n * STEP_MS,
            "key": f"key {n}",
            "value": f"word {n}",
            "headers": [f"n={n}"],
        }
        for number in range(PARTITIONS)
        for offset, n in enumerate(range(number, 200, PARTITIONS))
    ]

    begin = json.dumps({words: {"0": 10, "1": -2, "2": 50, "3": 49}})
    end = json.dumps({words: {"0": 12, "1": 1, "2": -1, "3": -1}})
    options = {"subscribe": words, "startingOffsets": begin, "endingOffsets": end}
    assert numbers(spark.ask("batch", options=options)) == [1, 40, 44, 199]

    since = str(BEGAN_MS + 190 * STEP_MS - 1)
    pattern = words.replace("spark", "sp[a-c]rk")
    options = {"subscribePattern": pattern, "startingTimestamp": since}
    assert numbers(spark.ask("batch", options=options)) == list(range(190, 200))


def test_a_stream_goes_on_at_its_checkpoint_when_spark_starts_again(
    broker: Node, spark: Spark, words: str
) -> None:
    options = {
        "subscribe": words,
        "startingTimestamp": str(BEGAN_MS + 100 * STEP_MS),
        "maxOffsetsPerTrigger": "40",
    }
    batches = spark.ask("stream", options=options, name=words)
    assert numbers([row for batch in batches for row in batch]) == list(range(100, 200))
    assert len(batches) > 2, "the limit per batch was not kept"

    spark.end()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    put(producer, words, range(200, 230))
    assert producer.flush(60) == 0
    (batch,) = spark.ask("stream", options=options, name=words)
    assert numbers(batch) == list(range(200, 230))


def test_a_stream_of_committed_records_sees_no_other(broker: Node, spark: Spark) -> None:
    topic = create_topic(broker.bootstrap, "spark-committed", partitions=PARTITIONS)
    writes = {"bootstrap.servers": broker.bootstrap, "transactional.id": f"writes-{topic}"}
    producer = Producer(writes | {"transaction.timeout.ms": 600_000})  # Spark looks at an open one
    producer.init_transactions(60)
    for first in range(0, 120, 20):
        producer.begin_transaction()
        put(producer, topic, range(first, first + 20))
        producer.flush(60)
        if first % 40:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    producer.begin_transaction()
    put(producer, topic, range(120, 140))
    assert producer.flush(60) == 0

    options = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    }
    committed = [*range(20), *range(40, 60), *range(80, 100)]
    (batch,) = spark.ask("stream", options=options, name=topic)
    assert numbers(batch) == committed
    assert numbers(spark.ask("batch", options=options)) == committed
    dirty = options | {"kafka.isolation.level": "read_uncommitted"}
    assert numbers(spark.ask("batch", options=dirty)) == list(range(140))

    producer.commit_transaction(60)
    (batch,) = spark.ask("stream", options=options, name=topic)
    assert numbers(batch) == list(range(120, 140))


def test_the_sink_writes_tables_and_streams(broker: Node, spark: Spark, words: str) -> None:
    sink = create_topic(broker.bootstrap, "spark-sink", partitions=PARTITIONS)
    spark.ask("write", words=[[f"k{n}", f"table {n}"] for n in range(50)], sink=sink)
    whole = spark.ask("batch", options={"subscribe": sink})
    assert sorted((row["key"], row["value"]) for row in whole) == sorted(
        (f"k{n}", f"table {n}") for n in range(50)
    )

    copy = create_topic(broker.bootstrap, "spark-copy", partitions=PARTITIONS)
    options = {"subscribe": words, "startingOffsets": "earliest"}
    spark.ask("copy", options=options, name=copy, sink=copy)
    found = spark.ask("batch", options={"subscribe": copy})
    assert [(row["partition"], row["key"], row["value"]) for row in found] == [
        (number, f"key {n}", f"WORD {n}")
        for number in range(PARTITIONS)
        for n in range(number, 200, PARTITIONS)
    ]
