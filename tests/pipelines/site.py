"""A site on a broker: its events, the shipped pipelines over them, and their tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headrace.client.connection import ClientSettings
from headrace.pipelines.shipped import SHIPPED
from headrace.pipelines.shipped.generator import Made
from headrace.pipelines.stream.runner import Runner
from headrace.services.tracking.topics import make_topics
from tests.pipelines import plain_tracking as plain
from tests.pipelines.orders import MASTER, QUICK

BEGIN_MS = 1_767_225_600_000  # 2026-01-01
# Streams beside each other: while one is planned, another computes.
AT_ONCE = 3


@dataclass(slots=True, kw_only=True)
class Unattended(Runner):
    """On a thread, where no signal can be heard."""

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        yield


class Site:
    """A broker with the topics of web tracking, and a folder for tables."""

    def __init__(self, bootstrap: str, data: Path, spark: SparkSession) -> None:
        self.connection = ClientSettings({"bootstrap.servers": bootstrap})
        self.data, self.spark = data, spark
        self.written: dict[str, list[plain.Event]] = {}
        self.notes: list[str] = []
        make_topics(self.connection, partitions=2, settings={"retention.ms": "-1"})
        self.producer = Producer({"bootstrap.servers": bootstrap})

    def write(self, events: Iterable[Made]) -> None:
        for one in events:
            self._write(one.topic, one.value(), one.key, one.arrives_ms)

    def put(self, topic: str, value: plain.Event, arrives_ms: int) -> None:
        self._write(topic, json.dumps(value).encode(), value["visitor"].encode(), arrives_ms)

    def _write(self, topic: str, value: bytes, key: bytes, arrives_ms: int) -> None:
        self.written.setdefault(topic, []).append(json.loads(value))
        self.producer.produce(topic, value, key, timestamp=arrives_ms)
        self.producer.poll(0)

    def runner(self, name: str) -> Runner:
        return Unattended(
            pipeline=SHIPPED[name],
            connection=self.connection,
            data=self.data,
            say=lambda line: None,
            note=self.notes.append,
            master=MASTER,
            spark_settings=QUICK,
        )

    def stream(self, *names: str) -> None:
        assert self.producer.flush(120) == 0
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for done in [threads.submit(self.runner(name).stream, once=True) for name in names]:
                done.result()

    def table(self, name: str) -> list[tuple[Any, ...]]:
        """Of a pipeline, or another one."""
        name = SHIPPED[name].sink.name if name in SHIPPED else name
        place = str(self.data / "tables" / name)
        return in_plain_python(self.spark.read.format("delta").load(place).collect())


def in_plain_python(rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Sorted; moments in milliseconds, days as text."""
    return sorted(tuple(_plain(cell) for cell in row) for row in rows)


def _plain(cell: Any) -> Any:
    if isinstance(cell, datetime):
        return round(cell.timestamp() * 1000)
    return cell.isoformat() if isinstance(cell, date) else cell
