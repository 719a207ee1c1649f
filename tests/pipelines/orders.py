"""What the tests of pipelines share: orders by the hour, topics for them, looking at results."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from pyspark.sql import DataFrame, SparkSession

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.pipelines import Topic, pipeline
from headrace.pipelines.declaration import Pipeline, Sink
from headrace.pipelines.stream.folder import Folder

# It runs for seconds on tables of a few rows: compiling well costs more than it gives, and so does
# looking again at each class of Spark's own (3 of 23 s of processor time of a small run). Java that
# compiles quickly only has 48 MB for what it compiled: a session of many tests fills them, and then
# throws code away and compiles it again, a fifth of its processor time (24 of 105 s at its end).
JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:ReservedCodeCacheSize=256m -XX:-UseCodeCacheFlushing"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
QUICK = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}
MASTER = "local[2]"

BEGAN_MS = 1_767_225_600_000  # 2026-01-01
HOUR_MS = 3_600_000
SCHEMA = "id LONG NOT NULL, time TIMESTAMP NOT NULL, amount LONG NOT NULL"


def order(n: int) -> dict[str, Any]:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime((BEGAN_MS + n * HOUR_MS) / 1000))
    return {"id": n, "time": at, "amount": n % 7}


def put(bootstrap: str, topic: str, values: list[bytes | None], first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for n, value in enumerate(values, first):
        when = BEGAN_MS + n * HOUR_MS
        producer.produce(topic, value, b"%d" % n, partition=n % 2, timestamp=when)
    assert producer.flush(120) == 0


def orders(bootstrap: str, topic: str, numbers: range) -> None:
    put(bootstrap, topic, [json.dumps(order(n)).encode() for n in numbers], numbers.start)


def new_topic(connection: ClientSettings, name: str) -> str:
    # The records carry made-up times; retention by time would remove them.
    Topics(connection).create(name, partitions=2, settings={"retention.ms": "-1"})
    return name


def rows_into(sink: Sink, topic: str, **source: Any) -> Pipeline:
    """Each order is a row: nothing is kept from batch to batch."""

    @pipeline(source=Topic(topic, schema=SCHEMA, per_batch=40, **source), sink=sink, name=topic)
    def everything(rows: DataFrame) -> DataFrame:
        return rows.select("id", "amount")

    return everything


def table(spark: SparkSession, path: Path | str, form: str = "delta") -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.format(form).load(str(path)).collect())


def expected(numbers: range) -> list[tuple[int, int]]:
    return [(n, n % 7) for n in numbers]


def forget_last_batch(data: Path, name: str) -> int:
    """As if the process had been killed after writing and before its checkpoint."""
    commits = Folder(data, name).checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last


def read(bootstrap: str, topic: str, count: int, within_s: float = 120) -> list[dict[str, Any]]:
    """The first records of a topic: their headers, and `key` and `value`."""
    settings = {"group.id": f"look-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe([topic])
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + within_s
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            whole = {"key": message.key(), "value": message.value()}
            found.append(dict(message.headers() or []) | whole)
    consumer.close()
    return found
