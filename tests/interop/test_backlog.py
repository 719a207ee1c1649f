"""A backlog through a wider topic, on Headrace and Apache Kafka, while every part is killed.

The effects are rows of a real PostgreSQL, one transaction each with the memory of `once=`.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from headrace.client import Admin, Producer
from headrace.client.connection import Connection
from headrace.client.groups import Groups, Move
from tests.interop.brokers import Node, make_node
from tests.services.servers import Postgres, postgres
from tests.soak.delay_instances import wait_until

__all__ = ["postgres"]
PROGRAM = str(Path(sys.executable).with_name("headrace"))
RECORDS = 1_500
KEYS = 40
KILLS = 6

APP = """
import os
from sqlalchemy import create_engine, text
from headrace import App, Sql

app = App(os.environ["BOOTSTRAP"], group="billing", delay="off",
          settings={"session.timeout.ms": 6_000})
engine = create_engine(os.environ["DATABASE"])

@app.on("orders", order_by="key", concurrency=4, once=Sql(engine))
def bill(number: str, db) -> None:
    db.execute(text("INSERT INTO bills (number) VALUES (:n)"), {"n": int(number)})
"""


@pytest.fixture(params=["headrace", "apache"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    with make_node(request.param, tmp_path / request.param) as running:
        yield running


@pytest.fixture
def engine(postgres: Postgres) -> Iterator[Engine]:
    engine = create_engine(postgres.url)
    with engine.begin() as db:
        db.execute(text("DROP TABLE IF EXISTS bills"))
        db.execute(text("DROP TABLE IF EXISTS headrace_once"))
        db.execute(text("CREATE TABLE bills (id SERIAL, number INT)"))
    yield engine
    engine.dispose()


def bills(engine: Engine) -> list[int]:
    with engine.connect() as db:
        return list(db.execute(text("SELECT number FROM bills ORDER BY id")).scalars())


class Processes:
    """A widening and two workers; one that dies is started again."""

    def __init__(self, node: Node, folder: Path, database: str) -> None:
        (folder / "shop.py").write_text(APP)
        self._folder = folder
        environment = {"BOOTSTRAP": node.bootstrap, "DATABASE": database}
        self._environment = {**os.environ, **environment, "HEADRACE_BOOTSTRAP": node.bootstrap}
        worker = [PROGRAM, "app", "run", "shop:app", "--drain", "--log-level", "warning"]
        widen = [PROGRAM, "backlog", "widen", "orders", "--group", "billing", "--times", "4"]
        self._commands = [[*widen, "--few-left", "50", "--execute"], worker, worker]
        self.running: list[subprocess.Popen[bytes] | None] = [None, None, None]

    def start(self, which: int) -> None:
        with (self._folder / f"said-{which}").open("ab") as said:
            self.running[which] = subprocess.Popen(
                self._commands[which],
                cwd=self._folder,
                env=self._environment,
                stdout=said,
                stderr=said,
            )

    def keep_up(self) -> None:
        for which, process in enumerate(self.running):
            if process is None or process.poll() not in (None, 0):
                self.start(which)

    def kill(self, which: int) -> None:
        process = self.running[which]
        assert process is not None
        process.kill()
        process.wait()
        if which == 0 and process.returncode == 0:
            return  # it was done
        self.start(which)

    def said(self, which: int) -> str:
        return (self._folder / f"said-{which}").read_text(errors="replace")

    def stop_workers(self) -> None:
        for process in self.running[1:]:
            if process is not None:
                process.terminate()
                process.wait()

    def end(self) -> None:
        for process in self.running:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def test_a_widening_whose_every_part_is_killed_bills_each_order_once_and_in_order(
    node: Node, engine: Engine, postgres: Postgres, tmp_path: Path
) -> None:
    chance = random.Random(7)
    cluster = Connection({"bootstrap.servers": node.bootstrap})
    Admin(node.bootstrap).topics.create("orders", partitions=2)
    with Producer(node.bootstrap) as producer:
        for number in range(RECORDS):
            producer.send_one_way("orders", b"%d" % number, key=f"customer-{number % KEYS}")
    Groups(cluster).move("billing", [Move("orders", p, None, 0, 0) for p in range(2)])

    processes = Processes(node, tmp_path, postgres.url)
    try:
        processes.start(0)
        wait_until(lambda: "Start consumers" in processes.said(0), "nothing is forwarded")
        for _ in range(KILLS):
            before = len(bills(engine))

            def goes_on(before: int = before) -> bool:
                processes.keep_up()  # one that started while the broker was away has ended
                return len(bills(engine)) > min(before + 20, RECORDS - 1)

            wait_until(goes_on, "nobody bills", within_s=180)
            victim = chance.choice(["widening", "worker", "worker", "broker"])
            if victim == "broker":
                node.kill()
                node.start()
            else:
                processes.kill(0 if victim == "widening" else chance.choice([1, 2]))
        wait_until(
            lambda: [processes.keep_up()] and "stop the consumers" in processes.said(0),
            "no end",
            within_s=180,
        )
        processes.stop_workers()
        widening = processes.running[0]
        assert widening is not None
        assert widening.wait(120) == 0, processes.said(0)
    finally:
        processes.end()

    found = bills(engine)
    assert sorted(found) == list(range(RECORDS))
    by_key: dict[int, list[int]] = defaultdict(list)
    for number in found:
        by_key[number % KEYS].append(number)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    committed = Groups(cluster).committed("billing")
    assert sum(committed["orders", p] for p in range(2)) == RECORDS
    assert not any(".wide" in each.name for each in Admin(node.bootstrap).topics.all())
