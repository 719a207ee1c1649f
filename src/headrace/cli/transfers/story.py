"""The demonstration: transfers from one bank to another while its processes are killed.

Kills are kill -9, at random by a seed: the relay, the receiving bank, the broker; without an outbox
the sending bank instead of the relay. Nobody is killed before money has moved on both sides since
the last kill, however slow the machine is. In the end the killing stops, what is under way arrives,
and the money is counted.
"""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headrace.cli.transfers import bank
from headrace.client import Admin, ClientError
from headrace.outbox import Outbox
from headrace.services.outbox.status import shard_states
from headrace.services.outbox.store import Store

PER_SECOND = 60
START_S = 120.0
ARRIVAL_S = 120.0
# So long nothing has come without the outbox: the rest is lost.
STILL_S = 5.0
LOOK_EVERY_S = 0.25
# The processes that are killed together: one of each side.
VICTIMS = (("relay", "naive-payment"), ("savings", "naive-savings"), ("broker",))
NAMES = {
    "relay": "relay",
    "naive-payment": "paying bank",
    "savings": "savings bank",
    "naive-savings": "savings bank",
    "broker": "broker",
}


@dataclass(slots=True)
class Side:
    """One way of sending, as the picture shows it."""

    sent: int = 0
    lost: int = 0
    doubled: int = 0
    payment: int = 0
    savings: int = 0

    @property
    def money(self) -> int:
        return self.payment + self.savings


@dataclass(slots=True)
class Picture:
    seconds: float = 0.0
    phase: str = "starting"
    waiting: int = 0
    kills: dict[str, int] = field(default_factory=dict)
    outbox: Side = field(default_factory=Side)
    naive: Side = field(default_factory=Side)
    first_money: int = 2 * bank.ACCOUNTS * bank.FIRST_BALANCE

    @property
    def right(self) -> bool:
        """Nothing is missing, nothing is there twice, and the money is what it was."""
        side = self.outbox
        return side.lost == side.doubled == 0 and side.money == self.first_money


