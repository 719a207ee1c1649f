"""A node at work on a disk in memory, and what it has promised to whom at every moment.

A story is made by its seed: records, transactions, commits of offsets, topics that come and go,
compaction, deleted records, checkpoints, stops and kills. Before any change of the disk the power
may be cut: `Cut` holds the disk as the next start finds it, and the promises made until then.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from headrace.environment import Now
from headrace.node.simulator.disk import Names, VirtualDisk
from headrace.node.storage.compaction.compaction import clean
from headrace.wire.protocol import record_batch
from headrace.wire.protocol.messages import delete_records
from tests.unit.node.broker.groups.group_rig import GroupRig
from tests.unit.node.broker.rig import START_MS
from tests.unit.node.broker.transactions.transaction_rig import (
    TransactionalProducer,
    TransactionRig,
)

DATA = Path("/data")
PLAIN, COMPACTED, TRANSACTIONAL = "orders", "state", "payments"
KEPT = (PLAIN, COMPACTED, TRANSACTIONAL)  # never deleted
PARTITIONS = 2
SMALL = {
    "internal_segment_bytes": 1500,
    "segment_ms": 10_000,
    "index_interval_bytes": 300,
    "file_delete_delay_ms": 0,
}
Place = tuple[str, int]  # topic, partition


class InThisProcess:
    """Runs the log cleaner's job when the story says so."""

    def __init__(self, disk: VirtualDisk) -> None:
        self.disk = disk
        self.job: Any = None
        self.reports: Any = None

    def start(self, job: Any, bytes_per_second: float, reports: Any) -> None:
        self.job, self.reports = job, reports

    def stop(self) -> None:
        self.job = None

    def run(self) -> None:
        if self.job is None:
            return
        groups: list[Any] = []
        cleaned_to = clean(self.disk, self.job, lambda length: None, groups.append)
        self.job = None
        for group in groups:
            self.reports.cleaned(group)
        self.reports.finished(cleaned_to)


class NodeOnVirtualDisk(TransactionRig):
    """A whole node; a start on a disk that holds one already goes on with it."""

    commit_offset: Any = GroupRig.commit
    committed_offset: Any = GroupRig.committed

    def __init__(self, disk: VirtualDisk, random: Random, *, durable: bool) -> None:
        self.cleaner = InThisProcess(disk)
        super().__init__(
            DATA,
            disk=disk,
            now=disk.now,
            randomness=random.randbytes,
            compaction=self.cleaner,
            open_files=10_000,
            headrace_durability="disk" if durable else "page-cache",
            metadata_log_max_record_bytes_between_snapshots=4_000,
        )

    def logs(self) -> dict[Place, Any]:
        return {
            (leader.topic, leader.index): leader.log
            for topic in self.node.broker.topics.by_name.values()
            for leader in topic.replicas
        }

    def records(self, topic: str, partition: int) -> Iterator[tuple[int, bytes | None, bytes]]:
        """Offset, key and value of all that a reader of uncommitted records gets, to the end."""
        log = self.logs()[topic, partition]
        offset = log.start_offset
        while offset < log.end_offset:
            answer = self.fetch(topic, offset, partition=partition)
            assert answer.error_code == 0, (topic, partition, offset, answer.error_code)
            if not answer.records:
                return
            for position, header in record_batch.headers_in(answer.records):
                batch = answer.records[position : position + header.size]
                offset = header.last_offset + 1
                if not header.is_control:
                    for record in record_batch.walk(batch, 1 << 20):
                        if record.offset >= log.start_offset:
                            yield record.offset, record.key, record.value

    def visible(self, topic: str, partition: int) -> set[bytes]:
        """Values that a reader of committed records gets, to the last stable offset."""
        log = self.logs()[topic, partition]
        offset, values = log.start_offset, set()
        while True:
            answer = self.fetch_committed(topic, offset, partition=partition)
            assert answer.error_code == 0, answer.error_code
            if not answer.records:
                return values
            kept = self.committed_records(topic, offset, partition)
            values |= {value.encode() for _, value in kept}
            *_, (_, last) = record_batch.headers_in(answer.records)
            offset = last.last_offset + 1

    def delete_before(self, topic: str, partition: int, offset: int) -> int:
        part = delete_records.DeleteRecordsPartition(partition, offset)
        named = delete_records.DeleteRecordsTopic(topic, [part])
        request = delete_records.DeleteRecordsRequest([named], 1_000)
        [result] = self.ask(delete_records, request).topics[0].partitions
        assert result.error_code == 0
        return result.low_watermark


