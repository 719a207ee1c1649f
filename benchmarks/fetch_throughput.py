"""How fast does a broker serve fetches of 1 MiB, at how much processor time?

Two consumers with a partition each of 400 MB in batches of 16 KiB, all in the page cache, one
fetch in flight per connection as every client has it; each reads its partition from the beginning
to the end, again and again. Only whole batches count.
Warm-up: the same load until its cost is steady (`warm_up.py`).
"""

from __future__ import annotations

import os

from .benchmark import Benchmark, Run
from .load import FetchLoad, ProduceLoad, measured
from .results import Better, Goal, Row, Samples
from .warm_up import LIMIT_S, until_steady
from .wire import batch_of

CONSUMERS = 2
RECORDS, VALUE_SIZE = 16, 1_000
FETCH_BYTES = 1 << 20


def measure(run: Run) -> Samples:
    with run.target.start() as broker:
        written = ProduceLoad.open(
            broker, "fetch", producers=CONSUMERS, records=RECORDS, value_size=VALUE_SIZE
        )
        written.run(requests=int(run.amount(800e6, 200e6) / written.frame_size))
        load = FetchLoad.open(
            written, batch_size=len(batch_of(RECORDS, VALUE_SIZE)), max_bytes=FETCH_BYTES
        )
        written.close()
        os.sync()  # no writing back of what was filled in while fetches are measured
        until_steady(broker, load.run, limit_s=run.amount(LIMIT_S, 1.0))
        before = sum(reader.taken for reader in load.readers)
        usage = measured(broker, lambda: load.run(run.amount(5.0, 2.0)))
        megabytes = (sum(reader.taken for reader in load.readers) - before) / 1e6
        load.close()
    run.watch_noise("fetch", usage)
    return {"rate": [megabytes / usage.wall_s], "cpu": [usage.broker_s / (megabytes / 1000)]}


BENCHMARK = Benchmark(
    "Fetch throughput",
    (
        Row("rate", "fetches of 1 MiB", "MB/s", Goal(Better.MORE, ratio=1.1)),
        Row("cpu", "fetches of 1 MiB, broker CPU", "s/GB", Goal(Better.LESS, ratio=0.6)),
    ),
    measure,
)
