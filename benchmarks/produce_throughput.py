"""How much processor time does a broker spend to take a GB, and how fast does it take it?

Four producers with a partition each, acks=all, five requests in flight, records of 1,000 bytes,
no compression: once in batches of 16 KiB (the Java client's default), once of 256 KiB. The amount
is fixed; what the warm-up left unwritten is synced before, so that the kernel neither writes back
nor throttles meanwhile, and the memory it will fill is touched before (`first_touch.py`).
Warm-up: the same load until its cost is steady (`warm_up.py`), at most 1.5 GB.
"""

from __future__ import annotations

import os

from .benchmark import Benchmark, Run
from .brokers import Broker
from .first_touch import touch_memory
from .load import ProduceLoad, Usage, measured
from .results import Better, Goal, Row, Samples
from .warm_up import LIMIT_S, until_steady

PRODUCERS = 4
# Large writes get large pages, which the kernel takes from other memory than it gave back last.
TOUCHED_PER_BYTE = 6
VALUE_SIZE = 1_000
RECORDS = {"16 KiB": 16, "256 KiB": 258}  # 1,007 bytes each with their framing: just below


def measure(run: Run) -> Samples:
    samples: Samples = {}
    with run.target.start() as broker:
        for size, records in RECORDS.items():
            megabytes, usage = take(run, broker, f"produce-{records}", records)
            run.watch_noise(f"produce {size}", usage)
            samples[f"{size} cpu"] = [usage.broker_s / (megabytes / 1000)]
            samples[f"{size} rate"] = [megabytes / usage.wall_s]
    return samples


def take(run: Run, broker: Broker, topic: str, records: int) -> tuple[float, Usage]:
    """Warm up, then MB sent and what that used."""
    load = ProduceLoad.open(
        broker, topic, producers=PRODUCERS, records=records, value_size=VALUE_SIZE
    )
    until_steady(
        broker,
        load.run_for,
        limit_s=run.amount(LIMIT_S, 2.0),
        limit_amount=run.amount(1500e6, 100e6) / load.frame_size,
    )
    os.sync()
    requests = int(run.amount(1000e6, 200e6) / load.frame_size / PRODUCERS) * PRODUCERS
    touch_memory(TOUCHED_PER_BYTE * requests * load.frame_size)
    usage = measured(broker, lambda: load.run(requests=requests))
    load.close()
    return requests * load.frame_size / 1e6, usage


BENCHMARK = Benchmark(
    "Produce throughput",
    (
        Row("16 KiB cpu", "batches of 16 KiB, broker CPU", "s/GB", Goal(Better.LESS, ratio=0.25)),
        Row("16 KiB rate", "batches of 16 KiB", "MB/s"),
        Row("256 KiB cpu", "batches of 256 KiB, broker CPU", "s/GB", Goal(Better.LESS, ratio=0.4)),
        Row("256 KiB rate", "batches of 256 KiB", "MB/s"),
    ),
    measure,
)
