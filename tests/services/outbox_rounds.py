"""Accounts whose every change is told through the outbox: writers, relays as processes, a checker.

A transaction raises the version of one or more accounts and sends (account, version) for each, in
all the ways that make naive relays skip or swap: long, rolled back, with savepoints, many rows at
once. At the end each account's records must be 1, 2, 3 ... up to its version in the database.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from sqlalchemy import Engine, event, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from headrace import Admin, Outbox
from headrace.client import ClientError
from headrace.client.connection import ClientSettings as Cluster
from headrace.client.lookup.record_reader import RecordReader
from headrace.services.outbox.engines import engine_for
from tests import patience
from tests.interop.brokers import Node
from tests.services.app_rounds import hears_sigterm
from tests.services.servers import Mariadb, Postgres

TOPIC = "transfers"
ACCOUNTS = 40
LEASE_S = 3
TABLES = (
    "headrace_outbox_states", "headrace_outbox_meta", "headrace_outbox_gate",
    "headrace_outbox_parked", "headrace_outbox_confirmations", "headrace_outbox_shards",
    "headrace_outbox_relays", "headrace_outbox", "accounts",
)  # fmt: skip


class Shop:
    """The application's database, with an outbox in it."""

    def __init__(self, url: str, *, shards: int = 4) -> None:
        self.url = url
        self.engine = engine_for(url)
        if self.engine.dialect.name == "sqlite":
            begin_immediately(self.engine)
        with self.engine.begin() as db:
            for name in TABLES:
                kind = "VIEW" if name.endswith("states") else "TABLE"
                db.execute(text(f"DROP {kind} IF EXISTS {name}"))
            if self.engine.dialect.name == "postgresql":
                db.execute(text("DROP SEQUENCE IF EXISTS headrace_outbox_id_seq"))
            db.execute(text("CREATE TABLE accounts (name VARCHAR(20) PRIMARY KEY, version INT)"))
        self.outbox = Outbox(self.engine)
        self.outbox.create(shards)
        with self.engine.begin() as db:
            rows = [{"name": f"a{n:02}"} for n in range(ACCOUNTS)]
            db.execute(text("INSERT INTO accounts VALUES (:name, 0)"), rows)

    def versions(self) -> dict[str, int]:
        with self.engine.connect() as db:
            return {row[0]: row[1] for row in db.execute(text("SELECT * FROM accounts"))}

    def change(self, db: Connection, names: list[str]) -> None:
        """Raise and tell: the business row is locked before the outbox row gets its id."""
        for name in sorted(names):
            raised = text("UPDATE accounts SET version = version + 1 WHERE name = :name")
            db.execute(raised, {"name": name})
            found = text("SELECT version FROM accounts WHERE name = :name")
            version = db.execute(found, {"name": name}).scalar_one()
            self.outbox.send(db, TOPIC, {"account": name, "version": version}, key=name)


def begin_immediately(engine: Engine) -> None:
    """As the guide says: a transaction that will write takes SQLite's lock at its beginning."""

    @event.listens_for(engine, "connect")
    def connected(connection: object, _: object) -> None:
        connection.isolation_level = None  # type: ignore[attr-defined]
        connection.execute("PRAGMA busy_timeout = 60000")  # type: ignore[attr-defined]

    @event.listens_for(engine, "begin")
    def begun(db: Connection) -> None:
        if db.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            db.exec_driver_sql("BEGIN IMMEDIATE")


class Writers:
    """Threads that change accounts, as many as they are allowed at the moment."""

    def __init__(self, shop: Shop, *, rows: int, threads: int = 8, seed: int = 1) -> None:
        self.shop, self.rows = shop, rows
        self.committed = self.allowed = 0
        self.failures: list[BaseException] = []
        self._counting = threading.Lock()
        self._threads = [
            threading.Thread(target=self._write, args=(random.Random(f"{seed}/{n}"),))
            for n in range(threads)
        ]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.join()

    def go_on(self, share: float) -> None:
        """Write up to this share of all rows."""
        self.allowed = round(self.rows * share)

    def join(self) -> None:
        self.go_on(1)
        for thread in self._threads:
            thread.join()
        assert self.failures == []

    def _write(self, chance: random.Random) -> None:
        try:
            while self.committed < self.rows:
                if self.committed >= self.allowed:
                    time.sleep(0.01)
                    continue
                names = chance.sample([f"a{n:02}" for n in range(ACCOUNTS)], chance.randint(1, 3))
                with contextlib.suppress(RolledBack, DBAPIError):  # a deadlock, a killed database
                    self._once(chance, names)
                    with self._counting:
                        self.committed += len(names)
        except BaseException as failure:
            self.failures.append(failure)
            raise

    def _once(self, chance: random.Random, names: list[str]) -> None:
        with self.shop.engine.begin() as db:
            if chance.random() < 0.1:
                with contextlib.suppress(RolledBack), db.begin_nested():
                    self.shop.change(db, names[:1])
                    raise RolledBack
            self.shop.change(db, names)
            if chance.random() < 0.02:
                time.sleep(chance.uniform(0.05, 0.2))  # a straggler
            if chance.random() < 0.12:
                raise RolledBack


