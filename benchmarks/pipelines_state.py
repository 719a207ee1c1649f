"""What do a million open sessions cost, in memory, on disk and in each batch?

The shipped pipeline `sessions` (a session window by visitor with a gap of 30 minutes) runs as a
stream. A view of each new visitor opens a session, and none closes while it is measured. At
100,000, 500,000 and 1,000,000 open sessions: what Spark says its state holds, Java's heap after a
collection, the checkpoint's bytes, and how long a batch of 10,000 views takes that belong to open
sessions (median of three). Then the process is stopped and started again: its first batch has to
read the state from the checkpoint.

Once with Spark's own state store, which holds everything in Java's heap, once with RocksDB and its
changelog. Java gets 4 GB. This is about Spark; the broker only serves the topic.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median

from .benchmark import Benchmark, Run
from .brokers import Broker
from .pipelines_stream import Stream, Views, size_on_disk, view
from .processes import memory
from .results import HEADRACE, Row, Samples

NAME = "sessions"
JAVA_MEMORY = "4g"
STATE_STORE = "spark.sql.streaming.stateStore"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STORES: dict[str, dict[str, str]] = {
    "heap": {},
    "RocksDB": {
        f"{STATE_STORE}.providerClass": ROCKSDB,
        f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    },
}
LEVELS = ("100,000", "500,000", "1,000,000")
SMALL_BATCHES = 3
REQUEST = 10_000  # records; 2,500 in each partition stay below the largest batch allowed
WITHIN_S = 300.0
USED_HEAP = re.compile(r"heap\s+total \d+K, used (\d+)K")


def measure(run: Run) -> Samples:
    samples: Samples = {row.key: [] for row in ROWS}
    for store, settings in STORES.items():
        # Each store begins with an empty topic, as it would read what the first one was sent.
        with run.target.start() as broker:
            folder = run.target.folder / store
            folder.mkdir()
            Growth(run, broker, folder, store, settings, samples).measure()
            broker.stop()
        _forget(run)
    return samples


def _forget(run: Run) -> None:
    """The broker's data; Apache Kafka is not asked here, so nothing is to be formatted."""
    aside = run.target.folder / f"data-{time.monotonic_ns()}"
    run.target.data.rename(aside)


class Growth:
    """One store from no session to the most."""

    def __init__(
        self,
        run: Run,
        broker: Broker,
        folder: Path,
        store: str,
        settings: dict[str, str],
        samples: Samples,
    ) -> None:
        self.run, self.broker, self.folder = run, broker, folder
        self.store, self.samples = store, samples
        self.settings = {"spark.driver.memory": JAVA_MEMORY, **settings}
        self.views = Views(broker)
        self.visitors = 0
        self.chance = Random(store)

    def measure(self) -> None:
        with self._stream() as stream:
            for number, level in enumerate(LEVELS):
                full = int(level.replace(",", ""))
                self._open(stream, self.run.count(full, full // 100))
                self._note(stream, number)
        with self._stream() as stream:
            # Behind what was sent: the start of Java is no part of a batch.
            self.samples[f"{self.store} restart"].append(self._small_batch(stream))
        self.views.close()

    def _stream(self) -> Stream:
        return Stream(NAME, self.broker, self.folder, self.settings)

    def _open(self, stream: Stream, sessions: int) -> None:
        began = time.perf_counter()
        before = self.visitors
        for visitors in _pieces(self.visitors, sessions):
            now = _now_ms()
            self.views.spread([view(number, number, now) for number in visitors])
        self.visitors = sessions
        done = stream.wait_for_rows(self.views.sent, WITHIN_S)
        took_s = time.perf_counter() - began
        if done["state_rows"] != sessions:
            found = f"{done['state_rows']:,} rows of state"
            self.run.warnings.append(f"{self.store}: {found} for {sessions:,} sessions")
        self.run.details.append(
            f"{self.store}: {sessions - before:,} sessions opened in {took_s:.1f} s; the last batch"
            f" {done['rows']:,} rows in {done['took_ms']:,} ms"
        )

    def _note(self, stream: Stream, number: int) -> None:
        took = [self._small_batch(stream) for _ in range(SMALL_BATCHES)]
        state_mb = stream.progress()["state_bytes"] / 1e6
        heap_mb = used_heap_mb(stream.spark())
        found = {
            "batch": median(took),
            "state": state_mb,
            "checkpoint": size_on_disk(stream.state / "checkpoint") / 1e6,
            "resident": memory(stream.spark()).resident_mb,
        }
        for what, value in found.items():
            self.samples[f"{self.store} {what} {number}"].append(value)
        if heap_mb is not None:
            self.samples[f"{self.store} heap {number}"].append(heap_mb)

    def _small_batch(self, stream: Stream) -> float:
        """Seconds for one that belongs to sessions that are open."""
        size = self.run.count(REQUEST, REQUEST // 100)
        now, first = _now_ms(), self.views.sent
        chosen = (self.chance.randrange(self.visitors) for _ in range(size))
        self.views.spread([view(first + n, who, now) for n, who in enumerate(chosen)])
        done = stream.wait_for_rows(self.views.sent, WITHIN_S)
        if done["rows"] != size:
            self.run.warnings.append(f"{self.store}: {size:,} views came in more than one batch")
        return float(done["took_ms"]) / 1000


def _pieces(begin: int, end: int) -> Iterator[range]:
    """Requests of at most so many."""
    return (range(at, min(at + REQUEST, end)) for at in range(begin, end, REQUEST))


def used_heap_mb(java: int) -> float | None:
    """What lives in the heap of a Java process, if there is a `jcmd` beside it."""
    jcmd = Path(f"/proc/{java}/exe").resolve().with_name("jcmd")
    if not jcmd.exists():
        return None
    subprocess.run([str(jcmd), str(java), "GC.run"], check=True, capture_output=True)
    told = subprocess.run(
        [str(jcmd), str(java), "GC.heap_info"], check=True, capture_output=True, text=True
    )
    found = USED_HEAP.search(told.stdout)
    return int(found[1]) * 1024 / 1e6 if found else None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _rows() -> Iterator[Row]:
    for store in STORES:
        for number, level in enumerate(LEVELS):
            at = f"{store}, {level} open sessions"
            yield Row(f"{store} batch {number}", f"{at}: a batch of 10,000 views", "s")
            yield Row(f"{store} state {number}", f"{at}: state by Spark's count", "MB")
            yield Row(f"{store} heap {number}", f"{at}: Java's heap in use", "MB")
            yield Row(f"{store} resident {number}", f"{at}: Java's memory", "MB")
            yield Row(f"{store} checkpoint {number}", f"{at}: checkpoint", "MB")
        yield Row(f"{store} restart", f"{store}, first batch after a restart", "s")


ROWS = tuple(_rows())

BENCHMARK = Benchmark(
    "State of a pipeline: open sessions",
    ROWS,
    measure,
    rounds=1,
    systems=(HEADRACE,),
    rivals=(),
)
