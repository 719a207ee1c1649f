"""What do rows of JSON cost in the shipped pipelines, beyond reading them?

1 million page views of about 250 bytes in 4 partitions, five of each of 200,000 visitors, go
through `page-views` (numbers by the minute, merged into a table), `sessions` (200,000 open sessions
in state) and `daily-statistics`, each in one micro-batch with `--once`, in turn with the way before
decision 25 (a second query for dead letters, a MERGE of Spark) in the same Spark. Both ways have
read a quarter of it before the clock begins. With `pipelines.py`, which reads and does nothing,
this tells what a core can do.
"""

from __future__ import annotations

import os
import time

from .benchmark import Benchmark, Run
from .brokers import Broker
from .pipelines import Reader, measured
from .pipelines_stream import Views, view
from .results import Better, Row, Samples

SHIPPED = ("page-views", "sessions", "daily-statistics")
REQUEST = 10_000
VIEWS_OF_A_VISITOR = 5
SETTINGS = ("spark.driver.memory=4g",)


def measure(run: Run) -> Samples:
    count = run.count(1_000_000, 20_000)
    samples: Samples = {}
    with run.target.start() as broker:
        for topic, size in (("warm", count // 4), ("views", count)):
            fill(broker, topic, size)
        os.sync()
        reader = Reader(broker, run.target.folder, *SETTINGS)
        try:
            for name in (way for one in SHIPPED for way in (f"before {one}", one)):
                reader.read(f"{name} warm")
                usage, answer = measured(broker, reader, f"{name} views")
                if answer["taken"] != count:
                    raise RuntimeError(f"{name}: {answer['taken']:,} views of {count:,} were taken")
                run.watch_noise(name, usage)
                samples[f"{name} rate"] = [count / answer["took_s"]]
                samples[f"{name} spark"] = [usage.client_s / (count / 1e6)]
                samples[f"{name} cpu"] = [usage.broker_s / (count / 1e6)]
        finally:
            reader.close()
    return samples


def fill(broker: Broker, topic: str, count: int) -> None:
    views = Views(broker, topic)
    visitors = count // VIEWS_OF_A_VISITOR
    for first in range(0, count, REQUEST):
        now = time.time_ns() // 1_000_000
        numbers = range(first, min(first + REQUEST, count))
        views.spread([view(number, number % visitors, now) for number in numbers])
    views.close()


BENCHMARK = Benchmark(
    "Shipped pipelines over 1 M page views",
    tuple(
        row
        for one in SHIPPED
        for name, shown in ((one, one), (f"before {one}", f"{one}, the way before"))
        for row in (
            Row(f"{name} rate", shown, "views/s", better=Better.MORE),
            Row(f"{name} spark", f"{shown}, Spark's CPU", "s per M views"),
            Row(f"{name} cpu", f"{shown}, broker CPU", "s per M views"),
        )
    ),
    measure,
    rounds=1,
)
