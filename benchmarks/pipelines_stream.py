"""A shipped pipeline as a user runs it, and page views for it: what benchmarks share.

The stream is `headrace pipeline run NAME` in a process of its own, from the environment of `make
pipelines`; how far it is stands in its folder. Views are JSON of about 250 bytes with ids as a
browser makes them, sent by the benchmark itself: one request at a time, its records at once in all
the partitions it names, so that a request is never split between two micro-batches by us.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from headrace.wire.contract.tracking import PAGE_VIEW, time_text
from headrace.wire.protocol.messages import produce
from headrace.wire.protocol.record_batch import Record, build

from . import wire
from .brokers import HOST, Broker
from .pipelines import PYTHON

TOPIC = PAGE_VIEW.topic
PARTITIONS = 4
PAGES = ("/", "/products/lamp", "/products/chair", "/cart", "/blog/light")
DAY_MS = 86_400_000
LOOK_EVERY_S = 0.02
STOP_WITHIN_S = 60.0


class Stream:
    """The process of `headrace pipeline run`, and what it left in its folder."""

    def __init__(
        self, name: str, broker: Broker, folder: Path, settings: Mapping[str, str]
    ) -> None:
        if not PYTHON.exists():
            raise SystemExit("Spark's environment is missing: run `make pipelines` once.")
        self.name, self.data = name, folder / "pipelines"
        self.state = self.data / "state" / name
        self.log = folder / "stream.log"
        program = [str(PYTHON.with_name("headrace")), "pipeline", "run", name]
        where = ["--bootstrap", f"{HOST}:{broker.port}", "--data", str(self.data)]
        given = [f"--spark={key}={value}" for key, value in settings.items()]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*program, *where, *given], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def progress(self) -> dict[str, Any]:
        """Of the last batch that had rows; empty before the first."""
        return self._json("progress.json")

    def spark(self) -> int:
        """The process that computes."""
        return int(self._json("spark.json")["process"])

    def _json(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.state / name).read_text())
        except FileNotFoundError:
            return {}
        return found

    def wait_until(self, true: Callable[[], bool], what: str, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while not true():
            ended = self.process.poll() is not None
            if ended or time.monotonic() > deadline:
                why = "ended" if ended else f"did not in {within_s:.0f} s"
                said = self.log.read_text(errors="replace")[-4000:]
                raise RuntimeError(f"{self.name}, {what}: it {why}:\n{said}")
            time.sleep(LOOK_EVERY_S)

    def wait_for_rows(self, rows: int, within_s: float) -> dict[str, Any]:
        """Until so many were taken since the checkpoint began; the last batch."""
        self.wait_until(
            lambda: self.progress().get("rows_total", 0) >= rows, f"{rows:,} rows", within_s
        )
        return self.progress()

    def stop(self) -> None:
        """SIGTERM, as `headrace pipeline stop` does it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.stop()


class Views:
    """Sends page views; knows how many each partition holds."""

    def __init__(self, broker: Broker, topic: str = TOPIC, partitions: int = PARTITIONS) -> None:
        self.topic, self.held = topic, [0] * partitions
        self._connection: socket.socket = wire.connect(broker.port)
        wire.create_topics_with(self._connection, [topic], partitions=partitions)

    @property
    def sent(self) -> int:
        return sum(self.held)

    def send(self, by_partition: Mapping[int, Sequence[Record]]) -> None:
        """All in one request; returns when it is acknowledged."""
        parts = [
            produce.PartitionProduceData(index=partition, records=build(records))
            for partition, records in by_partition.items()
        ]
        data = [produce.TopicProduceData(name=self.topic, partition_data=parts)]
        request = produce.ProduceRequest(
            acks=wire.ACKS_ALL, timeout_ms=wire.REQUEST_TIMEOUT_MS, topic_data=data
        )
        reply = wire.ask(self._connection, produce, wire.PRODUCE_VERSION, request)
        for answer in reply.responses[0].partition_responses:
            wire.succeed(answer.error_code, "produce")
            if answer.base_offset != self.held[answer.index]:
                raise AssertionError(f"partition {answer.index} began at {answer.base_offset}")
            self.held[answer.index] += len(by_partition[answer.index])

    def spread(self, records: Sequence[Record]) -> None:
        """All in one request, the same number into each partition."""
        count = len(self.held)
        self.send({partition: records[partition::count] for partition in range(count)})

    def close(self) -> None:
        self._connection.close()


def view(number: int, visitor: int, at_ms: int) -> Record:
    """As the collector writes it."""
    who = f"{visitor * 2654435761 % (1 << 32):08x}-5a1c-4d2e-8f00-{visitor:012x}"
    value = (
        f'{{"id":"{number:08x}-77aa-4b1c-9d00-{number:012x}","visitor":"{who}",'
        f'"time":"{time_text(at_ms)}","page":"{PAGES[number % len(PAGES)]}",'
        f'"since":"{time_text(at_ms - visitor % 30 * DAY_MS)[:10]}",'
        f'"title":"A shop of lamps and chairs","referrer":"https://search.example/"}}'
    )
    return Record(who.encode(), value.encode(), timestamp=at_ms)


def size_on_disk(folder: Path) -> int:
    """Bytes of all files; those that go meanwhile are left out."""
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size if path.is_file() else 0
    return size