@dataclass(slots=True)
class Promises:
    """What clients were told, and what they have asked for without an answer yet."""

    topics: set[str] = field(default_factory=set)
    deleted_topics: set[str] = field(default_factory=set)
    settings: dict[str, int] = field(default_factory=dict)  # topic: its retention.ms
    sent: dict[Place, set[bytes]] = field(default_factory=dict)
    records: dict[Place, dict[int, bytes]] = field(default_factory=dict)  # acknowledged
    keys: dict[Place, dict[bytes, int]] = field(default_factory=dict)  # last offset of a key
    deletable: dict[Place, int] = field(default_factory=dict)  # DeleteRecords was asked up to here
    deleted: dict[Place, int] = field(default_factory=dict)  # and answered up to here
    commits: dict[str, tuple[int, int]] = field(default_factory=dict)  # group: offset, end of log
    asked_commits: dict[str, int] = field(default_factory=dict)
    committed: set[bytes] = field(default_factory=set)  # values of transactions
    undecided: set[bytes] = field(default_factory=set)  # the end was asked for, or will be


@dataclass(slots=True)
class Cut:
    """The disk as the next start finds it, and what it must hold."""

    disk: VirtualDisk
    promises: Promises
    flushed: dict[Place, int]  # recovery points
    when: str  # to find it again


