"""How soon does a broker answer, and how much memory does it hold, idle and after a load?

The clock runs from the start of the process on a fresh folder to the whole reply of an ApiVersions
request over a raw socket. Apache Kafka's folder is formatted before; Headrace formats its own
within the measured time. Memory is VmRSS, idle two seconds later and after a load of 1 GB in
16 KiB batches, 100,000 one-record requests and the same GB read back; the peak is VmHWM.
"""

from __future__ import annotations

import time

from .benchmark import Benchmark, Run
from .brokers import Broker
from .load import FetchLoad, ProduceLoad
from .results import Better, Goal, Row, Samples
from .wire import batch_of

CONNECTIONS = 4
RECORDS, VALUE_SIZE = 16, 1_000


def measure(run: Run) -> Samples:
    with run.target.start() as broker:
        start_cpu = broker.processor_seconds()
        time.sleep(2.0)
        idle = broker.memory().resident_mb
        load_broker(run, broker)
        loaded = broker.memory()
        samples = {
            "start": [broker.start_s],
            "start cpu": [start_cpu],
            "idle": [idle],
            "loaded": [loaded.resident_mb],
            "peak": [loaded.peak_mb],
        }
        begin = time.perf_counter()
        broker.stop()
        samples["stop"] = [time.perf_counter() - begin]
    return samples


def load_broker(run: Run, broker: Broker) -> None:
    bulk = ProduceLoad.open(
        broker, "bulk", producers=CONNECTIONS, records=RECORDS, value_size=VALUE_SIZE
    )
    bulk.run(requests=int(run.amount(1000e6, 100e6) / bulk.frame_size))
    single = ProduceLoad.open(broker, "single", producers=CONNECTIONS, records=1, value_size=100)
    single.run(requests=run.count(100_000, 10_000))
    single.close()
    reading = FetchLoad.open(bulk, batch_size=len(batch_of(RECORDS, VALUE_SIZE)), max_bytes=1 << 20)
    reading.run(run.amount(1.5, 0.5))
    reading.close()
    bulk.close()


BENCHMARK = Benchmark(
    "Start and memory",
    (
        Row("start", "start to first reply", "s", Goal(Better.LESS, ratio=0.1, absolute=0.4)),
        Row("start cpu", "start to first reply, CPU", "s"),
        Row("idle", "memory idle", "MB", Goal(Better.LESS, absolute=60)),
        Row("loaded", "memory after a load", "MB", Goal(Better.LESS, ratio=0.1)),
        Row("peak", "memory at its peak", "MB"),
        Row("stop", "SIGTERM to the end of the process", "s"),
    ),
    measure,
    rounds=3,
)