class Story:
    def __init__(self, folder: Path, *, seconds: float, seed: int) -> None:
        self.folder, self.seconds = folder, seconds
        self.picture = Picture()
        self._chance = random.Random(seed)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.bootstrap = f"127.0.0.1:{free.getsockname()[1]}"
        self._banks = {
            name: bank.open_bank(folder / f"{name}.db")
            for name in ("payment", "savings", "naive-payment", "naive-savings")
        }
        for engine in self._banks.values():
            bank.found(engine, balance=bank.FIRST_BALANCE)
        self.outbox = Outbox(self._banks["payment"])
        self.outbox.create(shards=1)
        self._store = Store(self._banks["payment"])
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stop_paying = threading.Event()
        beginning = bank.ACCOUNTS * bank.FIRST_BALANCE
        self._moved = (beginning, beginning)  # what has arrived on both sides, at the last kill
        self._naive_seen, self._naive_since = -1, 0.0
        self._victims: list[tuple[str, ...]] = []

    # ---- the whole of it

    def run(self, show: Callable[[Picture], object]) -> Picture:
        """Ends by itself; all processes have ended then."""
        try:
            self._start("broker")
            self._until(self._answers, START_S, show)
            for topic in (bank.TOPIC, bank.NAIVE_TOPIC):
                Admin(self.bootstrap).topics.create(topic, partitions=3)
            for name in ("relay", "savings", "naive-savings", "naive-payment"):
                self._start(name)
            paying = threading.Thread(target=self._pay, name="payment", daemon=True)
            paying.start()
            self._until(self._has_moved, START_S, show)
            self._kill_for(self.seconds, show)
            self._stop_paying.set()
            paying.join()
            self._kill("naive-payment")
            self.picture.phase = "settling"
            self._until(self._has_arrived, ARRIVAL_S, show)
            self._look()
            self.picture.phase = "done"
            show(self.picture)
            return self.picture
        finally:
            for name in list(self._processes):
                self._kill(name)
            for engine in self._banks.values():
                engine.dispose()

    def _pay(self) -> None:
        """The payment service: debit and message in one transaction."""
        engine, number = self._banks["payment"], 0
        while not self._stop_paying.is_set():
            with engine.begin() as db:
                for _ in range(3):
                    name, transfer = bank.account(number % bank.ACCOUNTS), f"t-{number}"
                    bank.book(db, name, -100, transfer)
                    said = {"id": transfer, "account": name, "amount": 100}
                    self.outbox.send(db, bank.TOPIC, said, key=name)
                    number += 1
            self._stop_paying.wait(3 / PER_SECOND)

    # ---- processes

    def _start(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self._command(name), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _command(self, name: str) -> list[str]:
        headrace = [sys.executable, "-m", "headrace"]
        if name == "broker":
            data = str(self.folder / "node")
            return [*headrace, "start", "--data", data, "--listen", self.bootstrap]
        if name == "relay":
            url = f"sqlite:///{self.folder / 'payment.db'}"
            return [*headrace, "outbox", "relay", url, "--lease", "2s", "-b", self.bootstrap]
        program = [sys.executable, "-m", "headrace.cli.transfers.programs", name]
        more = [str(PER_SECOND)] if name == "naive-payment" else []
        return [*program, self.bootstrap, str(self.folder / f"{name}.db"), *more]

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def _kill_for(self, seconds: float, show: Callable[[Picture], object]) -> None:
        self.picture.phase = "killing"
        began = next_kill = time.monotonic()
        while (now := time.monotonic()) < began + seconds:
            self.picture.seconds = now - began
            if now >= next_kill and self._has_moved():
                self._strike()
                next_kill = now + self._chance.uniform(2.0, 5.0)
            self._revive()
            self._look()
            show(self.picture)
            time.sleep(LOOK_EVERY_S)

    def _strike(self) -> None:
        if not self._victims:  # each in turn, in an order of chance
            self._victims = self._chance.sample(VICTIMS, len(VICTIMS))
        for name in self._victims.pop():
            self._kill(name)
            kills = self.picture.kills
            kills[NAMES[name]] = kills.get(NAMES[name], 0) + 1
            self._start(name)
        self._moved = self.picture.outbox.savings, self.picture.naive.savings

    def _has_moved(self) -> bool:
        """Whether money has come since the last kill, with the outbox and without."""
        self._look()
        ours, naive = self._moved
        return self.picture.outbox.savings > ours and self.picture.naive.savings > naive

    def _revive(self) -> None:
        """One that starts while the broker is away may end with a sentence."""
        for name, process in list(self._processes.items()):
            if process.poll() is not None:
                self._start(name)

    # ---- looking

    def _answers(self) -> bool:
        try:
            Admin(self.bootstrap).topics.all()
            return True
        except ClientError:
            return False

    def _has_arrived(self) -> bool:
        self._revive()
        self._look()
        side = self.picture.outbox
        return side.lost == 0 and self.picture.waiting == 0 and self._naive_is_still()

    def _naive_is_still(self) -> bool:
        """A transfer is lost if nothing has arrived for this long."""
        side, now = self.picture.naive, time.monotonic()
        if side.savings != self._naive_seen:
            self._naive_seen, self._naive_since = side.savings, now
        return now - self._naive_since > STILL_S

    def _look(self) -> None:
        picture = self.picture
        picture.waiting = sum(each.waiting for each in shard_states(self._store))
        for side, prefix in ((picture.outbox, ""), (picture.naive, "naive-")):
            paid = bank.transfers(self._banks[f"{prefix}payment"])
            got = bank.transfers(self._banks[f"{prefix}savings"])
            side.sent = len(paid)
            side.lost = len(paid.keys() - got.keys())
            side.doubled = sum(count - 1 for count in got.values())
            side.payment = bank.total(self._banks[f"{prefix}payment"])
            side.savings = bank.total(self._banks[f"{prefix}savings"])

    def _until(
        self, true: Callable[[], bool], within_s: float, show: Callable[[Picture], object]
    ) -> None:
        deadline = time.monotonic() + within_s
        while not true() and time.monotonic() < deadline:
            show(self.picture)
            time.sleep(LOOK_EVERY_S)


def own_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="headrace-demo-", ignore_cleanup_errors=True)
