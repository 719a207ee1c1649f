"""A cluster of three under load while its nodes are killed and halted; the checker decides.

Idempotent and transactional producers, a group of each protocol; one node at a time is killed (-9),
halted (SIGSTOP) or cut off from all others past its session, whichever roles it has then. What must
hold: nothing acknowledged is lost, doubled, reordered, torn or read though aborted; no committed
offset goes back; both groups have read everything; all replicas come in sync again after each
fault. How long producers heard nothing is told for each kind. What happens when comes from a seed.
"""

from __future__ import annotations

import random
import signal
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic

from tests.soak.anomalies import Anomaly, find, told
from tests.soak.exactly_once import read_back
from tests.soak.feeding import PARTITIONS, Feeder, TransactionalFeeder
from tests.soak.three_nodes import ThreeNodes, is_stopped, wait_until

KILLED, HALTED, CUT_OFF = "killed", "halted", "cut off"
GONE_FOR_S = 12.0  # longer than broker.session.timeout.ms
LONGEST_AWAY_S = 3.0
SHORTEST_PEACE_S, LONGEST_PEACE_S = 1.0, 4.0
READ_WITHIN_S = 120.0
READER = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "socket.timeout.ms": 5_000,
    "reconnect.backoff.max.ms": 200,
    "log_level": 0,
}


@dataclass(slots=True)
class Survived:
    """What a run saw, for the report."""

    seed: int
    acknowledged: int
    committed: int  # transactions
    aborted: int
    unclear: int
    commits: int  # of the groups
    faults: dict[str, int]
    silences_s: dict[str, list[float]]  # of the idempotent producer's worst partition, by fault
    started_in_s: float
    anomalies: list[Anomaly]

    def median_silence_s(self, kind: str) -> float:
        return statistics.median(self.silences_s[kind]) if self.silences_s[kind] else 0.0


class TimedFeeder(Feeder):
    """Remembers when each partition was last heard of."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        super().__init__(bootstrap, topic, seed)
        self.heard: dict[int, list[float]] = defaultdict(list)

    def _answered(self, error: Any, message: Any) -> None:
        super()._answered(error, message)
        if error is None:
            self.heard[message.partition()].append(time.monotonic())

    def silence_between(self, begin: float, end: float) -> float:
        """The longest time without an acknowledgement, of the partition that waited longest."""
        longest = 0.0
        for times in self.heard.values():
            within = [begin, *(t for t in times if begin < t < end), end]
            longest = max(longest, *(b - a for a, b in pairwise(within)))
        return longest


class GroupReader(threading.Thread):
    """One group with one member, which commits what it has read and remembers what it was told."""

    def __init__(self, bootstrap: str, topic: str, protocol: str) -> None:
        super().__init__(daemon=True)
        self.group = f"reads-{protocol}"
        self.topic = topic
        self.settings = {"bootstrap.servers": bootstrap, "group.id": self.group} | READER
        self.settings["group.protocol"] = protocol
        if protocol == "classic":
            self.settings["session.timeout.ms"] = 10_000
        self.values: set[str] = set()
        self.promised: dict[int, int] = {}  # the offset that was last acknowledged as committed
        self.commits = 0
        self.faults: list[str] = []
        self._over = threading.Event()

    def run(self) -> None:
        consumer = confluent_kafka.Consumer(self.settings)
        consumer.subscribe([self.topic])
        while not self._over.is_set():
            records = consumer.consume(500, 0.2)
            for record in records:
                if record.error() is None:
                    self.values.add(record.value().decode())
            if records:
                self._commit(consumer)
        consumer.close()

    def _commit(self, consumer: confluent_kafka.Consumer) -> None:
        try:
            done = consumer.commit(asynchronous=False)
        except KafkaException:
            return  # not promised; the next commit says more
        self.commits += 1
        for place in done or []:
            if place.error is None and place.offset >= 0:
                self.promised[place.partition] = place.offset

    def stop(self) -> None:
        self._over.set()
        self.join(60)
        assert not self.is_alive(), f"the reader of {self.group} never ended"

    def check(self) -> list[Anomaly]:
        """What the group's coordinator says now, beside what it has promised."""
        consumer = confluent_kafka.Consumer(self.settings)
        wanted = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        found = {place.partition: place.offset for place in consumer.committed(wanted, 60)}
        consumer.close()
        return [
            Anomaly("committed offset gone back", number, f"{found[number]} after {offset}")
            for number, offset in self.promised.items()
            if found[number] < offset
        ]


