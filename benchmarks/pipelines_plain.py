"""What does a pipeline cost beside the same job in plain Spark?

2 million records of about 190 bytes in 2 partitions go into a Delta table with everything at its
default: as Spark gives them (raw), and as JSON by a schema. Each job has a process of its own, one
after the other; the plain one reads with `from_json`, which checks nothing. Java's processor time
is that of the job alone, with the compiling that it causes; the start of Spark is left out.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from headrace.wire.protocol.record_batch import Record

from .benchmark import Benchmark, Run
from .brokers import HOST, Broker
from .pipelines import PROJECT, PYTHON
from .pipelines_stream import Views
from .processes import machine_busy_seconds
from .results import HEADRACE, Better, Row, Samples

TOPIC, PARTITIONS, REQUEST = "records", 2, 10_000
WAYS, KINDS = ("plain", "headrace"), ("raw", "json")


def measure(run: Run) -> Samples:
    count = run.count(2_000_000, 50_000)
    samples: Samples = {}
    with run.target.start() as broker:
        fill(broker, count)
        os.sync()
        for what in KINDS:
            for way in WAYS:
                busy = machine_busy_seconds()
                answer = job(broker, run.target.folder / f"{way}-{what}", way, what)
                if answer["rows"] != count:
                    raise RuntimeError(f"{way} {what}: {answer['rows']:,} rows of {count:,}")
                others = machine_busy_seconds() - busy - answer["all_s"]
                run.details.append(f"{way} {what}: others used {others:.0f} s of the processors")
                samples[f"{way} {what} rate"] = [count / answer["took_s"]]
                samples[f"{way} {what} java"] = [answer["java_s"] / (count / 1e6)]
    return samples


def job(broker: Broker, folder: Path, way: str, what: str) -> dict[str, Any]:
    words = [way, what, f"{HOST}:{broker.port}", TOPIC, str(folder)]
    done = subprocess.run(
        [str(PYTHON), "-m", "benchmarks.pipelines_plain_job", *words],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise RuntimeError(f"{way} {what} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def record(n: int) -> Record:
    value = (
        f'{{"id":{n},"user":"user-{n % 100_000:08d}","page":"/products/lamps/{n % 1000:05d}",'
        f'"amount":{n % 500}.25,"at":"2026-11-{1 + n % 18:02d}T{n % 24:02d}:{n % 60:02d}:'
        f'{n % 59:02d}.{n % 1000:03d}Z","tags":["lamp","chair"],"note":"{"x" * 30}"}}'
    )
    return Record(str(n).encode(), value.encode())


def fill(broker: Broker, count: int) -> None:
    records = Views(broker, TOPIC, partitions=PARTITIONS)
    for first in range(0, count, REQUEST):
        records.spread([record(n) for n in range(first, min(first + REQUEST, count))])
    records.close()


BENCHMARK = Benchmark(
    "Pipelines beside plain Spark",
    tuple(
        row
        for what in KINDS
        for way in WAYS
        for row in (
            Row(f"{way} {what} rate", f"{what} to Delta, {way}", "rows/s", better=Better.MORE),
            Row(f"{way} {what} java", f"{what} to Delta, {way}: Java's CPU", "s per M rows"),
        )
    ),
    measure,
    rounds=1,
    systems=(HEADRACE,),
    rivals=(),
)