class Story:
    def __init__(
        self, seed: int, *, durable: bool, names: Names = Names.IN_ORDER, cuts: int = 4
    ) -> None:
        self.random = Random(seed)
        self.chance = Random(f"cuts of {seed}")
        self.durable = durable
        self.names = names
        self.most_cuts = cuts
        self.cuts: list[Cut] = []
        self.promises = Promises()
        self.number = 0
        self.flushed: Callable[[], dict[Place, int]] = dict
        self.disk = VirtualDisk(Now(1_000, START_MS))
        self.disk.make_folder(str(DATA))
        self.disk.flush_folder("/")
        self.disk.before_change = self._perhaps_cut
        self.doing = "start"
        self._start()
        for topic in KEPT:
            self._create(topic, PARTITIONS)

    def tell(self, steps: int) -> list[Cut]:
        does = [
            (self._produce, 8), (self._produce_keyed, 5), (self._transaction, 5),
            (self._commit_offset, 4), (self._time_passes, 4), (self._compact, 2),
            (self._delete_records, 1), (self._come_and_go, 1), (self._alter, 1),
            (self._stop, 1), (self._kill, 1),
        ]  # fmt: skip
        for step in range(steps):
            [do] = self.random.choices([do for do, _ in does], [often for _, often in does])
            self.doing = f"step {step}, {do.__name__}"
            do()
        return self.cuts

    def _perhaps_cut(self) -> None:
        """Each moment is as likely as any other to be among the few that are kept."""
        place = self.chance.randrange(self.disk.changes + 1)
        if len(self.cuts) < self.most_cuts:
            place = len(self.cuts)
            self.cuts.append(Cut(self.disk, self.promises, {}, ""))
        if place >= self.most_cuts:
            return
        wall_ms = self.disk.now.wall_ms + 5_000
        left = self.disk.power_cut(self.chance, Now(1_000, wall_ms), self.names)
        when = f"{self.doing}, change {self.disk.changes}"
        self.cuts[place] = Cut(left, copy.deepcopy(self.promises), self.flushed(), when)

    # --- what the node does

    def _start(self) -> None:
        self.flushed = dict
        self.node = NodeOnVirtualDisk(self.disk, self.random, durable=self.durable)
        self.flushed = lambda: {
            place: log.recovery_point for place, log in self.node.logs().items()
        }
        self.producers: dict[str, TransactionalProducer] = {}
        self.open: dict[str, set[bytes]] = {}

    def _stop(self) -> None:
        self.flushed = dict
        self.node.stop()
        self._start()

    def _kill(self) -> None:
        self._start()

    def _time_passes(self) -> None:
        self.node.advance(self.random.choice((1_000, 1_000, 15_000, 60_000)))

    def _compact(self) -> None:
        """A compacted segment takes its place by renames, whose order a journal keeps: on a file
        system that keeps the third of them without the first, records would be lost."""
        self.node.advance(15_000)
        if self.names is Names.IN_ORDER:
            self.node.cleaner.run()
        self.node.until_idle()

    # --- what clients do

    def _value(self) -> bytes:
        self.number += 1
        return b"%06d" % self.number * self.random.randrange(1, 60)

    def _place(self, topic: str) -> Place:
        return topic, self.random.randrange(PARTITIONS)

    def _produce(self) -> None:
        place = self._place(PLAIN)
        values = [self._value() for _ in range(self.random.randrange(1, 4))]
        self.promises.sent.setdefault(place, set()).update(values)
        answer = self.node.produce(place[0], *(v.decode() for v in values), partition=place[1])
        assert answer.error_code == 0
        acknowledged = self.promises.records.setdefault(place, {})
        acknowledged.update(enumerate(values, answer.base_offset))

    def _produce_keyed(self) -> None:
        place = self._place(COMPACTED)
        key, value = b"key-%d" % self.random.randrange(6), self._value()
        self.promises.sent.setdefault(place, set()).add(value)
        record = record_batch.Record(key, value, timestamp=self.node.now.wall_ms)
        answer = self.node.produce(
            place[0], partition=place[1], records=record_batch.build([record])
        )
        assert answer.error_code == 0
        self.promises.records.setdefault(place, {})[answer.base_offset] = value
        self.promises.keys.setdefault(place, {})[key] = answer.base_offset

    def _transaction(self) -> None:
        name = self.random.choice(("t1", "t2", "t3"))
        producer = self.producers.get(name)
        if producer is None:
            producer = self.producers[name] = self._new_producer(name)
        if name in self.open and self.random.random() < 0.6:
            self._end(name, producer, commit=self.random.random() < 0.6)
            return
        place = self._place(TRANSACTIONAL)
        value = self._value()
        self.promises.sent.setdefault(place, set()).add(value)
        self.open.setdefault(name, set()).add(value)
        if producer.send(place[0], value.decode(), partition=place[1]) != 0:
            self._give_up(name)  # its time was over

    def _new_producer(self, name: str) -> TransactionalProducer:
        """Its start aborts what the one before it left open, which may take a moment."""
        producer = TransactionalProducer(self.node, name)
        for _ in range(5):
            if producer.init() == 0:
                return producer
            self.node.until_idle()
        raise AssertionError(f"{name} cannot start")

    def _give_up(self, name: str) -> None:
        del self.producers[name]
        self.open.pop(name, None)

    def _end(self, name: str, producer: TransactionalProducer, *, commit: bool) -> None:
        values = self.open.pop(name)
        if commit:
            self.promises.undecided |= values
        if producer.end(commit) != 0:
            self._give_up(name)
        elif commit:
            self.promises.committed |= values
        self.promises.undecided -= values

    def _commit_offset(self) -> None:
        group = self.random.choice(("billing", "audit", "mail"))
        before = self.promises.asked_commits.get(group, 0)
        self.promises.asked_commits[group] = offset = before + self.random.randrange(1, 9)
        assert self.node.commit_offset(group, PLAIN, offset) == 0
        ends = sum(log.end_offset for place, log in self.node.logs().items() if _is_offsets(place))
        self.promises.commits[group] = offset, ends

    def _delete_records(self) -> None:
        place = self._place(PLAIN)
        log = self.node.logs()[place]
        if log.start_offset == log.end_offset:
            return
        offset = self.random.randrange(log.start_offset, log.end_offset)
        self.promises.deletable[place] = offset
        self.promises.deleted[place] = self.node.delete_before(*place, offset)

    def _come_and_go(self) -> None:
        extra = sorted(self.promises.topics.difference(KEPT))
        if extra and self.random.random() < 0.6:
            self.promises.topics.discard(extra[0])
            self.node.delete(extra[0])
            self.promises.deleted_topics.add(extra[0])
        else:
            self.number += 1
            self._create(f"extra-{self.number}", 1)

    def _create(self, topic: str, partitions: int) -> None:
        policy = {"cleanup_policy": "compact"} if topic == COMPACTED else {}
        cleaned = {"min_cleanable_dirty_ratio": 0.1} if policy else {}
        self.node.create(topic, partitions, **SMALL, **policy, **cleaned)
        self.promises.topics.add(topic)

    def _alter(self) -> None:
        self.number += 1
        self.promises.settings.pop(PLAIN, None)
        retention_ms = 86_400_000 + self.number
        self.node.alter(2, PLAIN, retention_ms=retention_ms)
        self.promises.settings[PLAIN] = retention_ms


def _is_offsets(place: Place) -> bool:
    return place[0] == "__consumer_offsets"


@contextmanager
def warnings() -> Iterator[list[str]]:
    """What the node's log says meanwhile."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("headrace")
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)