@dataclass(slots=True)
class Trial:
    """The load on a cluster and the faults that are done to it."""

    cluster: ThreeNodes
    seed: int
    kinds: tuple[str, ...] = (KILLED, HALTED, CUT_OFF)
    moments: list[tuple[str, float, float]] = field(default_factory=list)

    def run(self, goes_on: Callable[[int], bool]) -> Survived:
        """`goes_on`: whether there is to be another fault after so many."""
        chance = random.Random(self.seed)
        topic = self._make_topic()
        idempotent = TimedFeeder(self.cluster.bootstrap, topic, self.seed)
        transactional = TransactionalFeeder(self.cluster.bootstrap, topic, self.seed + 1)
        feeders: list[Feeder] = [idempotent, transactional]
        readers = [
            GroupReader(self.cluster.bootstrap, topic, protocol)
            for protocol in ("classic", "consumer")
        ]
        for thread in (*feeders, *readers):
            thread.start()
        number = 0
        while goes_on(number):
            time.sleep(chance.uniform(SHORTEST_PEACE_S, LONGEST_PEACE_S))
            self._do(self.kinds[number % len(self.kinds)], chance)
            number += 1
        time.sleep(SHORTEST_PEACE_S)
        for feeder in feeders:
            feeder.stop()
        anomalies = self._compare(topic, feeders, readers)
        silences: dict[str, list[float]] = {kind: [] for kind in self.kinds}
        for kind, begin, end in self.moments:
            silences[kind].append(idempotent.silence_between(begin, end))
        return Survived(
            self.seed,
            sum(record.acknowledged for feeder in feeders for record in feeder.written()),
            len(transactional.committed),
            len(transactional.aborted),
            len(transactional.unclear),
            sum(reader.commits for reader in readers),
            {kind: len(some) for kind, some in silences.items()},
            silences,
            self.cluster.started_in_s,
            anomalies,
        )

    def _make_topic(self) -> str:
        name = f"survives-{self.seed}"
        topic = NewTopic(name, PARTITIONS, 3, config={"retention.ms": "-1"})
        self.cluster.admin.create_topics([topic])[name].result(60)
        self.cluster.wait_in_sync()
        return name

    def _do(self, kind: str, chance: random.Random) -> None:
        """To one node, until all replicas are in sync again."""
        victim = chance.choice(self.cluster.members)
        began = time.monotonic()
        if kind == KILLED:
            victim.kill()
            time.sleep(chance.uniform(0.0, LONGEST_AWAY_S))
            victim.start()
        elif kind == CUT_OFF:
            assert self.cluster.network is not None, "it has no cable of its own"
            self.cluster.network.cut(victim.node_id)
            time.sleep(GONE_FOR_S)
            self.cluster.network.restore(victim.node_id)
        else:
            assert victim.process is not None
            victim.process.send_signal(signal.SIGSTOP)
            wait_until(lambda: is_stopped(victim), "the node was not halted")
            time.sleep(GONE_FOR_S)
            victim.process.send_signal(signal.SIGCONT)
        self.cluster.wait_in_sync()
        self.moments.append((kind, began, time.monotonic()))

    def _compare(
        self, topic: str, feeders: list[Feeder], readers: list[GroupReader]
    ) -> list[Anomaly]:
        committed = [name for feeder in feeders for name in feeder.committed]
        aborted = [name for feeder in feeders for name in feeder.aborted]
        written = [record for feeder in feeders for record in feeder.written()]
        any_node: Any = self.cluster
        seen = read_back(any_node, topic)
        raw = read_back(any_node, topic, "read_uncommitted")
        found = find(written, seen, committed=committed, aborted=aborted)
        found += find(written, raw, committed=committed, isolation="read_uncommitted")
        values = {record.value for record in seen}
        for reader in readers:
            wait_until(
                lambda reader=reader: values <= reader.values,  # type: ignore[misc]
                f"{reader.group} has not read everything",
                READ_WITHIN_S,
                more=lambda reader=reader: str(sorted(values - reader.values)[:5]),  # type: ignore[misc]
            )
            reader.stop()
            found += reader.check()
            found += [Anomaly("unknown", None, value) for value in reader.values - values]
        return found


def told_of(survived: Survived) -> str:
    """The sentence of the report."""
    silences = "; ".join(
        f"a producer hears nothing for {survived.median_silence_s(kind):.1f} s (median of {count}, "
        f"at most {max(survived.silences_s[kind], default=0.0):.1f}) when a node is {kind}"
        for kind, count in survived.faults.items()
        if count
    )
    wrong = told(survived.anomalies) or "none lost, doubled or out of order"
    return (
        f"{survived.acknowledged:,} records acknowledged, {survived.committed:,} transactions "
        f"committed, {survived.aborted:,} aborted, {survived.unclear} unclear, "
        f"{survived.commits:,} commits of two groups: {wrong}; {silences}; ready after "
        f"{survived.started_in_s:.1f} s"
    )