class RolledBack(Exception):
    pass


class Relays:
    """`headrace outbox relay` as processes, ended by their ids."""

    def __init__(self, url: str, bootstrap: str, folder: Path, *words: str) -> None:
        program = str(Path(sys.executable).with_name("headrace"))
        self._command = [program, "outbox", "relay", url, "--bootstrap", bootstrap]
        self._command += ["--lease", f"{LEASE_S}s", *words]
        self._log = folder / "relays.log"
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        self.running.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        self.running.remove(process)
        process.kill()
        process.wait()

    def stop(self) -> None:
        for process in self.running:
            until(lambda one=process: hears_sigterm(one), 120, self.log_text)  # type: ignore[misc]
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(400) for process in self.running]
        self.running = []
        assert codes == [0] * len(codes), self.log_text()[-4000:]

    def log_text(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def __enter__(self) -> Relays:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


def told(bootstrap: str) -> dict[str, list[int]]:
    """The versions of each account as readers of committed records see them, in order."""
    settings = {"bootstrap.servers": bootstrap, "isolation.level": "read_committed"}
    reader = RecordReader(Cluster(settings), TOPIC)
    found: dict[str, list[int]] = defaultdict(list)
    try:
        for record in reader.records():
            change = json.loads(record.value or b"")
            found[change["account"]].append(change["version"])
    finally:
        reader.close()
    return found


def ends(bootstrap: str) -> int:
    """The end offsets of all partitions together: a measure of progress."""
    deadline = time.monotonic() + 400
    while True:
        try:
            [found] = Admin(bootstrap).topics.describe([TOPIC])
            return sum(each.end_offset or 0 for each in found.partitions)
        except ClientError:  # a broker that has just come back does not know its epochs yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def wrong(shop: Shop, bootstrap: str) -> list[str]:
    """Accounts whose records are not 1, 2, 3 ... up to the version in the database."""
    records = told(bootstrap)
    return [
        f"{name}: {version} versions, told {records.get(name, [])[:20]}..."
        for name, version in shop.versions().items()
        if records.get(name, []) != list(range(1, version + 1))
    ]


def wait_until_told(shop: Shop, bootstrap: str, relays: Relays, within_s: float = 240.0) -> None:
    def count() -> bool:
        try:
            return sum(map(len, told(bootstrap).values())) >= sum(shop.versions().values())
        except ClientError:  # leaders move after a broker's death
            return False

    until(count, within_s, relays.log_text)


def until(true: Callable[[], bool], within_s: float, said: Callable[[], str]) -> None:
    patience.until(true, lambda: said()[-6000:], within_s=within_s, every_s=0.3)


def told_up_to(share: float, writers: Writers, relays: Relays, bootstrap: str) -> None:
    """Let them write on to this share of the rows, and see that relays are at work."""
    before = ends(bootstrap)
    writers.go_on(share)
    patience_s = 240 + writers.rows / 50
    until(lambda: writers.committed >= writers.allowed, patience_s, relays.log_text)
    until(lambda: ends(bootstrap) > before, patience_s, relays.log_text)


@contextlib.contextmanager
def standing_still(process: subprocess.Popen[bytes]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def told_once_and_in_order(
    shop: Shop,
    node: Node,
    server: Postgres | Mariadb | None,
    folder: Path,
    *,
    rows: int,
    relays_at_once: int,
    seed: int = 1,
) -> None:
    """A relay is killed, one stands still past its lease, broker and database are killed, spread
    over the rows; all with kill -9."""
    with Relays(shop.url, node.bootstrap, folder) as relays:
        for _ in range(relays_at_once):
            relays.start()
        with Writers(shop, rows=rows, seed=seed) as writers:

            def reach(share: float) -> None:
                told_up_to(share, writers, relays, node.bootstrap)

            reach(0.2)
            writers.go_on(0.3)
            relays.kill(relays.running[0])
            relays.start()
            reach(0.4)
            writers.go_on(0.5)
            with standing_still(relays.running[0]):
                time.sleep(LEASE_S + 1)  # another relay goes on
            reach(0.6)
            writers.go_on(0.7)
            node.kill()
            node.start()
            reach(0.8)
            if server is not None:
                writers.go_on(0.9)
                server.kill()
                server.start()
            relays.kill(relays.running[-1])
            relays.start()
        wait_until_told(shop, node.bootstrap, relays, within_s=240 + rows / 100)
        relays.stop()
    assert wrong(shop, node.bootstrap) == []
