"""Messages for later: how late do they come, how many per second, at what cost, beside two rivals?

One flow per system, on a fresh folder, so that each question is asked with `PENDING` messages
(default 1,000,000) waiting that are due in an hour:
  accepted    those messages are sent as fast as the system acknowledges them
  at rest     memory and disk once what was accepted is digested
  lateness    1,000 and then 10,000 messages per second, each due 2 to 4 s after it was sent, for
              20 s; receive time minus due time, the first 5 s left out
  burst       1,000,000 messages due within one second: delivered per second, from the first
              arrival to the last; on Kafka a probe of 100 records per second runs beside it
  restart     100 messages per second fall due; kill -9 of everything, start at once: from the start
              of the process to the first message stored in the target
Steady loads and the burst begin when their receiver has seen its first messages. None may be
early, lost or doubled, or the run fails. Messages have 100 bytes.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable

from . import end_to_end, wire
from .benchmark import Benchmark, Run
from .results import APACHE_SERVICE, HEADRACE, NATS, ROCKETMQ, Better, Goal, Row, Samples
from .rivals.kafka import KafkaDelay
from .rivals.nats import Nats
from .rivals.rocketmq import RocketMq
from .rivals.systems import PARTITIONS, Arrivals, DelaySystem, Load, Receiver

PENDING = int(os.environ.get("PENDING", "1000000"))
BURST = int(os.environ.get("BURST", "1000000"))
RATES = (1_000, 10_000)
HOUR_MS = 3_600_000
SETTLE_MS = 5_000  # of a steady load: the first messages find cold caches
DELAY_MS, DELAY_SPAN_MS = 2_000, 2_000
PROBE_RATE = 100
WAKING = 400  # some for each queue or partition
LATE_S = 300.0  # how long a rival may need for what we ask; then what is missing counts as lost

SYSTEMS: dict[str, type[DelaySystem]] = {
    ROCKETMQ: RocketMq,
    NATS: Nats,
    APACHE_SERVICE: KafkaDelay,
    HEADRACE: KafkaDelay,
}


class Numbers:
    """Message numbers never repeat within a system, so that arrivals tell their load."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> int:
        first, self._next = self._next, self._next + count
        return first


def measure(run: Run) -> Samples:
    system = SYSTEMS[run.target.name](run.target)
    samples: Samples = {row.key: [] for row in ROWS}
    numbers = Numbers()
    try:
        system.start()
        system.create()
        _accept(run, system, numbers, samples)
        for rate in RATES:
            _lateness(run, system, numbers, samples, rate)
        _burst(run, system, numbers, samples)
        _restart(run, system, numbers, samples)
    finally:
        system.kill()
    return samples


def _accept(run: Run, system: DelaySystem, numbers: Numbers, samples: Samples) -> None:
    warm = run.count(50_000, 2_000)
    _later(system, numbers, warm)
    pending = min(PENDING, 20_000) if run.quick else PENDING
    accepted, seconds = _later(system, numbers, pending)
    samples["accepted"].append(accepted / seconds)
    system.wait_until_quiet()
    samples["memory"].append(system.resident_mb())
    samples["anonymous"].append(system.anonymous_mb())
    samples["disk"].append(system.disk_mb())
    if isinstance(system, KafkaDelay):
        samples["service"].append(system.service_mb())


def _later(system: DelaySystem, numbers: Numbers, count: int) -> tuple[int, float]:
    due = _now_ms() + HOUR_MS
    return system.send(Load(count, numbers.take(count), due_from=due, span=HOUR_MS))


