"""A backlog through a wider topic and through a folder, on Headrace and Apache Kafka, while every
part is killed.

The effects are rows of a real PostgreSQL, one transaction each with the memory of `once=`. Tests
marked soak have a group that is a million records behind.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from headrace.app.names import retry_topic
from headrace.client import Admin, Producer
from headrace.client.admin.groups import Groups, Move
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader
from tests.interop.brokers import Node, make_node
from tests.services.servers import Postgres, postgres
from tests.soak.delay_instances import wait_until

__all__ = ["postgres"]
MILLION_TAKES_S = 5_400
PROGRAM = str(Path(sys.executable).with_name("headrace"))
PATIENCE_S = 90  # a broker that was just started, on a machine that does other things


@dataclass(frozen=True)
class Size:
    records: int
    keys: int
    times: int
    concurrency: int
    victims: tuple[str, ...]  # of a widening
    kills: int  # of a parking, and of a return


SMALL = Size(900, 40, times=4, concurrency=4, victims=("worker", "broker", "widening"), kills=3)
MILLION = Size(
    1_000_000,
    2_000,
    times=10,
    concurrency=32,
    victims=("worker", "broker", "widening", "worker", "widening", "broker"),
    kills=6,
)
SIZES = [
    SMALL,
    pytest.param(MILLION, marks=[pytest.mark.soak, pytest.mark.timeout(MILLION_TAKES_S)]),
]

APP = """
import os
from sqlalchemy import create_engine, text
from headrace import App, Sql

app = App(os.environ["BOOTSTRAP"], group="billing", delay="off",
          settings={"session.timeout.ms": 6_000})
engine = create_engine(os.environ["DATABASE"], pool_size=int(os.environ["CONCURRENCY"]))

@app.on("orders", order_by="key", concurrency=int(os.environ["CONCURRENCY"]), once=Sql(engine))
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


def billed(engine: Engine) -> int:
    with engine.connect() as db:
        return int(db.execute(text("SELECT count(*) FROM bills")).scalar_one())


def a_group_behind(node: Node, size: Size) -> None:
    cluster = ClientSettings({"bootstrap.servers": node.bootstrap}, timeout_s=PATIENCE_S)
    Admin(node.bootstrap).topics.create("orders", partitions=2)
    with Producer(node.bootstrap) as producer:
        for number in range(size.records):
            producer.send_one_way("orders", b"%d" % number, key=f"customer-{number % size.keys}")
    Groups(cluster).move("billing", [Move("orders", p, None, 0, 0) for p in range(2)])


def require_order(numbers: list[int], size: Size) -> None:
    """Each number once, and those of a key in their order."""
    assert sorted(numbers) == list(range(size.records))
    by_key: dict[int, list[int]] = defaultdict(list)
    for number in numbers:
        by_key[number % size.keys].append(number)
    assert all(found == sorted(found) for found in by_key.values())


class Processes:
    """A widening and two workers; one that dies is started again."""

    def __init__(self, node: Node, folder: Path, database: str, size: Size) -> None:
        (folder / "shop.py").write_text(APP)
        self._folder = folder
        environment = {"BOOTSTRAP": node.bootstrap, "DATABASE": database}
        environment["CONCURRENCY"] = str(size.concurrency)
        self._environment = {**os.environ, **environment, "HEADRACE_BOOTSTRAP": node.bootstrap}
        worker = [PROGRAM, "app", "run", "shop:app", "--drain", "--log-level", "warning"]
        widen = [PROGRAM, "backlog", "widen", "orders", "--group", "billing"]
        widen += ["--times", str(size.times), "--few-left", "50", "--execute"]
        self._commands = [widen, worker, worker]
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


@pytest.mark.parametrize("size", SIZES, ids=["small", "million"])
def test_a_widening_whose_every_part_is_killed_bills_each_order_once_and_in_order(
    node: Node, engine: Engine, postgres: Postgres, tmp_path: Path, size: Size
) -> None:
    chance = random.Random(7)
    cluster = ClientSettings({"bootstrap.servers": node.bootstrap}, timeout_s=PATIENCE_S)
    within_s = 400 if size is SMALL else MILLION_TAKES_S
    a_group_behind(node, size)
    processes = Processes(node, tmp_path, postgres.url, size)
    try:
        processes.start(0)
        wait_until(lambda: "Start consumers" in processes.said(0), "nothing is forwarded")
        for victim in size.victims:
            before = billed(engine)
            more = size.records // 75

            def goes_on(before: int = before, more: int = more) -> bool:
                processes.keep_up()  # one that started while the broker was away has ended
                return billed(engine) > min(before + more, size.records - 1)

            wait_until(goes_on, "nobody bills", within_s=within_s)
            if victim == "broker":
                node.kill()
                node.start()
            else:
                processes.kill(0 if victim == "widening" else chance.choice([1, 2]))
        wait_until(
            lambda: processes.keep_up() or "stop the consumers" in processes.said(0),
            "no end",
            within_s=within_s,
        )
        processes.stop_workers()
        widening = processes.running[0]
        assert widening is not None
        assert widening.wait(400) == 0, processes.said(0)
    finally:
        processes.end()

    require_order(bills(engine), size)
    committed = Groups(cluster).committed("billing")
    assert sum(committed["orders", p] for p in range(2)) == size.records
    assert not any(".wide" in each.name for each in Admin(node.bootstrap).topics.all())


# ---- in a folder


def killed_until_done(node: Node, words: list[str], kills: int, chance: random.Random) -> None:
    """Run a command, kill it some time after it has begun, and again; then let it end."""
    words = [*words, "--timeout", str(PATIENCE_S)]
    environment = {**os.environ, "HEADRACE_BOOTSTRAP": node.bootstrap}
    for _ in range(kills):
        process = subprocess.Popen([PROGRAM, *words], env=environment, stderr=subprocess.PIPE)
        # Importing takes half a second; later it reads, writes, or has ended.
        with suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0.6, 3.0))
        process.kill()
        process.wait()
        if process.returncode == 0:
            return
    done = subprocess.run(
        [PROGRAM, *words], env=environment, capture_output=True, text=True, check=False
    )
    # The last kill may have come when all was done and only the command's end was missing.
    all_done = "has no backlog" in done.stderr or "Nothing of orders is parked" in done.stderr
    assert done.returncode == 0 or all_done, done.stderr


@pytest.mark.parametrize("size", SIZES, ids=["small", "million"])
def test_a_parking_and_a_return_that_are_killed_bring_each_record_back_once_and_in_order(
    node: Node, tmp_path: Path, size: Size
) -> None:
    chance = random.Random(11)
    a_group_behind(node, size)
    retry = retry_topic("orders", "billing")
    Admin(node.bootstrap).topics.create(retry, partitions=2)
    folder = str(tmp_path / "parked")
    group = ["orders", "--group", "billing"]
    killed_until_done(
        node, ["backlog", "park", *group, "--to", folder, "--execute"], size.kills, chance
    )
    cluster = ClientSettings({"bootstrap.servers": node.bootstrap}, timeout_s=PATIENCE_S)
    committed = Groups(cluster).committed("billing")
    assert sum(committed["orders", p] for p in range(2)) == size.records
    node.kill()
    node.start()
    back = ["backlog", "bring-back", *group, "--from", folder, "--execute"]
    killed_until_done(node, back, size.kills, chance)
    with closing(RecordReader(cluster, retry)) as reader:
        require_order([int(record.value or b"-1") for record in reader.records()], size)
