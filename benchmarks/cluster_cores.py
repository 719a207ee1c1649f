"""Does a second broker process use the second core? `headrace start --brokers 2` beside one broker.

Four producers, each at the leader of a partition: batches of 16 KiB of records of 1,000 bytes for
MB/s, one record of 100 bytes per request for requests per second; acks=all. Headrace: one broker,
two with one replica, two with two replicas. Apache Kafka is one broker with all cores in each of
these rows, and has one replica. Warm-up of the loads as in `produce_throughput.py`.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.wire.protocol.messages import create_topics, metadata

from . import wire
from .benchmark import Benchmark, Run
from .brokers import HOST, cache_byte_code, free_port
from .clusters import program
from .load import Line, drive
from .results import HEADRACE, Better, Goal, Row, Samples

PRODUCERS = 4
KINDS = {"16 KiB": (16, 1_000), "one record": (1, 100)}
READY_WITHIN_S = 120.0
SHAPES = {"one": (1, 1), "two, one replica": (2, 1), "two, two replicas": (2, 2)}


def measure(run: Run) -> Samples:
    samples: Samples = {}
    for shape, (brokers, replicas) in SHAPES.items():
        if brokers == 1:
            with run.target.start() as broker:
                rates = loads(run, broker.port, 1)
        elif run.target.name == HEADRACE:
            with started(run, brokers) as port:
                rates = loads(run, port, replicas)
        # else: Apache Kafka's one broker once more would only take longer
        for kind, rate in rates.items():
            samples[f"{shape}, {kind}"] = [rate]
    return samples


@contextmanager
def started(run: Run, brokers: int) -> Iterator[int]:
    """`headrace start --brokers N`; the port of the first."""
    cache_byte_code()
    folder = run.target.folder / f"of-{brokers}" / "data"
    if folder.parent.exists():
        shutil.rmtree(folder.parent)
    folder.parent.mkdir()
    # As in `headrace start --brokers`, each broker has the next port.
    port = free_port(brokers)
    where = ["--data", str(folder), "--listen", f"{HOST}:{port}", "--json"]
    command = [program(), "start", "--brokers", str(brokers), *where]
    with (folder.parent / "broker.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        if not said:
            raise RuntimeError(f"no start:\n{(folder.parent / 'broker.log').read_text()[-2000:]}")
        assert len(json.loads(said)["brokers"]) == brokers, said
        yield port
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()


def loads(run: Run, port: int, replicas: int) -> dict[str, float]:
    rates = {}
    for kind, (records, size) in KINDS.items():
        topic = f"load-{records}"
        ports = leaders(port, topic, replicas)
        batch = wire.batch_of(records, size)
        lines = [
            Line.open_once_led(leader, wire.produce_frame(topic, index, batch))
            for index, leader in enumerate(ports)
        ]
        send(lines, run.amount(10.0, 1.0))
        begin = time.perf_counter()
        done = send(lines, run.amount(8.0, 1.0))
        seconds = time.perf_counter() - begin
        for line in lines:
            line.socket.close()
        per_request = lines[0].frame_size / 1e6 if records > 1 else 1
        rates[kind] = done * per_request / seconds
    return rates


def send(lines: list[Line], seconds: float) -> int:
    before = sum(line.answered for line in lines)
    for line in lines:
        line.left = 1 << 60
    drive(lines, time.perf_counter() + seconds)
    return sum(line.answered for line in lines) - before


def leaders(port: int, topic: str, replicas: int) -> list[int]:
    """The port of each partition's leader, once all replicas are in sync."""
    wanted = create_topics.CreatableTopic(topic, PRODUCERS, replicas)
    request = create_topics.CreateTopicsRequest([wanted], timeout_ms=wire.REQUEST_TIMEOUT_MS)
    with wire.connect(port) as connection:
        answer = wire.ask(connection, create_topics, wire.CREATE_TOPICS_VERSION, request)
        wire.succeed(answer.topics[0].error_code, f"create {topic}")
        deadline = time.perf_counter() + READY_WITHIN_S
        while time.perf_counter() < deadline:
            asked = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=topic)])
            answer = wire.ask(connection, metadata, wire.METADATA_VERSION, asked)
            places = {broker.node_id: broker.port for broker in answer.brokers}
            found = sorted(answer.topics[0].partitions, key=lambda each: each.partition_index)
            if len(found) == PRODUCERS and all(
                each.leader_id in places and len(each.isr_nodes) == replicas for each in found
            ):
                return [places[each.leader_id] for each in found]
            time.sleep(0.02)
    raise TimeoutError(f"{topic} has no leaders")


BENCHMARK = Benchmark(
    "One machine, two broker processes",
    tuple(
        Row(
            f"{shape}, {kind}",
            f"{shape}{' broker' if shape == 'one' else ''}, {kind}",
            "MB/s" if kind == "16 KiB" else "requests/s",
            Goal(Better.MORE, 1.0) if shape == "two, one replica" else None,
            better=Better.MORE,
        )
        for shape in SHAPES
        for kind in KINDS
    ),
    measure,
    rounds=1,
)