def _lateness(run: Run, system: DelaySystem, numbers: Numbers, samples: Samples, rate: int) -> None:
    seconds = run.count(20, 4)
    count = seconds * rate
    load = Load(count, rate=rate, delay=DELAY_MS, span=DELAY_SPAN_MS)
    with system.receiving(f"steady-{rate}") as receiver:
        _wake(run, system, receiver, numbers)
        load.first = numbers.take(count)  # behind those that woke it
        began = _now_ms()
        cpu = system.processor_seconds()
        system.send(load)
        arrivals = _arrived(run, system, receiver, load, f"{rate} per second")
        cores = (system.processor_seconds() - cpu) / ((_now_ms() - began) / 1000)
    settled = min(SETTLE_MS, 1000 * seconds // 4)
    late = arrivals.lateness(due_after=began + DELAY_MS + settled)
    samples[f"p50 {rate}"].append(late[len(late) // 2])
    samples[f"p99 {rate}"].append(late[len(late) * 99 // 100])
    run.details.append(
        f"{run.target.name}, {rate} per second: largest {late[-1]} ms, {cores:.2f} cores"
    )


def _wake(run: Run, system: DelaySystem, receiver: Receiver, numbers: Numbers) -> None:
    """Until messages arrive: RocketMQ's consumers may need 20 s to be given their queues."""
    load = Load(WAKING, numbers.take(WAKING), delay=500)
    system.send(load)
    _arrived(run, system, receiver, load, "first messages of a receiver")


def _arrived(run: Run, system: DelaySystem, receiver: Receiver, load: Load, what: str) -> Arrivals:
    """What came of this load, complete and checked."""
    before = 0
    deadline = time.monotonic() + LATE_S
    while True:
        receiver.wait_for(before + load.count, within_s=5.0)
        arrivals = Arrivals.read(receiver.path, load.first)
        if len(arrivals.numbers) >= load.count or time.monotonic() > deadline:
            break
        before = receiver.count() - len(arrivals.numbers)  # older messages of the topic
    arrivals.check(f"{run.target.name}, {what}", load.count)
    return arrivals


def _burst(run: Run, system: DelaySystem, numbers: Numbers, samples: Samples) -> None:
    count = min(BURST, 20_000) if run.quick else BURST
    expected_s = count / samples["accepted"][-1]
    with system.receiving("burst") as receiver:
        _wake(run, system, receiver, numbers)
        due = _now_ms() + int(1000 * (2 * expected_s + 5))
        load = Load(count, numbers.take(count), due_from=due, span=1000)
        system.send(load)
        if _now_ms() > due:
            run.warnings.append(f"{run.target.name}: the burst was due before all of it was sent")
        time.sleep(max(0.0, due / 1000 - 1 - time.time()))
        probe = Probe(run, system) if isinstance(system, KafkaDelay) else None
        arrivals = _arrived(run, system, receiver, load, "burst")
    if probe is not None:
        samples["probe"].append(probe.p99_ms())
    took = (max(arrivals.received) - max(min(arrivals.received), due)) / 1000
    samples["delivered"].append(count / took)
    if isinstance(system, KafkaDelay):
        _check_order(run.target.name, arrivals)


def _check_order(name: str, arrivals: Arrivals) -> None:
    """Due order within each partition; the sender put message i into partition i mod 4."""
    first = min(arrivals.numbers)
    last = [0] * PARTITIONS
    for number, due in zip(arrivals.numbers, arrivals.due, strict=True):
        partition = (number - first) % PARTITIONS
        if due < last[partition]:
            raise AssertionError(f"{name}: message {number} came after one that was due later")
        last[partition] = due


class Probe:
    """Records through another topic, produced and consumed, while the burst goes on."""

    def __init__(self, run: Run, system: KafkaDelay) -> None:
        self._latencies: list[float] = []
        port = system.target.port
        with wire.connect(port) as connection:
            wire.create_topics_with(connection, [end_to_end.TOPIC], partitions=1)
        records = PROBE_RATE * run.count(15, 4)
        self._thread = threading.Thread(target=self._run, args=(port, records), daemon=True)
        self._thread.start()

    def _run(self, port: int, records: int) -> None:
        self._latencies = end_to_end.flow(port, records, first_offset=0, rate=PROBE_RATE)

    def p99_ms(self) -> float:
        self._thread.join(60)
        latencies = sorted(self._latencies)
        return 1000 * latencies[len(latencies) * 99 // 100]


def _restart(run: Run, system: DelaySystem, numbers: Numbers, samples: Samples) -> None:
    samples["restart"].append(_first_delivery_s(run, system, numbers, lambda: system.kill()))
    if not isinstance(system, KafkaDelay):
        return

    def lose_store() -> None:
        system.kill()
        shutil.rmtree(system.store)

    samples["rebuild"].append(_first_delivery_s(run, system, numbers, lose_store))


def _first_delivery_s(
    run: Run, system: DelaySystem, numbers: Numbers, strike: Callable[[], None]
) -> float:
    """From the start of the new process to the first record stored after it."""
    seconds = 90
    load = Load(100 * seconds, numbers.take(100 * seconds), due_from=_now_ms() + 2000)
    load.span = 1000 * seconds
    with system.receiving(f"restart-{load.first}") as receiver:
        system.send(load)
        system.wait_until_quiet(10)
        strike()
        began = time.time()
        system.start()
        deadline = time.monotonic() + LATE_S
        while time.monotonic() < deadline:
            stored = Arrivals.read(receiver.path, load.first).stored
            fresh = [moment for moment in stored if moment > began * 1000]
            if fresh:
                return min(fresh) / 1000 - began
            time.sleep(0.1)
    raise AssertionError(f"{run.target.name}: nothing was delivered after the restart")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


ROWS = (
    Row("accepted", "messages accepted", "per second", better=Better.MORE),
    Row("p50 1000", "lateness at 1,000 due per second, p50", "ms"),
    Row("p99 1000", "lateness at 1,000 due per second, p99", "ms"),
    Row(
        "p50 10000",
        "lateness at 10,000 due per second, p50",
        "ms",
        Goal(Better.LESS, absolute=15),
    ),
    Row(
        "p99 10000",
        "lateness at 10,000 due per second, p99",
        "ms",
        Goal(Better.LESS, ratio=0.2, absolute=50),
    ),
    Row(
        "delivered",
        "due within one second, delivered",
        "per second",
        Goal(Better.MORE, absolute=60_000),
    ),
    Row("probe", "another topic meanwhile, produce to consume, p99", "ms"),
    Row("memory", "memory of all processes, messages pending", "MB"),
    Row("anonymous", "of it without mapped files", "MB"),
    Row("service", "of it the delay service", "MB", Goal(Better.LESS, absolute=500)),
    Row("disk", "disk, messages pending", "MB"),
    Row("restart", "kill -9 of all to the first delivery", "s", Goal(Better.LESS, absolute=5)),
    Row("rebuild", "the same with the service's store lost", "s"),
)

BENCHMARK = Benchmark(
    f"Delayed messages, {PENDING:,} pending",
    ROWS,
    measure,
    rounds=1,
    systems=tuple(SYSTEMS),
    rivals=(ROCKETMQ, NATS),
)
