"""How many produce requests of a single record does a broker answer per second?

Eight producers with a connection and a partition each, five requests in flight, one record of
100 bytes per request, acks=all: what services send that do not linger.
Warm-up: the same load until its cost is steady (`warm_up.py`).
"""

from __future__ import annotations

from .benchmark import Benchmark, Run
from .load import ProduceLoad, measured
from .results import Better, Goal, Row, Samples
from .warm_up import LIMIT_S, until_steady

PRODUCERS = 8
VALUE_SIZE = 100


def measure(run: Run) -> Samples:
    with run.target.start() as broker:
        load = ProduceLoad.open(
            broker, "requests", producers=PRODUCERS, records=1, value_size=VALUE_SIZE
        )
        until_steady(broker, load.run_for, limit_s=run.amount(LIMIT_S, 2.0))
        before = load.requests
        usage = measured(broker, lambda: load.run_for(run.amount(6.0, 2.0)))
        requests = load.requests - before
        load.close()
    run.watch_noise("one-record requests", usage)
    return {"rate": [requests / usage.wall_s], "cpu": [usage.broker_s / requests * 1e6]}


BENCHMARK = Benchmark(
    "One-record requests",
    (
        Row("rate", "one-record produce requests", "per second", Goal(Better.MORE, ratio=2.5)),
        Row("cpu", "one-record produce requests, broker CPU", "us each"),
    ),
    measure,
)
