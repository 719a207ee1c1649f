"""kill -9 of driver, Spark and broker in mid-batch, and what the tables must hold afterwards.

A round sends orders and a record that is no order, starts the driver if it does not run, waits
until it has done a batch in this life (so each restart is seen to go on) and has the next one under
way, and kills: at once, at some moment of it, when the table has the batch and the checkpoint has
not, or while the broker takes records. Who was killed when is judged afterwards by what lies on
disk. At the end all is read to its end: the sink must hold what plain Python computes, and each
broken record must lie in the dead letters.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from headrace.client.connection import ClientSettings
from headrace.client.consumer.fetched import headers_of
from tests.interop.brokers import Node
from tests.pipelines.driver import START_WITHIN_S, Driver
from tests.pipelines.orders import BEGAN_MS, HOUR_MS, SCHEMA, new_topic, order

NAME = "killed"
DEAD = f"{NAME}.pipeline.{NAME}.dead"
PER_ROUND = 80
PER_BATCH = 40
KINDS = 50
BROKEN = b"{broken"

# Who and when, in this order: the first three are those of a short run. Of the broker's deaths a
# driver may go on or end with a sentence; the others need a new life.
KILLS = (
    ("broker", "planned"),
    ("spark", "written"),
    ("driver", "writing"),
    ("broker", "sending"),
    ("driver and spark", "written"),
    ("broker", "writing"),
    ("spark", "planned"),
    ("driver", "written"),
    ("broker", "sending"),
    ("driver and spark and broker", "writing"),
)
LONGEST_WRITING_S = 2.0
FEED_EVERY_S = 30.0

ROWS = 'return rows.select("id", "amount")'
TOTALS = f"""
    from pyspark.sql import functions as F

    totals = rows.groupBy((F.col("id") % {KINDS}).alias("id"))
    return totals.agg(F.sum("amount").alias("amount"))"""


@dataclass(slots=True)
class Sink:
    """How it is written in a program, whether rows are replaced by key, and how many commits it
    has, seen from outside in the folder of the run."""

    code: str
    commits: Callable[[Path], int]
    upserts: bool = False

    def program(self, per_batch: int = PER_BATCH) -> str:
        return f"""
from headrace.pipelines import Jdbc, Table, Topic, pipeline

SOURCE = Topic({NAME!r}, schema={SCHEMA!r}, per_batch={per_batch})

@pipeline(source=SOURCE, sink={self.code})
def {NAME}(rows):
    {TOTALS.strip() if self.upserts else ROWS}
