"""A queue while its brokers are killed (-9) and its workers crash, hang, release and reject.

What must hold, by what the workers wrote down: a record whose acceptance or rejection was answered
is not delivered again; a record is accepted at most once; a delivery count never forgets an
answered release and never passes the limit; and a queue that says that it has no lag has given up
no record without a reason: each was accepted, was rejected, or was delivered as often as it may be.
With dead letters, which Apache Kafka 4.3 does not have: each record was accepted or has one letter,
not both.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headrace.client import Admin, ClientError, Producer, ShareConsumer
from headrace.client.connection import addresses, connected
from headrace.client.lookup.record_reader import RecordReader
from headrace.client.wire import wire_to_any
from headrace.services.redrive.letters import dead_letter, without_copies
from headrace.wire.protocol.messages import incremental_alter_configs as alter
from tests.interop.brokers import Node
from tests.patience import until
from tests.soak.queue_worker import (
    ACCEPTS,
    DONE,
    GOT,
    KINDS,
    NEVER_ACCEPTED,
    REJECTED,
    REJECTS,
    RELEASES,
    WANTS,
)

TOPIC, GROUP = "jobs", "workers"
DEAD, DEAD_LETTER_TOPIC = "jobs.workers.dead", "errors.deadletterqueue.topic.name"
GROUP_RESOURCE, SET = 32, 0
PARTITIONS = 6
DELIVERIES = 5
DRAINED_WITHIN_S = 600.0
SHORTEST_LIFE_S, LONGEST_LIFE_S = 0.5, 2.5
SETTINGS = {
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.record.lock.duration.ms": "3000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": str(DELIVERIES),
}

Place = tuple[int, int]  # partition, offset


class Event(NamedTuple):
    at_s: float
    what: str  # GOT, WANTS or DONE
    wish: str
    deliveries: int


@dataclass(slots=True)
class Worked:
    """What a run saw, for the report."""

    seed: int
    records: int
    kills: int = 0
    accepted_after_kills: int = 0
    workers: int = 0  # processes, with those that took the place of crashed ones
    deliveries: int = 0
    accepted: int = 0
    rejected: int = 0
    used_up: int = 0  # given up after the last delivery
    unnoticed: int = 0  # of these: no worker noticed the last delivery
    letters: int = 0
    copies: int = 0  # of letters, which a reader does not count
    anomalies: list[str] = field(default_factory=list)


class Workers:
    """So many at a time; `replace` starts another for each that has ended."""

    def __init__(self, bootstrap: str, folder: Path, count: int, seed: int) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._seed = seed
        self._running: list[subprocess.Popen[bytes]] = []
        self._count = count
        self.started = 0

    def replace(self) -> None:
        self._running = [each for each in self._running if each.poll() is None]
        while len(self._running) < self._count:
            self._running.append(self._start())

    def _start(self) -> subprocess.Popen[bytes]:
        self.started += 1
        log = self._folder / f"worker-{self.started}.log"
        words = [self._bootstrap, TOPIC, GROUP, str(self._seed + self.started), str(log)]
        with (self._folder / "workers.err").open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.soak.queue_worker", *words], stderr=errors
            )

    def end(self) -> None:
        for each in self._running:
            each.kill()
            each.wait()


def run_queue(
    nodes: Sequence[Node],
    bootstrap: str,
    folder: Path,
    *,
    records: int,
    kills: int,
    seed: int,
    with_letters: bool,
) -> Worked:
    """`nodes` are running, and run at the end."""
    moments, last_kill_s = random.Random(seed), 0.0
    values = put(bootstrap, records, len(nodes))
    if with_letters:
        keep_letters(bootstrap, len(nodes))
    worked = Worked(seed, records)
    workers = Workers(bootstrap, folder, moments.randint(3, 6), seed)
    try:
        workers.replace()
        for _ in range(kills):
            end = time.monotonic() + moments.uniform(SHORTEST_LIFE_S, LONGEST_LIFE_S)
            while time.monotonic() < end:
                workers.replace()
                time.sleep(0.1)
            node = moments.choice(nodes)
            node.kill()
            last_kill_s = time.monotonic()
            node.start()
            worked.kills += 1
        until(
            lambda: _is_drained(bootstrap, workers),
            "the queue has lag still",
            within_s=DRAINED_WITHIN_S,
            every_s=1.0,
        )
    finally:
        workers.end()
    worked.workers = workers.started
    events = read_events(folder)
    worked.accepted_after_kills = sum(
        event.at_s > last_kill_s and event.what == DONE and event.wish == ACCEPTS
        for of_record in events.values()
        for event in of_record
    )
    judge(worked, events, values)
    if with_letters:
        judge_letters(worked, bootstrap, events, values)
    return worked


def put(bootstrap: str, records: int, replicas: int) -> dict[Place, int]:
    """Returns the numbers that are the values of the records."""
    Admin(bootstrap).topics.create(TOPIC, partitions=PARTITIONS, replication=replicas)
    ShareConsumer(bootstrap, topics=[TOPIC], group=GROUP, start_from="earliest").close()
    with Producer(bootstrap, settings={"enable.idempotence": True}) as producer:
        for number in range(records):
            producer.send_one_way(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    return {(number % PARTITIONS, number // PARTITIONS): number for number in range(records)}


def keep_letters(bootstrap: str, replicas: int) -> None:
    Admin(bootstrap).topics.create(DEAD, partitions=PARTITIONS, replication=replicas)
    config = alter.AlterableConfig(DEAD_LETTER_TOPIC, SET, DEAD)
    request = alter.IncrementalAlterConfigsRequest(
        [alter.AlterConfigsResource(GROUP_RESOURCE, GROUP, [config])]
    )
    settings = connected(bootstrap, None)
    with wire_to_any(settings, addresses(settings.bootstrap)) as wire:
        [answer] = wire.ask(alter, request).responses
    assert not answer.error_code, answer.error_message


def judge_letters(
    worked: Worked, bootstrap: str, events: dict[Place, list[Event]], values: dict[Place, int]
) -> None:
    settings = connected(bootstrap, None)
    with closing(RecordReader(settings, DEAD)) as reader:
        copies = [dead_letter(record) for record in reader.records()]
    letters = list(without_copies(copies))
    worked.letters, worked.copies = len(letters), len(copies) - len(letters)
    found = Counter((each.origin_partition or 0, each.origin_offset or 0) for each in letters)
    for place, times in found.items():
        if times > 1:
            worked.anomalies.append(f"{place} has {times} letters")
    for letter in letters:
        place = letter.origin_partition or 0, letter.origin_offset or 0
        if letter.value != b"%d" % values[place]:
            worked.anomalies.append(f"the letter of {place} has the value of another record")
        of_record = events.get(place, [])
        if not most_deliveries(of_record) <= letter.attempts <= DELIVERIES:
            worked.anomalies.append(
                f"the letter of {place} counts {letter.attempts} deliveries, a worker got "
                f"{most_deliveries(of_record)}"
            )
    for place in values:
        answered = {e.wish for e in events.get(place, []) if e.what == DONE}
        wished = {e.wish for e in events.get(place, []) if e.what == WANTS}
        if place in found and ACCEPTS in answered:
            worked.anomalies.append(f"{place} was accepted and has a letter")
        if place not in found and ACCEPTS not in wished:
            worked.anomalies.append(f"{place} was not accepted and has no letter")


def _is_drained(bootstrap: str, workers: Workers) -> bool:
    workers.replace()
    try:
        [group] = Admin(bootstrap).groups.describe([GROUP])
    except ClientError:
        return False
    return len(group.progress) == PARTITIONS and all(each.lag == 0 for each in group.progress)


def read_events(folder: Path) -> dict[Place, list[Event]]:
    """By record, in the order of time."""
    found: defaultdict[Place, list[Event]] = defaultdict(list)
    for path in folder.glob("worker-*.log"):
        for line in path.read_text().splitlines():
            words = line.split()
            if len(words) < 6:
                continue  # its worker was killed while it wrote
            at_s, what, wish, partition, offset, deliveries = words
            place = int(partition), int(offset)
            found[place].append(Event(float(at_s), what, wish, int(deliveries)))
    return {place: sorted(events) for place, events in found.items()}


def judge(worked: Worked, events: dict[Place, list[Event]], values: dict[Place, int]) -> None:
    ends: Counter[str] = Counter()
    for place, value in values.items():
        of_record = events.get(place, [])
        worked.deliveries += sum(event.what == GOT for event in of_record)
        end = end_of(of_record)
        ends[end] += 1
        worked.unnoticed += end == RELEASES and most_deliveries(of_record) < DELIVERIES
        worked.anomalies += [f"{place} ({value}): {what}" for what in anomalies(value, of_record)]
    worked.accepted, worked.rejected = ends[ACCEPTS], ends[REJECTS]
    worked.used_up = ends[RELEASES]


def end_of(events: list[Event]) -> str:
    """How the queue ended with the record; an answer that was lost may have been any."""
    wishes = [event.wish for event in events if event.what == WANTS]
    for wish in (ACCEPTS, REJECTS):
        if any(event.what == DONE and event.wish == wish for event in events) or wish in wishes:
            return wish
    return RELEASES


def most_deliveries(events: list[Event]) -> int:
    """As far as workers noticed: a record whose lock runs out while its worker hangs may still be
    on its way to that worker."""
    return max((event.deliveries for event in events), default=0)


def anomalies(value: int, events: list[Event]) -> Iterator[str]:
    if not events:
        yield "lost: never delivered"
        return
    ended: Event | None = None
    released = 0
    for event in events:
        if event.what == GOT:
            if event.deliveries > DELIVERIES:
                yield f"delivered {event.deliveries} times"
            if event.deliveries <= released:
                yield f"delivery {event.deliveries} after {released} answered releases"
            if ended is not None:
                yield f"delivered again after it {ended.wish}"
        elif event.what == DONE and event.wish == RELEASES:
            released += 1
        elif event.what == DONE:
            # A worker that hung may speak of an earlier delivery: it is answered without an error
            # if the start offset has passed the record meanwhile, as by Apache Kafka.
            if ended is not None and event.deliveries == ended.deliveries:
                yield f"{event.wish} after it {ended.wish}"
            ended = event if ended is None or event.deliveries > ended.deliveries else ended
    if end_of(events) == RELEASES and most_deliveries(events) < DELIVERIES - 1:
        yield f"lost: given up after {most_deliveries(events)} deliveries"
    if value % KINDS in (REJECTED, NEVER_ACCEPTED):
        assert not any(event.wish == ACCEPTS for event in events), "the workers are wrong"
