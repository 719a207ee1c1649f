"""Delayed messages while brokers and instances of the service die, sleep and lose their stores.

What happens when comes from a seed. At the end everything is delivered, and the topics are compared
by `delay_checking`.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition

from headrace.wire.contract.delay_topics import companion_of
from tests.interop.brokers import Node
from tests.soak.delay_checking import Verdict, check
from tests.soak.delay_instances import Instance, instances_for, run_cli, wait_until
from tests.soak.delay_sending import Crowd, Racers, Sender

S = TypeVar("S", bound=Sender)

PARTITIONS = 4
SHORTEST_LIFE_S, LONGEST_LIFE_S = 0.3, 4.0
SESSION_S = 10.0
CATCH_UP_S = 180.0
EVENTS = ("service killed", "broker killed", "both killed", "store lost", "service halted")
# A halt takes a session, so it comes less often than the others.
DECK = ("service killed", "broker killed", "both killed", "store lost") * 2 + ("service halted",)


@dataclass(slots=True)
class Survived:
    """What a run saw, for the report."""

    rounds: int
    seed: int
    instances: int
    events: dict[str, int]
    verdict: Verdict


class Delays:
    """A target with its companion, the instances that serve it, and its senders."""

    def __init__(self, node: Node, folder: Path, name: str, instances: int) -> None:
        self.node = node
        self.target = name
        self.instances = instances_for(node, folder, instances)
        self.senders: list[Sender] = []
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Delays:
        run_cli(self.node, "topics", "create", self.target, "--partitions", str(PARTITIONS))
        run_cli(self.node, "delay", "enable", self.target)
        self.keep_running()
        return self

    def __exit__(self, *_: object) -> None:
        for instance in self.instances:
            instance.go_on()
            instance.kill()

    def keep_running(self) -> None:
        for instance in self.instances:
            instance.keep_running()

    def crowd(self, seed: int, *, count: int, within_ms: int) -> Crowd:
        companion = companion_of(self.target)
        crowd = Crowd(
            self.node.bootstrap, companion, PARTITIONS, seed, count=count, within_ms=within_ms
        )
        return self._begin(crowd)

    def racers(self, seed: int, *, rate: int) -> Racers:
        companion = companion_of(self.target)
        return self._begin(Racers(self.node.bootstrap, companion, PARTITIONS, seed, rate=rate))

    def _begin(self, sender: S) -> S:
        self.senders.append(sender)
        sender.start()
        return sender

    def run_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.keep_running()
            time.sleep(0.05)

    def happen(self, event: str, victim: Instance) -> None:
        if event in ("service killed", "both killed"):
            victim.kill()
        if event in ("broker killed", "both killed"):
            self.node.kill()
            self.node.start()
        if event == "store lost":
            victim.rob()
        if event == "service halted":
            victim.halt()
            self.run_for(SESSION_S + 2)
            victim.go_on()

    def end(self) -> Verdict:
        """Let everything be delivered, and compare."""
        for sender in self.senders:
            sender.wait() if isinstance(sender, Crowd) else sender.stop()
        self.until_delivered()
        return check(self.node.bootstrap, self.target)

    def until_delivered(self) -> None:
        """Until the group's offsets are at the ends of the intake and nothing is delivered more."""
        deadline = time.monotonic() + CATCH_UP_S
        quiet, before = 0, -1
        while quiet < 2:
            assert time.monotonic() < deadline, f"{self.lag()} behind, {before} written"
            self.run_for(1.0)
            now = self.delivered()
            quiet = quiet + 1 if now == before and self.is_due_and_settled() else 0
            before = now

    def is_due_and_settled(self) -> bool:
        return self.lag() == 0 and all(crowd.is_due for crowd in self.crowds())

    def crowds(self) -> list[Crowd]:
        return [sender for sender in self.senders if isinstance(sender, Crowd)]

    def delivered(self) -> int:
        return sum(self._ends(self.target))

    def lag(self) -> int | None:
        """How far the group is behind the intake; None while its coordinator is not ready."""
        companion = companion_of(self.target)
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.node.bootstrap, "group.id": "headrace-delay", "log_level": 0}
        )
        try:
            places = [TopicPartition(companion, number) for number in range(PARTITIONS)]
            committed = [max(one.offset, 0) for one in consumer.committed(places, timeout=10)]
        except KafkaException:
            return None
        finally:
            consumer.close()
        return sum(self._ends(companion)) - sum(committed)

    def _ends(self, topic: str) -> list[int]:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.node.bootstrap, "group.id": "looks", "log_level": 0}
        )
        try:
            places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            return [consumer.get_watermark_offsets(place, timeout=30)[1] for place in places]
        finally:
            consumer.close()


def run_rounds(
    node: Node,
    folder: Path,
    rounds: int,
    seed: int,
    *,
    rate: int = 500,
    instances: int = 2,
    deck: tuple[str, ...] = DECK,
) -> Survived:
    """`node` runs; in each round chance says who lives how long and what happens to whom."""
    chance = random.Random(seed)
    happened = dict.fromkeys(EVENTS, 0)
    with Delays(node, folder, f"survives-{seed}", instances) as delays:
        wait_until(lambda: all(one.pid for one in delays.instances), "an instance did not start")
        delays.racers(seed, rate=rate)
        for event in dealt(rounds, chance, deck):
            delays.run_for(chance.uniform(SHORTEST_LIFE_S, LONGEST_LIFE_S))
            delays.happen(event, chance.choice(delays.instances))
            happened[event] += 1
        delays.run_for(1.0)
        verdict = delays.end()
    return Survived(rounds, seed, instances, happened, verdict)


def dealt(rounds: int, chance: random.Random, deck: tuple[str, ...]) -> list[str]:
    """Events as from a shuffled deck: few rounds see many kinds of them."""
    events: list[str] = []
    while len(events) < rounds:
        events += chance.sample(deck, len(deck))
    return events[:rounds]
