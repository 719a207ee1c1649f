"""An exactly-once copy while broker and copier are killed at chance moments; the checker decides.

The output must equal the input, in read_committed: no duplicate, no gap, no torn transaction.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
from confluent_kafka import TopicPartition

from tests.interop.brokers import Node
from tests.interop.topics import create_topic
from tests.soak.anomalies import Anomaly, Seen, find

PARTITIONS = 2
LONGEST_LIFE_S = 1.5
RECORDS_PER_S = 400
CATCH_UP_S = 90.0
PROJECT = Path(__file__).parent.parent.parent


@dataclass(slots=True)
class Copied:
    """What a run saw, for the report."""

    rounds: int
    seed: int
    records: int
    committed: int  # transactions
    aborted: int
    copiers: int
    anomalies: list[Anomaly]


class Source(threading.Thread):
    """Writes numbered records until told to stop; each is acknowledged before the end."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.written: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}
        self.over = threading.Event()
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )

    def run(self) -> None:
        number = 0
        while not self.over.wait(10 / RECORDS_PER_S):
            for _ in range(10):
                partition, value = number % PARTITIONS, f"{number:08}"
                self._producer.produce(self._topic, value.encode(), partition=partition)
                self.written[partition].append(value)
                number += 1
            self._producer.poll(0)

    def stop(self) -> None:
        self.over.set()
        self.join()
        assert self._producer.flush(CATCH_UP_S) == 0, "the source was not acknowledged"


class CopierProcess:
    """Keeps one copier running, as a supervisor would, and kills it when told to."""

    def __init__(self, node: Node, source: str, target: str, folder: Path) -> None:
        self.journal = folder / "journal"
        self.journal.touch()
        self.started = 0
        self._words = [node.bootstrap, source, target, "exactly-once", str(self.journal)]
        self._errors = (folder / "copier.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def keep_running(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.started += 1
            command = [sys.executable, "-m", "tests.soak.copier", *self._words, str(self.started)]
            self._process = subprocess.Popen(command, cwd=PROJECT, stderr=self._errors)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def told(self, what: str) -> list[str]:
        """Transactions that were said to have ended so; a torn last line is of no use."""
        lines = self.journal.read_text(encoding="utf-8").split("\n")[:-1]
        return [line.split(" ", 1)[1] for line in lines if line.startswith(what + " ")]


def run_copy(node: Node, folder: Path, rounds: int, seed: int) -> Copied:
    """`node` is running; it and the copier are killed `rounds` times in turn, as chance says."""
    moments = random.Random(seed)
    source = create_topic(node.bootstrap, f"copied-from-{seed}", partitions=PARTITIONS)
    target = create_topic(node.bootstrap, f"copied-to-{seed}", partitions=PARTITIONS)
    writer = Source(node.bootstrap, source)
    copier = CopierProcess(node, source, target, folder)
    writer.start()
    try:
        for _ in range(rounds):
            run_for(copier, moments.uniform(0.2, LONGEST_LIFE_S))
            if moments.random() < 0.5:
                copier.kill()
            else:
                node.kill()
                node.start()
        run_for(copier, 1.0)
        writer.stop()
        seen = catch_up(node, target, copier, sum(map(len, writer.written.values())))
    finally:
        copier.kill()
    committed, aborted = copier.told("committed"), copier.told("aborted")
    return Copied(
        rounds,
        seed,
        len(seen),
        len(committed),
        len(aborted),
        copier.started,
        find(dict(writer.written), seen, aborted=aborted, committed=committed),
    )


def run_for(copier: CopierProcess, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        copier.keep_running()
        time.sleep(0.05)


def catch_up(node: Node, target: str, copier: CopierProcess, expected: int) -> list[Seen]:
    """What is there when nothing more comes; at least as much as was written, if all is well."""
    deadline = time.monotonic() + CATCH_UP_S
    while True:
        run_for(copier, 1.0)
        seen = read_committed(node, target)
        if len(seen) >= expected or time.monotonic() > deadline:
            run_for(copier, 1.0)  # a duplicate would come now
            return read_committed(node, target)


def read_committed(node: Node, topic: str) -> list[Seen]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "reads-by-assignment",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    seen: list[Seen] = []
    ended: set[int] = set()
    deadline = time.monotonic() + CATCH_UP_S
    try:
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, "the end of the copy did not come"
            for message in consumer.consume(500, 0.2):
                if message.error():
                    assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                    ended.add(message.partition())
                    continue
                headers = dict(message.headers() or [])
                seen.append(
                    Seen(
                        message.partition(),
                        message.value().decode(),
                        headers["transaction"].decode(),
                        int(headers["of"]),
                    )
                )
    finally:
        consumer.close()
    return seen
