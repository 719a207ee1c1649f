"""How fast do rows get from a topic into a table through Spark, at how much of the broker's time?

2 million records of 200 bytes in 4 partitions, all in the page cache, are read by Spark's own Kafka
connector in one micro-batch and appended to a Delta table (partition, offset and length of each).
Spark runs in a process of its own, `pipelines_reader.py`, from the environment of `make pipelines`;
it has read a smaller topic the same way before the clock begins. A quarter of the records out of 1,
2, 4 and 8 partitions tells how it grows; the difference between the two sizes with 4 partitions is
what a row costs without the cost of a batch.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from .benchmark import Benchmark, Run
from .brokers import HOST, Broker
from .load import ProduceLoad, Usage
from .processes import machine_busy_seconds, processor_seconds
from .results import Better, Goal, Row, Samples

PROJECT = Path(__file__).parents[1]
PYTHON = PROJECT / ".cache" / "pipelines-python" / "bin" / "python"
RECORDS, VALUE_SIZE = 80, 200  # a batch of 16 KiB, as the Java producer makes them
PARTITIONS = 4
SCALED = (1, 2, 4, 8)
END_WITHIN_S = 60.0


class Reader:
    """Spark in its own process: one line to ask, one line of JSON to answer."""

    def __init__(self, broker: Broker, folder: Path, *settings: str) -> None:
        if not PYTHON.exists():
            raise SystemExit("Spark's environment is missing: run `make pipelines` once.")
        command = [str(PYTHON), "-m", "benchmarks.pipelines_reader", f"{HOST}:{broker.port}"]
        self.log = folder / "spark.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, str(folder / "spark"), *settings],
                cwd=PROJECT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def read(self, asked: str) -> dict[str, Any]:
        """The rows that went into the table, and the seconds that it took."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(asked + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("{"):  # Java writes to the same pipe
                answer: dict[str, Any] = json.loads(line)
                return answer
        said = self.log.read_text(errors="replace")[-4000:]
        raise RuntimeError(f"Spark ended with {self.process.wait()}:\n{said}")

    def close(self) -> None:
        """End of input is the end of the process."""
        try:
            self.process.communicate(timeout=END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def measure(run: Run) -> Samples:
    rows = run.count(2_000_000, 100_000)
    with run.target.start() as broker:
        held = {name: filled(broker, name, *size) for name, *size in topics(rows)}
        os.sync()  # no writing back of what was filled in while it is read
        reader = Reader(broker, run.target.folder)
        try:
            reader.read("warm")
            samples: Samples = {}
            usage, took_s = _into_table(broker, reader, "rows", held["rows"])
            run.watch_noise("pipeline", usage)
            millions = held["rows"] / 1e6
            samples["rate"] = [held["rows"] / took_s]
            samples["cpu"] = [usage.broker_s / millions]
            samples["spark-cpu"] = [usage.client_s / millions]
            for partitions in SCALED:
                count = held[f"rows-{partitions}"]
                _, scaled_s = _into_table(broker, reader, f"rows-{partitions}", count)
                samples[f"rate-{partitions}"] = [count / scaled_s]
                if partitions == PARTITIONS:
                    more_s = max(took_s - scaled_s, 1e-3)
                    samples["marginal"] = [(held["rows"] - count) / more_s]
        finally:
            reader.close()
    return samples


def topics(rows: int) -> list[tuple[str, int, int]]:
    scaled = [(f"rows-{partitions}", partitions, rows // 4) for partitions in SCALED]
    return [("warm", PARTITIONS, rows // 4), ("rows", PARTITIONS, rows), *scaled]


def filled(broker: Broker, topic: str, partitions: int, count: int) -> int:
    """About `count` records in all, the same in each partition; returns how many."""
    load = ProduceLoad.open(
        broker, topic, producers=partitions, records=RECORDS, value_size=VALUE_SIZE
    )
    # Each line has sent one batch when it was opened.
    load.run(requests=count // RECORDS - partitions)
    load.close()
    return load.requests * RECORDS


def _into_table(broker: Broker, reader: Reader, topic: str, count: int) -> tuple[Usage, float]:
    usage, answer = measured(broker, reader, topic)
    if answer["rows"] != count:
        raise RuntimeError(f"{answer['rows']} rows of {count} came into the table")
    return usage, answer["took_s"]


def measured(broker: Broker, reader: Reader, asked: str) -> tuple[Usage, dict[str, Any]]:
    """What broker and Spark used for it; the client is Spark."""
    busy, spark_s = machine_busy_seconds(), processor_seconds(reader.process.pid)
    broker_s, begin = broker.processor_seconds(), time.perf_counter()
    answer = reader.read(asked)
    wall_s = time.perf_counter() - begin
    broker_s = broker.processor_seconds() - broker_s
    spark_s = processor_seconds(reader.process.pid) - spark_s
    others_s = machine_busy_seconds() - busy - broker_s - spark_s
    return Usage(wall_s, broker_s, spark_s, others_s), answer


BENCHMARK = Benchmark(
    "Pipelines on Spark",
    (
        Row("rate", "2 M rows of 200 B into a table", "rows/s", Goal(Better.MORE, ratio=1.0)),
        Row("cpu", "the same, broker CPU", "s per M rows", Goal(Better.LESS, ratio=0.6)),
        Row("spark-cpu", "the same, Spark's CPU", "s per M rows"),
        *(
            Row(f"rate-{n}", f"0.5 M rows from {n} partitions", "rows/s", better=Better.MORE)
            for n in SCALED
        ),
        Row("marginal", "a batch of 2 M beyond one of 0.5 M", "rows/s", better=Better.MORE),
    ),
    measure,
)
