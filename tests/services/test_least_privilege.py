"""The lists of rights in the guide are enough, and nothing in them is missing.

A node with its authorizer on, where the guide's own commands are the only entries: the delay
service, an app with retries, dead letters and exactly-once, redrive and the command line do their
work, and nobody is refused anything.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.client import Producer
from headrace.client.connection import Connection, connection
from headrace.client.delayed_topics import DelayedTopics
from headrace.client.reading import RecordReader
from headrace.client.topics import Topics
from tests.interop.brokers import Node
from tests.interop.secured import ADMIN, client_settings, secured_node
from tests.services.delay_process import DelayProcess

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "acls.md"
USERS = ("headrace-delay", "billing", "ops", "clerk", "shop", "pipeline")
PROGRAM = str(Path(sys.executable).with_name("headrace"))

APP = """
import os
from headrace import App, Message, Publish, Retry

app = App(group="billing", delay="require")


@app.on("orders", retry=Retry(attempts=3, first="1s", longest="1s"))
async def handle(order: dict, message: Message):
    if message.attempt <= order["fails"]:
        raise OSError("the bank does not answer")
    return Publish("invoices", {"number": order["number"]})
"""
EXACT = """
from headrace import App, Message, Publish

app = App(group="billing", delay="off")


@app.on("orders", exactly_once=True, order_by="partition")
async def handle(order: dict, message: Message):
    return Publish("invoices", {"number": order["number"]})
"""


class Delay(DelayProcess):
    def command(self) -> list[str]:
        settings = client_settings("headrace-delay")
        return [*super().command(), *(w for k, v in settings.items() for w in ("-X", f"{k}={v}"))]


class Guarded:
    def __init__(self, node: Node, folder: Path) -> None:
        self.node = node
        self.folder = folder
        self.admin = self.as_user(ADMIN)

    def as_user(self, user: str) -> Connection:
        return connection(bootstrap=self.node.bootstrap, overrides=client_settings(user))

    def config(self, user: str) -> str:
        path = self.folder / f"{user}.conf"
        path.write_text("".join(f"{k}={v}\n" for k, v in client_settings(user).items()))
        return str(path)

    def run(self, user: str, *words: str, stdin: str = "", within_s: float = 60) -> str:
        where = ("--bootstrap", self.node.bootstrap, "--client-config", self.config(user))
        done = subprocess.run(
            [PROGRAM, *words, *where], capture_output=True, text=True, timeout=within_s, input=stdin
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def start_app(self, name: str, source: str, user: str) -> subprocess.Popen[bytes]:
        (self.folder / f"{name}.py").write_text(source)
        environment = os.environ | {
            "HEADRACE_BOOTSTRAP": self.node.bootstrap,
            "HEADRACE_CLIENT_CONFIG": self.config(user),
            "PYTHONPATH": str(self.folder),
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [PROGRAM, "app", "run", f"{name}:app"],
                env=environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )

    def allow(self, heading: str, *instead: tuple[str, str]) -> None:
        """What the guide says under a heading, with other names if need be."""
        for command in commands_under(heading):
            for old, new in instead:
                command = re.sub(rf"(?<![\w.-]){re.escape(old)}(?![\w-])", new, command)
            self.run(ADMIN, *shlex.split(command)[1:])

    def denied(self) -> list[str]:
        """Refusals in the audit, which is in the node's log."""
        return [
            line
            for line in self.node.log_text().splitlines()
            if '"event":"denied"' in line and any(f"User:{user}" in line for user in USERS)
        ]

    def values(self, topic: str, count: int, within_s: float = 40.0) -> list[bytes]:
        found: list[bytes] = []
        deadline = time.monotonic() + within_s
        while len(found) < count:
            assert time.monotonic() < deadline, (topic, found, self.denied())
            with closing(RecordReader(self.admin, topic)) as reader:
                found = [record.value or b"" for record in reader.records()]
        return found


def commands_under(heading: str) -> list[str]:
    _, _, rest = GUIDE.read_text().partition(f"### {heading}\n")
    section = rest.partition("\n### ")[0].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    found = [line for block in blocks for line in block.splitlines() if line]
    assert found and all(line.startswith("headrace acls add ") for line in found)
    return found


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    settings = {"headrace.delay.service": "off", "headrace.audit": "log"}
    with secured_node("headrace", tmp_path / "node", USERS, **settings) as node:
        yield Guarded(node, tmp_path)


def until(is_so: Callable[[], bool], within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.05)


