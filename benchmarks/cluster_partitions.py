"""What do a thousand replicated partitions cost a cluster of three, and ten thousand (`--large`)?

Topics of 500 partitions with three replicas each. Create: from the first request until all replicas
are in sync, as Metadata says. Idle: processor time of all three nodes while nothing is asked, after
a rest. Death: kill -9 of one node, until no partition is led by it. Restart: that node is started
again, until all its replicas are in sync. No warm-up.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.wire.protocol.messages import create_topics, metadata

from . import wire
from .benchmark import Benchmark, Run
from .clusters import Cluster
from .results import Better, Goal, Row, Samples

PER_TOPIC = 500
WITHIN_S = 600.0


def measure(run: Run) -> Samples:
    count = 10_000 if run.large else run.count(1_000, 100)
    with Cluster.start(run.target) as cluster:
        names = [f"many-{number}" for number in range(max(1, count // PER_TOPIC))]
        used = cluster.processor_seconds()
        begin = time.perf_counter()
        create(cluster, names, count // len(names))
        wait(cluster, lambda each: len(each.isr_nodes) == 3)
        samples = {"create": [time.perf_counter() - begin], "memory": [cluster.resident_mb()]}
        time.sleep(run.amount(10.0, 1.0))
        samples["create cpu"] = [cluster.processor_seconds() - used]
        samples["idle"] = [idle_processor_time(cluster, run.amount(30.0, 3.0))]
        dead = next(iter(cluster.processes))
        begin = time.perf_counter()
        cluster.kill_node(dead)
        wait(cluster, lambda each: each.leader_id not in (dead, -1))
        samples["death"] = [time.perf_counter() - begin]
        begin = time.perf_counter()
        cluster.start_node(dead)
        wait(cluster, lambda each: len(each.isr_nodes) == 3)
        samples["restart"] = [time.perf_counter() - begin]
    return samples


def create(cluster: Cluster, names: list[str], partitions: int) -> None:
    """One request for each topic, as an administrator's script sends them."""
    with wire.connect(cluster.port) as connection:
        for name in names:
            topic = create_topics.CreatableTopic(name, partitions, 3)
            request = create_topics.CreateTopicsRequest([topic], timeout_ms=60_000)
            answer = wire.ask(connection, create_topics, wire.CREATE_TOPICS_VERSION, request)
            wire.succeed(answer.topics[0].error_code, f"create {name}")


def wait(cluster: Cluster, is_so: Callable[[metadata.MetadataResponsePartition], bool]) -> None:
    """Until each partition is so, as a node that lives says."""
    deadline = time.perf_counter() + WITHIN_S
    while time.perf_counter() < deadline:
        with wire.connect(cluster.port) as connection:
            request = metadata.MetadataRequest(topics=None)
            answer = wire.ask(connection, metadata, wire.METADATA_VERSION, request)
        found = [each for topic in answer.topics for each in topic.partitions]
        if found and all(map(is_so, found)):
            return
        time.sleep(0.05)
    raise TimeoutError("the partitions never came to be so")


def idle_processor_time(cluster: Cluster, seconds: float) -> float:
    """Milliseconds per second, of all nodes."""
    used = cluster.processor_seconds()
    begin = time.perf_counter()
    time.sleep(seconds)
    return 1e3 * (cluster.processor_seconds() - used) / (time.perf_counter() - begin)


BENCHMARK = Benchmark(
    "A thousand replicated partitions",
    (
        Row("create", "create them, until all replicas are in sync", "s", Goal(Better.LESS, 1.0)),
        Row("create cpu", "processor time of that, and of 10 s after", "s", Goal(Better.LESS, 1.0)),
        Row("memory", "memory of three brokers then", "MB", Goal(Better.LESS, 0.15)),
        Row("idle", "processor time of three idle brokers", "ms/s", Goal(Better.LESS, 1.0)),
        Row("death", "until another leads, after kill -9 of a node", "s", Goal(Better.LESS, 1.0)),
        Row("restart", "that node starts again, until in sync", "s", Goal(Better.LESS, 1.0)),
    ),
    measure,
    rounds=1,
)
