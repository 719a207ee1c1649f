"""How many produce requests of a single record does a broker answer per second?

Eight producers with a connection and a partition each, five requests in flight, one record of
100 bytes per request, acks=all: what services send that do not linger.
Warm-up: 10 s of the same load.
"""

from __future__ import annotations

from .benchmark import Benchmark, Run
from .load import ProduceLoad, measured
from .results import Better, Goal, Row, Samples

PRODUCERS = 8
VALUE_SIZE = 100


def measure(run: Run) -> Samples:
    with run.target.start() as broker:
        load = ProduceLoad.open(
            broker, "requests", producers=PRODUCERS, records=1, value_size=VALUE_SIZE
        )
        load.run(seconds=run.amount(10.0, 2.0))
        before = load.requests
        usage = measured(broker, lambda: _run(load, run.amount(6.0, 2.0)))
        requests = load.requests - before
        load.close()
    run.watch_noise("one-record requests", usage)
    return {"rate": [requests / usage.wall_s], "cpu": [usage.broker_s / requests * 1e6]}


def _run(load: ProduceLoad, seconds: float) -> None:
    load.run(seconds=seconds)


BENCHMARK = Benchmark(
    "One-record requests",
    (
        Row("rate", "one-record produce requests", "per second", Goal(Better.MORE, ratio=2.5)),
        Row("cpu", "one-record produce requests, broker CPU", "us each"),
    ),
    measure,
)
