"""An exactly-once copy while broker and copiers are killed or halted; the checker decides.

The output must equal the input, in read_committed: no duplicate, no gap, order kept, nothing torn.
The input itself is compared with what its writers were told. What happens when comes from a seed,
which a failure names.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
from confluent_kafka import TopicPartition

from headrace.client.consumer.fetched import headers_of
from tests import patience
from tests.interop.brokers import Node
from tests.interop.topics import create_topic
from tests.soak.anomalies import Anomaly, Isolation, Seen, Written, find
from tests.soak.copier import SESSION_MS, transformed
from tests.soak.feeding import PARTITIONS, Feeder, TransactionalFeeder

SHORTEST_LIFE_S, LONGEST_LIFE_S = 0.3, 4.0
CATCH_UP_S = 90.0
MOST_COPIERS = 2
PROJECT = Path(__file__).parent.parent.parent
EVENTS = ("broker killed", "copier killed", "both killed", "copier halted")

# Sessions and forgotten transactions end within seconds, so that a run sees many of them end.
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


@dataclass(slots=True)
class Copied:
    """What a run saw, for the report."""

    rounds: int
    seed: int
    records: int
    committed: int  # transactions of the copiers
    aborted: int
    refused: int
    fed: int  # transactions of the source
    fed_aborted: int
    copiers: int
    events: dict[str, int]
    anomalies: list[Anomaly]


class CopierProcess:
    """Keeps one copier running, as a supervisor would, and kills or halts it when told to."""

    def __init__(self, words: list[str], slot: int, folder: Path, protocol: str) -> None:
        self.journal = folder / f"journal-{slot}"
        self.journal.touch()
        self.started = 0
        self._words = [*words, str(slot), str(self.journal)]
        self._protocol = protocol
        self._errors = (folder / f"copier-{slot}.log").open("ab")
        self.process: subprocess.Popen[bytes] | None = None

    def keep_running(self, halt: str = "never") -> None:
        if self.process is None or self.process.poll() is not None:
            self.started += 1
            words = [*self._words, str(self.started), self._protocol, halt]
            command = [sys.executable, "-m", "tests.soak.copier", *words]
            self.process = subprocess.Popen(command, cwd=PROJECT, stderr=self._errors)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def halt(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGCONT)

    def told(self, what: str) -> list[str]:
        """Transactions of which the journal says so; a torn last line is of no use."""
        lines = self.journal.read_text(encoding="utf-8").split("\n")[:-1]
        return [line.split(" ")[1] for line in lines if line.startswith(what + " ")]


class Copy:
    """The topics, their feeders and the copiers of one run."""

    def __init__(self, node: Node, folder: Path, seed: int, protocol: str) -> None:
        self.node = node
        self.source = create_topic(node.bootstrap, f"copied-from-{seed}", partitions=PARTITIONS)
        self.target = create_topic(node.bootstrap, f"copied-to-{seed}", partitions=PARTITIONS)
        kinds = (Feeder, TransactionalFeeder)
        self.feeders = [kind(node.bootstrap, self.source, seed) for kind in kinds]
        words = [node.bootstrap, self.source, self.target, f"exactly-once-{seed}"]
        self.copiers = [
            CopierProcess(words, slot, folder, protocol) for slot in range(MOST_COPIERS)
        ]
        self.working = 1

    def run_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for copier in self.copiers[: self.working]:
                copier.keep_running()
            time.sleep(0.05)

    def happen(self, event: str, victim: CopierProcess) -> None:
        if event in ("copier killed", "both killed"):
            victim.kill()
        if event in ("broker killed", "both killed"):
            self.node.kill()
            self.node.start()
        if event == "copier halted":
            victim.halt()
            self.run_for(SESSION_MS / 1000 + 1.5)
            victim.go_on()

    def end(self) -> list[Anomaly]:
        """Let the copiers finish what was written, and compare."""
        for feeder in self.feeders:
            feeder.stop()
        fed = read_back(self.node, self.source)
        all_of_it = read_back(self.node, self.source, "read_uncommitted")
        copied = self.catch_up(len(fed))
        written = [record for feeder in self.feeders for record in feeder.written()]
        committed = [name for feeder in self.feeders for name in feeder.committed]
        aborted = [name for feeder in self.feeders for name in feeder.aborted]
        found = find(written, fed, committed=committed, aborted=aborted)
        found += find(written, all_of_it, committed=committed, isolation="read_uncommitted")
        return found + find(
            [Written(record.partition, transformed(record.value), record.key) for record in fed],
            copied,
            committed=self.told("committed"),
            aborted=self.told("aborted"),
        )

    def catch_up(self, expected: int) -> list[Seen]:
        """What is there when nothing more comes; as much as was fed, if all is well."""
        deadline = time.monotonic() + CATCH_UP_S
        while True:
            self.run_for(1.0)
            seen = read_back(self.node, self.target)
            if len(seen) >= expected or time.monotonic() > deadline:
                self.run_for(1.0)  # a duplicate would come now
                return read_back(self.node, self.target)

    def told(self, what: str) -> list[str]:
        return [name for copier in self.copiers for name in copier.told(what)]

    def __enter__(self) -> Copy:
        for feeder in self.feeders:
            feeder.start()
        return self

    def __exit__(self, *_: object) -> None:
        for copier in self.copiers:
            copier.kill()


def run_copy(node: Node, folder: Path, rounds: int, seed: int, protocol: str = "classic") -> Copied:
    """`node` runs with `SETTINGS`; in each round chance says who lives how long, what happens."""
    chance = random.Random(seed)
    happened = dict.fromkeys(EVENTS, 0)
    with Copy(node, folder, seed, protocol) as copy:
        first, second = copy.copiers
        for event in dealt(rounds, chance):
            copy.working = chance.randint(1, MOST_COPIERS)
            if copy.working == 1:
                second.kill()
            copy.run_for(chance.uniform(SHORTEST_LIFE_S, LONGEST_LIFE_S))
            copy.happen(event, chance.choice([first, second][: copy.working]))
            happened[event] += 1
        copy.run_for(1.0)
        anomalies = copy.end()
        records = len(read_back(node, copy.target))
    source = copy.feeders[1]
    return Copied(
        rounds,
        seed,
        records,
        len(copy.told("committed")),
        len(copy.told("aborted")),
        len(copy.told("refused")),
        len(source.committed),
        len(source.aborted),
        sum(copier.started for copier in copy.copiers),
        happened,
        anomalies,
    )


def dealt(rounds: int, chance: random.Random) -> list[str]:
    """Events as from a shuffled deck: few rounds see many kinds of them."""
    events: list[str] = []
    while len(events) < rounds:
        events += chance.sample(EVENTS, len(EVENTS))
    return events[:rounds]


def run_late_commit(
    node: Node, folder: Path, where: str, protocol: str = "classic"
) -> list[Anomaly]:
    """A copier sleeps in the middle of a transaction until another has taken over, and wakes up."""
    with Copy(node, folder, 0, protocol) as copy:
        sleeper, other = copy.copiers
        sleeper.keep_running(halt=where)
        wait_until(lambda: bool(sleeper.told("halted")), "the copier never halted")
        copy.working = 0
        other.keep_running()
        wait_until(lambda: len(other.told("committed")) > 2, "nobody took over")
        sleeper.go_on()
        (late,) = sleeper.told("halted")
        ended = ("refused", "committed")
        wait_until(lambda: any(late in sleeper.told(how) for how in ended), "no late commit came")
        assert late not in sleeper.told("committed"), "the late commit was not refused"
        copy.working = MOST_COPIERS
        return copy.end()


def wait_until(true: Callable[[], bool], otherwise: str) -> None:
    patience.until(true, otherwise, within_s=CATCH_UP_S, every_s=0.05)


def read_back(node: Node, topic: str, isolation: Isolation = "read_committed") -> list[Seen]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "reads-by-assignment",
            "isolation.level": isolation,
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
            assert time.monotonic() < deadline, f"the end of {topic} did not come"
            for message in consumer.consume(500, 0.2):
                if message.error():
                    assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                    ended.add(message.partition())
                else:
                    seen.append(as_seen(message))
    finally:
        consumer.close()
    return seen


def as_seen(message: confluent_kafka.Message) -> Seen:
    key, value, partition = message.key(), message.value(), message.partition()
    assert key is not None and value is not None and partition is not None
    headers = dict(headers_of(message))
    transaction = headers.get("transaction")
    return Seen(
        partition,
        value.decode(),
        key.decode(),
        message.offset(),
        transaction.decode() if transaction else None,
        int(headers.get("of", 1)),
    )
