"""Handlers: what does an app cost beside a plain loop and FastStream, and what does it win?

All three run on the same kind of broker (Headrace, one node, four partitions), each as one process,
on the same records of 100 bytes. Empty handlers: records per second from the first one handled to
the last, and how much memory grew between the first quarter of the records and the end. Handlers
that wait 0 to 5 ms: seconds for 10,000 records with 1, 20 and 1,000 keys, in the order of keys for
the app (64 at once); the other two handle one record after the other, so keys make no difference to
them and they are measured once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.ecosystem import ecosystem_python

from .benchmark import Benchmark, Run
from .brokers import Target
from .results import FASTSTREAM, HEADRACE, PLAIN_LOOP, Better, Goal, Row, Samples

PROGRAMS = Path(__file__).parent / "handlers"
PARTITIONS = 4
VALUE = b"x" * 100
LONGEST_MS = 5
SLOW_RECORDS = 10_000
KEYS = (1, 20, 1_000)
# FastStream handles some thousands per second; more records would only take longer.
EMPTY_RECORDS = {PLAIN_LOOP: 2_000_000, FASTSTREAM: 100_000, HEADRACE: 2_000_000}
WITHIN_S = 900.0

ROWS = (
    Row(
        "empty", "empty handlers, records/s beside a plain loop", "per s",
        Goal(Better.MORE, ratio=0.7), better=Better.MORE,
    ),
    Row("empty_cpu", "processor time of the program per record", "us"),
    Row("growth", "memory growth over the last three quarters", "MB"),
    *(
        Row(f"keys_{keys}", f"10,000 records of 0-5 ms, {keys:,} keys", "s")
        for keys in KEYS
    ),
)  # fmt: skip


def command(name: str) -> list[str]:
    match name:
        case "plain-loop":
            return [sys.executable, str(PROGRAMS / "plain_loop.py")]
        case "faststream":
            return [str(ecosystem_python()), str(PROGRAMS / "faststream_app.py")]
    return [sys.executable, str(PROGRAMS / "headrace_app.py")]


def fill(bootstrap: str, topic: str, count: int, keys: int | None) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000}
    )
    for number in range(count):
        key = None if keys is None else b"%d" % (number % keys)
        while True:
            try:
                producer.produce(topic, VALUE, key, partition=_place(number, keys))
                break
            except BufferError:
                producer.poll(0.1)
        if not number % 1_000:
            producer.poll(0)
    assert producer.flush(120) == 0


def _place(number: int, keys: int | None) -> int:
    """Keys lie evenly on the partitions, as many as there are."""
    return number % PARTITIONS if keys is None else number % keys % PARTITIONS


def handled(run: Run, bootstrap: str, topic: str, count: int, longest_ms: int) -> dict[str, float]:
    order = "key" if longest_ms else "none"
    words = [bootstrap, topic, str(count), str(longest_ms), order]
    done = subprocess.run(
        [*command(run.target.name), *words], capture_output=True, timeout=WITHIN_S
    )
    if done.returncode != 0 or not done.stdout:
        raise RuntimeError(f"{run.target.name} failed:\n{done.stderr[-3000:].decode()}")
    report: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return report


def measure(run: Run) -> Samples:
    samples: Samples = {row.key: [] for row in ROWS}
    with Target(HEADRACE, run.target.folder, run.target.cores).start() as broker:
        bootstrap = f"127.0.0.1:{broker.port}"
        count = run.count(EMPTY_RECORDS[run.target.name], 20_000)
        fill(bootstrap, "empty", count, None)
        report = handled(run, bootstrap, "empty", count, 0)
        samples["empty"].append(count / report["seconds"])
        samples["empty_cpu"].append(report["cpu_s"] / count * 1e6)
        samples["growth"].append(report["end_mb"] - report["quarter_mb"])
        for keys in KEYS if run.target.name == HEADRACE else KEYS[-1:]:
            count = run.count(SLOW_RECORDS, 400)
            topic = f"keys-{keys}"
            fill(bootstrap, topic, count, keys)
            report = handled(run, bootstrap, topic, count, LONGEST_MS)
            samples[f"keys_{keys}"].append(report["seconds"])
    return samples


BENCHMARK = Benchmark(
    title="Handlers of an app",
    rows=ROWS,
    measure=measure,
    rounds=3,
    systems=(PLAIN_LOOP, FASTSTREAM, HEADRACE),
    rivals=(PLAIN_LOOP,),
)
