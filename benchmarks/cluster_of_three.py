"""What do three brokers cost that have every record three times, and how fast do they get over a
death?

rf 3, min.insync.replicas 2, acks=all. Produce: three producers, each at the leader of a partition,
records of 1,000 bytes in batches of 16 KiB and of 256 KiB, a fixed amount; processor time is that
of all three brokers. Latency: one record per request, 200 per second, one after the other. A death:
the leader of a partition is killed (-9); a producer that looks for the new leader all the time is
away until its first acknowledged record, a consumer until it has what was acknowledged before. Once
more under the parent of `headrace start --brokers 3`, which tells the controller. Warm-up of the
loads as in `produce_throughput.py`.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from . import wire
from .benchmark import Benchmark, Run
from .clusters import Cluster, Watched, sync_disks
from .load import Line, Usage, drive
from .processes import machine_busy_seconds, own_processor_seconds
from .results import HEADRACE, Better, Goal, Row, Samples
from .warm_up import LIMIT_S, until_steady

PARTITIONS = 3
VALUE_SIZE = 1_000
RECORDS = {"16 KiB": 16, "256 KiB": 258}
LATENCY_RATE = 200  # requests per second
AWAY_AT_MOST_S = 60.0


def measure(run: Run) -> Samples:
    samples: Samples = {}
    with Cluster.start(run.target) as cluster:
        samples["start"] = [cluster.start_s]
        samples["idle memory"] = [cluster.resident_mb()]
        for size, records in RECORDS.items():
            load = ClusterLoad(cluster, f"produce-{records}", records)
            megabytes, usage = load.take(run)
            run.watch_noise(f"three brokers, {size}", usage)
            samples[f"{size} cpu"] = [usage.broker_s / (megabytes / 1000)]
            samples[f"{size} rate"] = [megabytes / usage.wall_s]
        samples["p50"], samples["p99"] = latencies(run, cluster)
        samples["memory"] = [cluster.resident_mb()]
        produced, read = seconds_away(cluster)
        samples["death"], samples["read"] = [produced], [read]
    samples["word"] = samples["death"]
    if run.target.name == HEADRACE:
        with Watched.start(run.target) as watched:
            samples["word"] = [seconds_away(watched)[0]]
    return samples


class ClusterLoad:
    """A producer at the leader of each partition, all sending the same batch."""

    def __init__(self, cluster: Cluster, topic: str, records: int) -> None:
        self.cluster = cluster
        cluster.create_topic(topic, PARTITIONS)
        batch = wire.batch_of(records, VALUE_SIZE)
        self.lines = [
            Line.open_once_led(
                cluster.port_of(topic, index, PARTITIONS), wire.produce_frame(topic, index, batch)
            )
            for index in range(PARTITIONS)
        ]
        self.topic, self.records, self.requests = topic, records, PARTITIONS

    @property
    def frame_size(self) -> int:
        return self.lines[0].frame_size

    def take(self, run: Run) -> tuple[float, Usage]:
        """Warm up, then MB sent and what that used."""
        cluster = self.cluster
        until_steady(
            cluster,
            self.run_for,
            limit_s=run.amount(LIMIT_S, 2.0),
            limit_amount=run.amount(800e6, 50e6) / self.frame_size,
        )
        sync_disks()
        each = int(run.amount(600e6, 90e6) / self.frame_size / PARTITIONS)
        busy, own, used = (
            machine_busy_seconds(),
            own_processor_seconds(),
            cluster.processor_seconds(),
        )
        begin = time.perf_counter()
        self._send(each, begin + 1e9)
        wall_s = time.perf_counter() - begin
        brokers_s = cluster.processor_seconds() - used
        client_s = own_processor_seconds() - own
        others_s = machine_busy_seconds() - busy - brokers_s - client_s
        self.close()
        megabytes = each * PARTITIONS * self.frame_size / 1e6
        return megabytes, Usage(wall_s, brokers_s, client_s, others_s)

    def run_for(self, seconds: float) -> float:
        return self._send(1 << 60, time.perf_counter() + seconds)

    def _send(self, each: int, deadline: float) -> int:
        before = sum(line.answered for line in self.lines)
        for line in self.lines:
            line.left = each
        drive(self.lines, deadline)
        done = sum(line.answered for line in self.lines) - before
        self.requests += done
        return done

    def close(self) -> None:
        """Check that the leaders hold exactly what they acknowledged."""
        for line in self.lines:
            line.socket.close()
        ends = 0
        for index in range(PARTITIONS):
            with wire.connect(self.cluster.port_of(self.topic, index, PARTITIONS)) as connection:
                ends += wire.end_offset(connection, self.topic, index)
        if ends != self.requests * self.records:
            raise AssertionError(
                f"{self.requests * self.records} were acknowledged, {ends} are there"
            )


def latencies(run: Run, cluster: Cluster) -> tuple[list[float], list[float]]:
    """p50 and p99 in ms of acknowledged single records."""
    cluster.create_topic("latency", 1)
    frame = wire.produce_frame("latency", 0, wire.batch_of(1, 100))
    count = run.count(3_000, 400)
    taken: list[float] = []
    with wire.connect(cluster.port_of("latency", 0, 1)) as connection:
        begin = time.perf_counter()
        for number in range(2 * count):  # the first half warms up
            due = begin + number / LATENCY_RATE
            time.sleep(max(0.0, due - time.perf_counter()))
            sent = time.perf_counter()
            connection.sendall(frame)
            wire.check_produced(wire.receive_frame(connection))
            taken.append(1000 * (time.perf_counter() - sent))
    measured = sorted(taken[count:])
    return [measured[count // 2]], [measured[count * 99 // 100]]


def seconds_away(cluster: Cluster) -> tuple[float, float]:
    """From a leader's death to the next acknowledged record of its partition, and to that of
    before being read from the next leader."""
    cluster.create_topic("mortal", 1)
    leader = cluster.leader_of("mortal", 0, 1)
    frame = wire.produce_frame("mortal", 0, wire.batch_of(1, 100))
    with wire.connect(cluster.ports[leader]) as connection:
        connection.sendall(frame)
        wire.check_produced(wire.receive_frame(connection))
    reading = wire.fetch_frame("mortal", 0, 0, max_bytes=1 << 20, max_wait_ms=20)
    cluster.kill_node(leader)
    begin = time.perf_counter()

    def read(connection: socket.socket) -> None:
        connection.sendall(reading)
        if not wire.fetched_records(wire.receive_frame(connection)):
            raise wire.Refused("it is not known to be committed yet")

    def produced(connection: socket.socket) -> None:
        connection.sendall(frame)
        wire.check_produced(wire.receive_frame(connection))

    _when_done(cluster, read)
    read_s = time.perf_counter() - begin
    _when_done(cluster, produced)
    return time.perf_counter() - begin, read_s


def _when_done(cluster: Cluster, work: Callable[[socket.socket], None]) -> None:
    """As soon as a living leader does it."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < AWAY_AT_MOST_S:
        try:
            now = cluster.leader_of("mortal", 0, 1)
            if now in cluster.living:
                with wire.connect(cluster.ports[now]) as connection:
                    work(connection)
                return
        except (wire.Refused, OSError):
            pass
        time.sleep(0.02)
    raise TimeoutError("nobody took over")