def ended(worker: subprocess.Popen[bytes]) -> int:
    """SIGTERM; what does not end by that is killed."""
    worker.send_signal(signal.SIGTERM)
    try:
        return worker.wait(30)
    except subprocess.TimeoutExpired:
        worker.kill()
        return worker.wait()


def test_the_delay_service(guarded: Guarded, tmp_path: Path) -> None:
    Topics(guarded.admin).create("orders", partitions=2)
    DelayedTopics(guarded.admin).enable("orders")
    guarded.allow("The delay service")
    guarded.run(ADMIN, "acls", "add", "-p", "shop", "--producer", "--topic", "orders.delay")
    with Delay(guarded.node.bootstrap, tmp_path) as service:
        with Producer(guarded.as_user("shop")) as shop:
            for number in range(4):
                delay = {"headrace-delay": "1s", "headrace-id": f"n{number}"}
                shop.send("orders.delay", f"{number}", key=f"{number}", headers=delay)
            shop.send("orders.delay", "later", headers={"headrace-delay": "60d"})
            shop.send("orders.delay", "bad", headers={"headrace-delay": "nonsense"})
        assert sorted(guarded.values("orders", 4)) == [b"0", b"1", b"2", b"3"]
        assert guarded.values("orders.delay.rejected", 1) == [b"bad"]
        Topics(guarded.admin).grow("orders", partitions=3)
        described = Topics(guarded.admin)
        until(lambda: len(described.describe(["orders.delay"])[0].partitions) == 3)
        service.kill()
        service.start()
        with Producer(guarded.as_user("shop")) as shop:
            shop.send("orders.delay", "again", headers={"headrace-delay": "500ms"})
        assert b"again" in guarded.values("orders", 5)
    assert guarded.denied() == []


def test_an_app_its_retries_its_dead_letters_and_redrive(guarded: Guarded, tmp_path: Path) -> None:
    for name in ("orders", "invoices"):
        Topics(guarded.admin).create(name, partitions=1)
    guarded.run(ADMIN, "topics", "create", "other", "--delayed")  # makes the registry
    guarded.allow("The delay service", ("orders", "orders.billing.retry"))
    guarded.allow("An app with retries and dead letters")
    with Delay(guarded.node.bootstrap, tmp_path):
        worker = guarded.start_app("billing_app", APP, "billing")
        try:
            with Producer(guarded.admin) as shop:
                for number, fails in enumerate((0, 1, 9)):
                    order = {"number": number, "fails": fails}
                    shop.send("orders", json.dumps(order), key=f"{number}")
            assert len(guarded.values("invoices", 2)) == 2
            assert len(guarded.values("orders.billing.dead", 1)) == 1
            guarded.allow("Sending dead letters again")
            dead = "orders.billing.dead"
            fixed = tmp_path / "fixed.json"
            fixed.write_text(json.dumps({"number": 2, "fails": 0}))
            assert "bank does not answer" in guarded.run("ops", "dead-letters", "list", dead)
            guarded.run(
                "ops", "dead-letters", "redrive", dead, "--value-file", str(fixed), "--execute"
            )
            assert len(guarded.values("invoices", 3)) == 3
        finally:
            code = ended(worker)
    assert code == 0, (tmp_path / "billing_app.log").read_text()[-3000:]
    assert guarded.denied() == []


def test_an_app_that_handles_exactly_once(guarded: Guarded, tmp_path: Path) -> None:
    for name in ("orders", "invoices"):
        Topics(guarded.admin).create(name, partitions=1)
    guarded.allow("An app with retries and dead letters")
    worker = guarded.start_app("exact_app", EXACT, "billing")
    try:
        with Producer(guarded.admin) as shop:
            for number in range(3):
                shop.send("orders", json.dumps({"number": number}))
        assert len(guarded.values("invoices", 3)) == 3
    finally:
        code = ended(worker)
    assert code == 0, (tmp_path / "exact_app.log").read_text()[-3000:]
    assert guarded.denied() == []


def test_the_command_line(guarded: Guarded) -> None:
    for name in ("orders", "secrets"):
        Topics(guarded.admin).create(name, partitions=1)
    guarded.allow("The command line")
    assert "secrets" not in guarded.run("clerk", "topics", "list")
    guarded.run("clerk", "produce", "orders", stdin="a\nb\n")
    assert guarded.run("clerk", "consume", "orders", "--count", "2").split() == ["a", "b"]
    reset = ("groups", "reset", "billing", "--topic", "orders", "--to-end", "--execute")
    guarded.run("clerk", *reset)
    assert "orders" in guarded.run("clerk", "groups", "describe", "billing")
    guarded.run("clerk", "groups", "delete", "billing", "--yes")
    assert guarded.denied() == []
