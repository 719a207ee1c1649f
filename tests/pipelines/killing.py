"""kill -9 of driver, Spark and broker in mid-batch, and what the tables must hold afterwards.

Each round adds orders, starts the driver, waits until a batch of this life is done and the next one
is under way, and kills one of them. At the end all is read to its end, and each sink is compared
with plain Python.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from headrace.client.connection import Connection
from tests.interop.brokers import Node
from tests.pipelines.driver import Driver
from tests.pipelines.orders import SCHEMA, new_topic, orders

TOPIC = "killed"
PER_ROUND = 300
PER_BATCH = 40
KINDS = 50

ROWS = 'return rows.select("id", "amount")'
TOTALS = f"""
    from pyspark.sql import functions as F

    totals = rows.groupBy((F.col("id") % {KINDS}).alias("id"))
    return totals.agg(F.sum("amount").alias("amount"))"""


@dataclass(slots=True)
class Sink:
    """How it is written in a program, and whether rows are replaced by key."""

    code: str
    upserts: bool = False

    def program(self) -> str:
        return f"""
from headrace.pipelines import Jdbc, Table, Topic, pipeline

SOURCE = Topic({TOPIC!r}, schema={SCHEMA!r}, per_batch={PER_BATCH})

@pipeline(source=SOURCE, sink={self.code})
def killed(rows):
    {TOTALS.strip() if self.upserts else ROWS}
"""

    def expected(self, count: int) -> list[tuple[int, int]]:
        if not self.upserts:
            return [(n, n % 7) for n in range(count)]
        sums: Counter[int] = Counter()
        for n in range(count):
            sums[n % KINDS] += n % 7
        return sorted(sums.items())


SINKS = {
    "delta append": Sink('Table("killed")'),
    "delta upsert": Sink('Table("killed", mode="upsert", key="id")', upserts=True),
    "iceberg append": Sink('Table("killed", format="iceberg")'),
}


def jdbc(url: str, *, upserts: bool) -> Sink:
    key = ', key="id"' if upserts else ""
    return Sink(f'Jdbc("killed", url={url!r}{key}, options={{"user": "headrace"}})', upserts)


@dataclass(slots=True)
class Killed:
    """How often who was killed, and how many orders there are."""

    driver: int = 0
    spark: int = 0
    broker: int = 0
    orders: int = 0


def rounds(node: Node, sink: Sink, folder: Path, count: int, seed: int) -> Killed:
    """`node` runs; at the end the sink holds what it must."""
    chance, killed = random.Random(seed), Killed()
    new_topic(Connection({"bootstrap.servers": node.bootstrap}), TOPIC)
    with Driver(folder, node.bootstrap, sink.program(), "killed") as driver:
        for number in range(count):
            orders(node.bootstrap, TOPIC, range(killed.orders, killed.orders + PER_ROUND))
            killed.orders += PER_ROUND
            driver.start()
            driver.wait_for_batches(1 + chance.randrange(2))
            driver.wait_for(driver.is_in_mid_batch, "a batch under way")
            _kill(number, node, driver, killed)
        driver.once()
    return killed


def _kill(number: int, node: Node, driver: Driver, killed: Killed) -> None:
    if number % 3 == 0:
        driver.kill()
        killed.driver += 1
    elif number % 3 == 1:
        done = driver.committed()
        node.kill()
        node.start()
        killed.broker += 1
        # It goes on, or it fails and says so; either way its checkpoint is good.
        driver.wait_until_it_goes_on_or_ends(done)
        driver.kill()
        killed.driver += 1
    else:
        assert driver.kill_spark() == 1, driver.said()
        killed.spark += 1
