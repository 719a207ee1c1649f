"""How soon is a broker back when its folder holds 10 GiB of closed segments?

Two partitions are filled through the broker itself, with segments of 1 GiB (quick: 1 GiB in
segments of 128 MiB). The clock runs from the start of the process to a ListOffsets reply with the
right end of every partition. Measured after clean stops, and after kill -9 with a load of 128 MB
running just before. The page cache is warm for both.
"""

from __future__ import annotations

import time

from . import wire
from .benchmark import Benchmark, Run
from .brokers import Broker
from .load import ProduceLoad
from .results import Row, Samples

TOPIC = "big"
PARTITIONS = 2
RECORDS, VALUE_SIZE = 258, 1_000  # batches of 256 KiB
TAIL_BYTES = 128e6  # written after the closed segments, and again before each kill
STARTS = 3


def measure(run: Run) -> Samples:
    closed = run.count(10 << 30, 1 << 30)
    with run.target.start() as broker:
        load = ProduceLoad.open(
            broker,
            TOPIC,
            producers=PARTITIONS,
            records=RECORDS,
            value_size=VALUE_SIZE,
            segment_bytes=str(run.count(1 << 30, 128 << 20)),
        )
        load.run(requests=int((closed + TAIL_BYTES) / load.frame_size))
        load.close()
        ends = ends_of(broker)
        broker.stop()
    clean = [start_and_stop(run, ends) for _ in range(STARTS)]
    write_and_kill(run)
    killed = [write_and_kill(run) for _ in range(STARTS)]
    return {"clean": clean, "killed": killed}


def start_and_stop(run: Run, ends: list[int]) -> float:
    with run.target.start() as broker:
        seconds = seconds_to_ends(broker, ends)
        broker.stop()
    return seconds


def write_and_kill(run: Run) -> float:
    """Start, write a tail, kill; the seconds that the start took."""
    with run.target.start() as broker:
        seconds = seconds_to_ends(broker, None)
        load = ProduceLoad.on_existing(
            broker, TOPIC, producers=PARTITIONS, records=RECORDS, value_size=VALUE_SIZE
        )
        load.run(requests=int(TAIL_BYTES / load.frame_size))
        load.close()
        broker.kill()
    return seconds


def seconds_to_ends(broker: Broker, expected: list[int] | None) -> float:
    """From the start of the process until every partition tells its end."""
    ends = ends_of(broker)
    seconds = time.perf_counter() - broker.began
    assert expected is None or ends == expected, f"{ends} after the start, {expected} before"
    return seconds


def ends_of(broker: Broker) -> list[int]:
    with wire.connect(broker.port) as connection:
        return wire.ends_when_ready(connection, [(TOPIC, part) for part in range(PARTITIONS)])


BENCHMARK = Benchmark(
    "Start with 10 GiB",
    (
        Row("clean", "start after a clean stop", "s"),
        Row("killed", "start after kill -9", "s"),
    ),
    measure,
    rounds=1,
)
