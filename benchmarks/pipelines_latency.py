"""How long until a page view is in the number of its minute?

The shipped pipeline `page-views` runs as it comes: a stream that begins a batch when the one before
is done and merges views, visitors and pages by minute into a Delta table. 1,000 views per second
are sent at times fixed beforehand, 20 in a request, for 90 s; latency counts from the time a view
was due to the commit of the table's version that has it in its number, and the first 30 s are left
out. What a reader then needs to read the table is not part of it.

A batch's offsets and its end are in the checkpoint, a version's commit is in the table's log: a
version that was committed while a batch ran has all views up to that batch's offsets. At the end
the numbers of all minutes must add up to what was sent.
"""

from __future__ import annotations

import bisect
import json
import subprocess
import time
from pathlib import Path
from statistics import median

from .benchmark import Benchmark, Run
from .load import Usage
from .pipelines import PYTHON
from .pipelines_stream import PARTITIONS, TOPIC, Stream, Views, view
from .processes import machine_busy_seconds, own_processor_seconds, processor_seconds
from .results import Row, Samples

NAME, TABLE = "page-views", "views-by-minute"
RATE, PER_REQUEST = 1_000, 20
VISITORS = 10_000
START_WITHIN_S, DRAIN_WITHIN_S = 300.0, 300.0
# A minute and more of batches is looked at when it is over; Spark keeps 100 by default.
SETTINGS = {"spark.sql.streaming.minBatchesToRetain": "10000"}


def measure(run: Run) -> Samples:
    seconds, left_out = run.count(90, 15), run.count(30, 5)
    with run.target.start() as broker:
        views = Views(broker)
        with Stream(NAME, broker, run.target.folder, SETTINGS) as stream:
            load = Load(views)
            load.tick(time.time_ns() / 1e9)
            table = stream.data / "tables" / TABLE
            stream.wait_until(lambda: len(commits(table)) > 1, "first rows", START_WITHIN_S)
            load.run(left_out)
            busy, own, spark = _used(stream)
            broker_s, began = broker.processor_seconds(), time.perf_counter()
            load.run(seconds - left_out)
            wall_s = time.perf_counter() - began
            broker_s = broker.processor_seconds() - broker_s
            busy_s, own_s, spark_s = (
                b - a for a, b in zip((busy, own, spark), _used(stream), strict=True)
            )
            stream.wait_for_rows(views.sent, DRAIN_WITHIN_S)
        views.close()
    batches = finished_batches(stream.state / "checkpoint")
    _check_total(stream.data, views.sent)
    found = latencies(load.due, batches, commits(table), after_s=load.steady_s)
    usage = Usage(wall_s, broker_s, own_s + spark_s, busy_s - broker_s - own_s - spark_s)
    run.watch_noise("per-minute numbers", usage)
    took = [batch.ended_s - batch.began_s for batch in batches if batch.began_s > load.steady_s]
    return {
        "p50": [found[len(found) // 2]],
        "p99": [found[len(found) * 99 // 100]],
        "largest": [found[-1]],
        "batch": [median(took)],
        "cpu": [100 * broker_s / wall_s],
        "spark": [100 * spark_s / wall_s],
    }


def _used(stream: Stream) -> tuple[float, float, float]:
    """Processor seconds of the machine, of this process, of Spark."""
    return (
        machine_busy_seconds(),
        own_processor_seconds(),
        processor_seconds(stream.process.pid),
    )


class Load:
    """Views at a fixed rate; remembers by partition when each was due."""

    def __init__(self, views: Views) -> None:
        self.views = views
        self.due: list[list[float]] = [[] for _ in range(PARTITIONS)]
        self.ticks = 0
        self.steady_s = 0.0  # when the last run began

    def run(self, seconds: float) -> None:
        begin = self.steady_s = time.time_ns() / 1e9
        for number in range(int(seconds * RATE / PER_REQUEST)):
            due = begin + number * PER_REQUEST / RATE
            time.sleep(max(0.0, due - time.time_ns() / 1e9))
            self.tick(due)

    def tick(self, due: float) -> None:
        """One request into the next partition."""
        partition, first = self.ticks % PARTITIONS, self.ticks * PER_REQUEST
        numbers = range(first, first + PER_REQUEST)
        at_ms = int(due * 1000)
        self.views.send({partition: [view(n, n * 7919 % VISITORS, at_ms) for n in numbers]})
        self.due[partition] += [due] * PER_REQUEST
        self.ticks += 1


class Batch:
    """One micro-batch: when it was planned and committed, and where it ended in each partition."""

    def __init__(self, planned: Path, committed: Path) -> None:
        self.began_s = planned.stat().st_mtime_ns / 1e9
        self.ended_s = committed.stat().st_mtime_ns / 1e9
        # A version, the batch's own settings, and a line for each source.
        ends = json.loads(planned.read_text().splitlines()[-1])[TOPIC]
        self.ends = [int(ends[str(partition)]) for partition in range(PARTITIONS)]


def finished_batches(checkpoint: Path) -> list[Batch]:
    numbers = sorted(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    return [
        Batch(checkpoint / "offsets" / str(number), checkpoint / "commits" / str(number))
        for number in numbers
    ]


def commits(table: Path) -> list[float]:
    """When each version of a Delta table was committed."""
    return sorted(path.stat().st_mtime_ns / 1e9 for path in table.glob("_delta_log/*[0-9].json"))


def latencies(
    due: list[list[float]], batches: list[Batch], versions: list[float], *, after_s: float
) -> list[float]:
    """Seconds from due to readable of all views that were due after a moment, sorted."""
    found: list[float] = []
    done = [0] * PARTITIONS
    for batch in batches:
        if batch.ends == done:
            continue  # no rows, only closed windows
        readable = versions[bisect.bisect_left(versions, batch.ended_s) - 1]
        if readable < batch.began_s:
            raise AssertionError("a batch with rows committed no version of the table")
        for partition, end in enumerate(batch.ends):
            fresh = due[partition][done[partition] : end]
            found += [readable - moment for moment in fresh if moment >= after_s]
        done = batch.ends
    if done != [len(moments) for moments in due]:
        raise AssertionError(f"the batches end at {done}")
    return sorted(found)


def _check_total(data: Path, sent: int) -> None:
    """The table as anybody reads it."""
    command = [str(PYTHON.with_name("headrace")), "lake", "show", TABLE, "--data", str(data)]
    shown = subprocess.run(
        [*command, "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    rows = json.loads(shown.stdout[shown.stdout.index("[") :])
    total = sum(row["views"] for row in rows)
    if total != sent:
        raise AssertionError(f"{total:,} views in the table, {sent:,} were sent")


BENCHMARK = Benchmark(
    "Latency of the numbers by the minute",
    (
        Row("p50", "1,000 views/s, sent to readable in the table, p50", "s"),
        Row("p99", "1,000 views/s, sent to readable in the table, p99", "s"),
        Row("largest", "1,000 views/s, sent to readable in the table, largest", "s"),
        Row("batch", "a batch, from its plan to its commit, p50", "s"),
        Row("cpu", "broker CPU meanwhile", "% of a core"),
        Row("spark", "Spark's CPU meanwhile", "% of a core"),
    ),
    measure,
    rounds=1,
)