"""

    def expected(self, count: int) -> list[tuple[int, int]]:
        if not self.upserts:
            return [(n, n % 7) for n in range(count)]
        sums: Counter[int] = Counter()
        for n in range(count):
            sums[n % KINDS] += n % 7
        return sorted(sums.items())


def _files(pattern: str) -> Callable[[Path], int]:
    return lambda folder: sum(1 for _ in (folder / "tables" / NAME).glob(pattern))


SINKS = {
    "delta append": Sink('Table("killed")', _files("_delta_log/*.json")),
    "delta upsert": Sink(
        'Table("killed", mode="upsert", key="id")', _files("_delta_log/*.json"), upserts=True
    ),
    "iceberg append": Sink(
        'Table("killed", format="iceberg")', _files("metadata/v*.metadata.json")
    ),
    "parquet append": Sink('Table("killed", format="parquet")', _files("_spark_metadata/[0-9]*")),
}


def jdbc(url: str, commits: Callable[[Path], int], *, upserts: bool) -> Sink:
    key = ', key="id"' if upserts else ""
    code = f'Jdbc("killed", url={url!r}{key}, options={{"user": "headrace"}})'
    return Sink(code, commits, upserts)


@dataclass(slots=True)
class Killed:
    """Who was killed how often, and what there is to be found."""

    who: Counter[str] = field(default_factory=Counter)
    in_mid_batch: int = 0
    before_checkpoint: int = 0  # of those, with the batch in the table already
    gave_up: int = 0  # times that a driver ended by itself after the broker's death
    orders: int = 0
    broken: set[str] = field(default_factory=set)  # topic/partition/offset
    letters: int = 0


class Sender:
    """Orders into the topic, each once: the producer is idempotent, the broker may die."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True}
        small = {"linger.ms": 0, "batch.num.messages": 5}  # several requests under way at a death
        self._producer = Producer(settings | small | {"reconnect.backoff.max.ms": 500})
        self._taken = 0
        self.broken: set[str] = set()

    def _told(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self._taken += 1
        if message.value() == BROKEN:
            self.broken.add(f"{message.topic()}/{message.partition()}/{message.offset()}")

    def orders(self, numbers: Iterable[int]) -> None:
        for n in numbers:
            self._put(json.dumps(order(n)).encode(), n)

    def one_that_is_broken(self, n: int) -> None:
        self._put(BROKEN, n)

    def _put(self, value: bytes, n: int) -> None:
        when = BEGAN_MS + n * HOUR_MS
        self._producer.produce(
            NAME, value, b"%d" % n, n % 2, on_delivery=self._told, timestamp=when
        )

    def wait_for_one(self) -> None:
        """Until the broker takes what was sent, though not all of it yet."""
        before, deadline = self._taken, time.monotonic() + 120
        while self._taken == before:
            assert time.monotonic() < deadline, "the broker takes nothing"
            self._producer.poll(0.001)

    def flush(self) -> None:
        assert self._producer.flush(120) == 0, "the broker did not take all"


@dataclass(slots=True)
class Rounds:
    """One sink under kills."""

    node: Node
    sink: Sink
    driver: Driver
    chance: random.Random
    sender: Sender
    killed: Killed = field(default_factory=Killed)
    batch: int = -1  # the one under way when last looked
    before: int = 0  # the sink's commits when it was first seen
    may_give_up: bool = False
    kills: Sequence[tuple[str, str]] = KILLS

    # ---- what is under way

    def is_under_way(self) -> bool:
        """A batch is planned and not done."""
        planned = _last(self.driver.folder.checkpoint / "offsets")
        if planned <= self.driver.committed():
            return False
        if planned != self.batch:
            self.batch, self.before = planned, self.commits()
        return True

    def is_written(self) -> bool:
        """The sink has it, the checkpoint does not say so."""
        return self.is_under_way() and self.commits() > self.before

    def commits(self) -> int:
        return self.sink.commits(self.driver.at)

    def reach(
        self, condition: Callable[[], bool], what: str, every_s: float = 0.01, *, feed: bool = False
    ) -> None:
        """A driver for which the broker's death was too much is started again.

        With `feed` there are more batches as time goes by: a moment that was missed comes again.
        """
        deadline = time.monotonic() + START_WITHIN_S * 2
        feed_at = time.monotonic() + FEED_EVERY_S
        while not condition():
            if feed and time.monotonic() > feed_at:
                self.send_more()
                feed_at = time.monotonic() + FEED_EVERY_S
            assert time.monotonic() < deadline, f"waited too long: {what}\n{self.driver.said()}"
            process = self.driver.process
            if process is not None and (code := process.poll()) is not None:
                assert self.may_give_up and code == 1, f"{code}\n{self.driver.said()}"
                self.killed.gave_up += 1
                self.live()
            time.sleep(every_s)

    def send_more(self) -> None:
        first = self.killed.orders
        self.killed.orders += PER_BATCH
        self.sender.orders(range(first, self.killed.orders))
        self.sender.flush()

    def live(self) -> None:
        self.may_give_up = False
        self.driver.start()

    # ---- a round

    def round(self, number: int) -> None:
        whom, when = self.kills[number % len(self.kills)]
        first, half = self.killed.orders, self.killed.orders + PER_ROUND // 2
        end = self.killed.orders = first + PER_ROUND
        self.sender.one_that_is_broken(number)
        self.sender.orders(range(first, half if when == "sending" else end))
        self.sender.flush()
        if self.driver.process is None:
            self.live()
            done = self.driver.committed()
            self.reach(lambda: self.driver.committed() > done, "a batch in this life")
        self.reach(self.is_under_way, "a batch under way", feed=True)
        if when == "written":
            self.reach(self.is_written, "a batch in the sink", every_s=0.001, feed=True)
        elif when == "writing":
            time.sleep(self.chance.uniform(0, LONGEST_WRITING_S))  # any moment of it
        elif when == "sending":
            self.sender.orders(range(half, end))
            self.sender.wait_for_one()
        self.kill(whom.split(" and "))
        self.sender.flush()

    def kill(self, whom: list[str]) -> None:
        driver, node = self.driver, self.node
        spark, done = driver.spark(), driver.committed()
        was_under_way = self.is_under_way()
        if "spark" in whom:
            assert spark is not None
            with contextlib.suppress(ProcessLookupError):  # the broker's death may have ended it
                os.kill(spark, signal.SIGKILL)
        if "driver" in whom:
            driver.kill()
        if "broker" in whom:
            node.kill()
        self.killed.who.update(whom)
        if whom != ["broker"]:
            self._wait_for_the_end(spark, driver_killed="driver" in whom)
            was_under_way = self.is_under_way()
            self.killed.before_checkpoint += self.is_written()
        self.killed.in_mid_batch += was_under_way
        if "broker" in whom:
            node.start()
        if whom == ["broker"]:
            self.may_give_up = True
            self.reach(
                lambda: driver.committed() > done, "a batch after the broker's death", feed=True
            )

    def _wait_for_the_end(self, spark: int | None, *, driver_killed: bool) -> None:
        """Spark ends when its driver does, a driver when its Spark does."""
        process = self.driver.process
        if not driver_killed:
            assert process is not None
            assert process.wait(START_WITHIN_S) == 1, self.driver.said()
            self.driver.process = None
        deadline = time.monotonic() + START_WITHIN_S
        while spark is not None and _lives(spark):
            assert time.monotonic() < deadline, f"Spark {spark} outlives its driver"
            time.sleep(0.01)

    def end(self) -> None:
        """All that is there, read to its end."""
        process = self.driver.process
        if process is not None:
            process.terminate()
            code = process.wait(START_WITHIN_S)
            assert code == 0 or (self.may_give_up and code == 1), self.driver.said()
            self.driver.process = None
        # What is left in one batch: the rounds are over.
        (self.driver.at / "program.py").write_text(self.sink.program(per_batch=1_000_000))
        self.driver.once()
        self.killed.broken = self.sender.broken


def rounds(
    node: Node,
    sink: Sink,
    folder: Path,
    count: int,
    seed: int,
    *,
    kills: Sequence[tuple[str, str]] = KILLS,
) -> Killed:
    """`node` runs; afterwards the topic and the dead letters hold what they must."""
    new_topic(ClientSettings({"bootstrap.servers": node.bootstrap}), NAME)
    with Driver(folder, node.bootstrap, sink.program(), NAME) as driver:
        all_of_them = Rounds(
            node, sink, driver, random.Random(seed), Sender(node.bootstrap), kills=kills
        )
        for number in range(count):
            all_of_them.round(number)
        all_of_them.end()
    killed = all_of_them.killed
    # If this fails it is the broker that lost or doubled something, not the pipeline.
    assert sum(1 for _ in everything(node.bootstrap, NAME)) == killed.orders + count
    letters = [
        dict(headers_of(one))["headrace-message-id"] for one in everything(node.bootstrap, DEAD)
    ]
    killed.letters = len(letters)
    places = {one.decode().partition("@")[0] for one in letters}
    assert places == killed.broken and len(killed.broken) == count
    return killed


def everything(bootstrap: str, topic: str) -> Iterable[Message]:
    """All records of a topic as it is now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"all-{topic}"})
    try:
        for number in consumer.list_topics(topic, 60).topics[topic].partitions:
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, number), 60)
            if first == end:
                continue
            consumer.assign([TopicPartition(topic, number, first)])
            offset = first
            while offset < end:
                message = consumer.poll(120)
                assert message is not None and message.error() is None
                offset = message.offset() + 1
                yield message
    finally:
        consumer.close()


def _last(folder: Path) -> int:
    try:
        return max((int(one.name) for one in folder.iterdir() if one.name.isdecimal()), default=-1)
    except FileNotFoundError:
        return -1


def _lives(process: int) -> bool:
    """A process that has ended and was not waited for has no command any more."""
    try:
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())
    except OSError:
        return False
