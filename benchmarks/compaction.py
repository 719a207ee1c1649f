"""How long does the log cleaner take, and what does it cost?

A topic of one partition takes 250 MB (`--large`: 1 GB) in batches of 100 records: keys of 10 bytes
in random order, one distinct key for eight records, values of 100 bytes, segments of 32 MiB. While
it is written `min.compaction.lag.ms` keeps the cleaner away; the clock runs from the change of that
setting to the cleaner's checkpoint that covers all closed segments, so up to one
`log.cleaner.backoff.ms` of waiting (1 s on both) is in it. Processor time is that of the broker and
of the processes it starts; both figures are per GB of closed segments. Both have one cleaner thread
and 128 MiB for keys. Afterwards the closed segments must hold each of their keys exactly once, and
must have shrunk.
Warm-up: the same with a topic of 80 MB.
"""

from __future__ import annotations

import functools
import random
import time
from dataclasses import dataclass
from pathlib import Path

from headrace.wire.protocol.messages import incremental_alter_configs
from headrace.wire.protocol.record_batch import Record, build, headers_in, seal

from . import wire
from .benchmark import Benchmark, Run
from .brokers import Broker
from .load import measured
from .results import Better, Goal, Row, Samples

SETTINGS = {
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": str(128 << 20),
    "log.cleaner.backoff.ms": "1000",
}
BATCH_RECORDS, VALUE_SIZE = 100, 100
RECORDS_PER_KEY = 8
SEGMENT_BYTES = 32 << 20
IN_FLIGHT = 16
ALTER_VERSION = 1
TOPIC_RESOURCE = 2
SET = 0
DONE_WITHIN_S = 300.0
A_DAY_MS = 86_400_000


def key(number: int) -> bytes:
    return b"%010d" % number


def template() -> tuple[bytearray, list[int]]:
    """A batch, and where in it each record's key begins."""
    now = int(time.time() * 1000)
    noise = random.Random(1)
    values = [noise.randbytes(VALUE_SIZE) for _ in range(BATCH_RECORDS)]
    records = [Record(key(at), value, timestamp=now) for at, value in enumerate(values)]
    batch = bytearray(build(records))
    return batch, [batch.index(value) - 12 for value in values]  # a length of two bytes between


@functools.cache
def keys_of(records: int) -> list[int]:
    """The key of each record, the same for both brokers."""
    return random.Random(records).choices(range(records // RECORDS_PER_KEY), k=records)


@dataclass(slots=True)
class Filled:
    """A topic that waits to be compacted."""

    broker: Broker
    topic: str
    keys: list[int]

    @property
    def folder(self) -> Path:
        return self.broker.target.data / f"{self.topic}-0"

    def segments(self) -> dict[int, int]:
        """The size of each live segment, by its base offset."""
        found = {}
        for path in self.folder.glob("*.log"):
            try:
                found[int(path.stem)] = path.stat().st_size
            except FileNotFoundError:
                continue  # replaced meanwhile
        return found

    def cleaned_to(self) -> int:
        """How far the cleaner has come by its own checkpoint."""
        path = self.broker.target.data / "cleaner-offset-checkpoint"
        for line in path.read_text().splitlines() if path.exists() else ():
            if line.startswith(f"{self.topic} 0 "):
                return int(line.rpartition(" ")[2])
        return 0

    def compact(self) -> None:
        """Let the cleaner begin, and wait until all but the active segment is clean."""
        goal = max(self.segments())
        with wire.connect(self.broker.port) as connection:
            lag = incremental_alter_configs.AlterableConfig("min.compaction.lag.ms", SET, "0")
            resource = incremental_alter_configs.AlterConfigsResource(
                TOPIC_RESOURCE, self.topic, [lag]
            )
            request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource])
            answer = wire.ask(connection, incremental_alter_configs, ALTER_VERSION, request)
            wire.succeed(answer.responses[0].error_code, "change min.compaction.lag.ms")
        deadline = time.monotonic() + DONE_WITHIN_S
        while self.cleaned_to() < goal:
            if time.monotonic() > deadline:
                raise TimeoutError(f"compacted to {self.cleaned_to()} of {goal} only")
            time.sleep(0.01)

    def closed_size(self) -> int:
        sizes = self.segments()
        return sum(sizes.values()) - sizes[max(sizes)]

    def check(self, size_before: int) -> int:
        """Each key of the closed segments is there once; returns the size of these."""
        sizes = self.segments()
        active = max(sizes)
        expected = len(set(self.keys[:active]))
        held = sum(
            header.record_count
            for base in sizes
            if base != active
            for _, header in headers_in((self.folder / f"{base:020}.log").read_bytes())
        )
        if held != expected:
            raise AssertionError(f"{held} records are left of {expected} keys")
        size = self.closed_size()
        if size >= size_before:
            raise AssertionError(f"{size_before} bytes before, {size} after compaction")
        return size


def fill(broker: Broker, topic: str, size: float) -> Filled:
    batch, places = template()
    batches = int(size / len(batch))
    keys = keys_of(batches * BATCH_RECORDS)
    with wire.connect(broker.port) as connection:
        wire.create_topics_with(
            connection,
            [topic],
            partitions=1,
            cleanup_policy="compact",
            segment_bytes=str(SEGMENT_BYTES),
            min_compaction_lag_ms=str(A_DAY_MS),
            min_cleanable_dirty_ratio="0.01",
        )
        in_flight = 0
        for number in range(batches):
            own = keys[number * BATCH_RECORDS : (number + 1) * BATCH_RECORDS]
            for place, each in zip(places, own, strict=True):
                batch[place : place + 10] = key(each)
            seal(batch)
            if in_flight == IN_FLIGHT:
                wire.check_produced(wire.receive_frame(connection))
                in_flight -= 1
            connection.sendall(wire.produce_frame(topic, 0, bytes(batch)))
            in_flight += 1
        for _ in range(in_flight):
            wire.check_produced(wire.receive_frame(connection))
        end = wire.end_offset(connection, topic, 0)
    if end != len(keys):
        raise AssertionError(f"{len(keys)} records written, the partition ends at {end}")
    return Filled(broker, topic, keys)


def measure(run: Run) -> Samples:
    run.target.settings |= SETTINGS
    with run.target.start() as broker:
        warm = fill(broker, "warm", run.amount(80e6, 40e6))
        warm.compact()
        filled = fill(broker, "compacted", 1000e6 if run.large else run.amount(250e6, 100e6))
        before = filled.closed_size()
        usage = measured(broker, filled.compact)
        after = filled.check(before)
    run.watch_noise(f"compaction of {before / 1e6:.0f} MB to {after / 1e6:.0f}", usage)
    return {
        "wall": [usage.wall_s * 1e9 / before],
        "cpu": [usage.broker_s * 1e9 / before],
    }


BENCHMARK = Benchmark(
    "Compaction",
    (
        Row("wall", "compaction, wall clock", "s per GB", Goal(Better.LESS, ratio=1.0)),
        Row("cpu", "compaction, broker and cleaner CPU", "s per GB", Goal(Better.LESS, ratio=1.0)),
    ),
    measure,
    rounds=2,
)