BENCHMARK = Benchmark(
    "A cluster of three",
    (
        Row(
            "start", "start until three brokers know each other", "s", Goal(Better.LESS, ratio=0.5)
        ),
        Row(
            "16 KiB cpu",
            "rf 3, batches of 16 KiB, brokers' CPU",
            "s/GB",
            Goal(Better.LESS, ratio=0.5),
        ),
        Row("16 KiB rate", "rf 3, batches of 16 KiB", "MB/s"),
        Row(
            "256 KiB cpu",
            "rf 3, batches of 256 KiB, brokers' CPU",
            "s/GB",
            Goal(Better.LESS, ratio=0.5),
        ),
        Row("256 KiB rate", "rf 3, batches of 256 KiB", "MB/s"),
        Row("p50", "one record acknowledged by all, p50", "ms", Goal(Better.LESS, ratio=0.5)),
        Row("p99", "one record acknowledged by all, p99", "ms", Goal(Better.LESS, ratio=0.5)),
        Row("idle memory", "memory of three idle brokers", "MB", Goal(Better.LESS, ratio=0.15)),
        Row("memory", "memory after the loads", "MB", Goal(Better.LESS, ratio=0.15)),
        Row(
            "death",
            "a producer is away after kill -9 of a leader",
            "s",
            Goal(Better.LESS, ratio=1.1),
        ),
        Row(
            "read",
            "a consumer is away after kill -9 of a leader",
            "s",
            Goal(Better.LESS, ratio=1.1),
        ),
        Row(
            "word",
            "a producer is away, under `start --brokers 3`",
            "s",
            Goal(Better.LESS, ratio=0.5),
        ),
    ),
    measure,
    rounds=1,
)
