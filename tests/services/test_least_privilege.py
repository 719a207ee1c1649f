"""The lists of rights in the guide are enough, nothing in them is missing, and nothing too much.

A node with its authorizer on, where the guide's own commands are the only entries: the delay
service, apps with retries, dead letters, exactly-once and once-only, triggers, redrive and the
command line do their work, nobody is refused anything, and each entry was needed. Then entries are
taken away, and somebody is told so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.client import Producer
from headrace.client.admin.topics import Topics
from headrace.client.delay.delayed_topics import DelayedTopics
from tests.interop.secured import ADMIN, PASSWORD
from tests.services.a_guarded_node import (
    USERS,
    Delay,
    Guarded,
    WatchedNode,
    ended,
    places_of,
    until,
)

RETRIES = "An app with retries and dead letters"
pytestmark = pytest.mark.timeout(600)  # several processes each, on machines that do other things

# Waits of more than two seconds go through delayed messages, shorter ones are kept in memory.
APP = """
import os
from headrace import App, Message, Publish, Retry

app = App(group="billing", delay="require")


@app.on("orders", retry=Retry(attempts=3, first="2500ms", longest="2500ms"))
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
ONCE = """
from sqlalchemy import Connection, create_engine, text

from headrace import App, Message, Retry, Sql

engine = create_engine("sqlite:///bills.db")
with engine.begin() as db:
    db.execute(text("CREATE TABLE IF NOT EXISTS bills (number INTEGER)"))
app = App(group="billing", delay="off")


@app.on("orders", once=Sql(engine), retry=Retry(attempts=2, first="100ms"))
def handle(order: dict, message: Message, db: Connection):
    if message.attempt <= order["fails"]:
        raise OSError("the bank does not answer")
    db.execute(text("INSERT INTO bills VALUES (:number)"), {"number": order["number"]})
    if order["last"]:
        print("the last bill is written", flush=True)
"""
TRIGGERS = """
group = "hooks"

[trigger.refunds]
topic = "orders"
function = "refunding:book"
retry = { attempts = 2, first = "2500ms", longest = "2500ms" }
"""
FUNCTION = """
def book(events):
    for event in events:
        with open("booked.txt", "a") as file:
            file.write(f"{event.data}\\n")
    return [event.id for event in events if b"never" in (event.data or b"")]
"""


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    settings = {"transaction.partition.verification.enable": "false"}
    node = WatchedNode(tmp_path / "node", USERS, monkeypatch, **settings)
    try:
        yield Guarded(node, tmp_path)
    finally:
        node.close()
    assert places_of(PASSWORD, tmp_path) == [], "no log and no file has a password"


def unused(guarded: Guarded, user: str) -> list[str]:
    assert isinstance(guarded.node, WatchedNode)
    return guarded.node.unused(user)


def make(guarded: Guarded, *names: str) -> None:
    for name in names:
        Topics(guarded.admin).create(name, partitions=1)


def send_orders(guarded: Guarded, *orders: Mapping[str, object]) -> None:
    with Producer(guarded.admin) as shop:
        for number, order in enumerate(orders):
            shop.send("orders", json.dumps({"number": number, **order}), key=f"{number}")


# ---- enough, and not too much


def test_the_delay_service(guarded: Guarded, tmp_path: Path) -> None:
    Topics(guarded.admin).create("orders", partitions=2)
    DelayedTopics(guarded.admin).enable("orders")
    Topics(guarded.admin).delete("orders.delay.rejected")  # the service makes what is missing
    guarded.allow("The delay service")
    guarded.allow("Senders of delayed messages")
    with Delay(guarded.node.bootstrap, tmp_path) as service:
        with Producer(guarded.as_user("shop")) as shop:
            for number in range(4):
                delay = {"headrace-delay": "1s", "headrace-id": f"n{number}"}
                shop.send("orders.delay", f"{number}", key=f"{number}", headers=delay)
            shop.send("orders.delay", "bad", headers={"headrace-delay": "nonsense"})
        assert sorted(guarded.values("orders", 4)) == [b"0", b"1", b"2", b"3"]
        assert guarded.values("orders.delay.rejected", 1) == [b"bad"]
        with Producer(guarded.as_user("shop")) as shop:
            shop.send_sync("orders", "not wanted", key="0", delay="1h", id="called-off")
        cancelled = DelayedTopics(guarded.as_user("shop")).cancel("orders", "called-off", key="0")
        assert cancelled.outcome == "cancelled"
        Topics(guarded.admin).grow("orders", partitions=3)
        described = Topics(guarded.admin)
        until(lambda: len(described.describe(["orders.delay"])[0].partitions) == 3)
        service.kill()
        service.start()
        with Producer(guarded.as_user("shop")) as shop:
            shop.send("orders.delay", "again", headers={"headrace-delay": "500ms"})
        assert b"again" in guarded.values("orders", 5)
    move_afar_and_back(guarded)
    assert guarded.denied() == []
    hang = "READ topic __consumer_offsets"  # of transactions that do, which a test below has
    assert [one for one in unused(guarded, "headrace-delay") if one != hang] == []
    assert unused(guarded, "shop") == []


def move_afar_and_back(guarded: Guarded) -> None:
    """By an impatient service in this process: usually a record waits for an hour first."""
    from headrace.services.delay.timeline.limits import (
        DelayLimits,  # pipelines borrow this module without it
    )
    from tests.sockets.services.delay.test_service import serving

    user = guarded.as_user("headrace-delay")
    impatient = SimpleNamespace(bootstrap=user, clock=SimpleNamespace(moved_by_ms=0))

    def is_afar() -> bool:
        with Producer(guarded.as_user("shop")) as shop:
            shop.send("orders.delay", "later", key="0", headers={"headrace-delay": "60d"})
        return bool(guarded.values("headrace.delay.far", 0))

    for store in ("one", "another that begins with nothing"):
        with serving(impatient, guarded.folder / store, limits=DelayLimits(far_after_ms=1)):
            until(is_afar)


def test_an_app_its_retries_its_dead_letters_and_redrive(guarded: Guarded, tmp_path: Path) -> None:
    make(guarded, "orders", "invoices")
    guarded.run(ADMIN, "topics", "create", "other", "--delayed")  # makes the registry
    guarded.allow("The delay service", ("orders", "orders.billing.retry"))
    guarded.allow(RETRIES)
    guarded.allow("An app with long waits between retries")
    with Delay(guarded.node.bootstrap, tmp_path):
        worker = guarded.start_app("billing_app", APP, "billing")
        try:
            send_orders(guarded, {"fails": 0}, {"fails": 1}, {"fails": 9})
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
            assert "bank" not in guarded.run("ops", "dead-letters", "list", dead)
        finally:
            code = ended(worker)
        assert code == 0, guarded.log("billing_app")[-3000:]
        # A second start finds what is there, and more partitions.
        Topics(guarded.admin).grow("orders", partitions=2)
        worker = guarded.start_app("billing_again", APP, "billing")
        try:
            send_orders(guarded, *({"fails": number % 2} for number in range(4)))
            assert len(guarded.values("invoices", 7)) == 7
        finally:
            code = ended(worker)
    assert code == 0, guarded.log("billing_again")[-3000:]
    # An app that has run for a minute deletes finished records of its retry topic, if it may.
    assert set(guarded.denied()) <= {"User:billing DELETE topic orders.billing.retry"}
    assert unused(guarded, "billing") == []
    assert unused(guarded, "ops") == []


def test_an_app_that_handles_exactly_once(guarded: Guarded) -> None:
    make(guarded, "orders", "invoices")
    guarded.allow(RETRIES)
    guarded.allow("An app that handles exactly once")
    worker = guarded.start_app("exact_app", EXACT, "billing")
    try:
        send_orders(guarded, {}, {}, {})
        assert len(guarded.values("invoices", 3)) == 3
    finally:
        code = ended(worker)
    assert code == 0, guarded.log("exact_app")[-3000:]
    assert guarded.denied() == []
    assert "WRITE transactional_id headrace-app-" not in unused(guarded, "billing")


def test_an_app_with_once_in_sql(guarded: Guarded) -> None:
    """Its memory is in a database: the rights are those of any app."""
    make(guarded, "orders", "invoices")
    guarded.allow(RETRIES)
    worker = guarded.start_app("once_app", ONCE, "billing")
    try:
        send_orders(
            guarded,
            {"fails": 0, "last": False},
            {"fails": 9, "last": False},
            {"fails": 1, "last": True},
        )
        until(
            lambda: "the last bill" in guarded.log("once_app"), said=lambda: guarded.log("once_app")
        )
        assert len(guarded.values("orders.billing.dead", 1)) == 1
    finally:
        code = ended(worker)
    assert code == 0, guarded.log("once_app")[-3000:]
    assert guarded.denied() == []


def test_triggers(guarded: Guarded, tmp_path: Path) -> None:
    """By a client file, as everything else."""
    make(guarded, "orders")
    guarded.run(ADMIN, "topics", "create", "other", "--delayed")
    guarded.allow("The delay service", ("orders", "orders.hooks_2Erefunds.retry"))
    guarded.allow("Triggers")
    guarded.allow(
        "An app with long waits between retries",
        ("billing", "hooks"),
        ("orders.billing.", "orders.hooks_2Erefunds."),
    )
    (tmp_path / "triggers.toml").write_text(TRIGGERS)
    (tmp_path / "refunding.py").write_text(FUNCTION)
    with Delay(guarded.node.bootstrap, tmp_path):
        words = ("triggers", "run", "triggers.toml", "--client-config", guarded.config("hooks"))
        worker = guarded.start("triggers", *words, user="hooks")
        try:
            send_orders(guarded, {"kind": "refund"}, {"kind": "never"})
            dead = "orders.hooks_2Erefunds.dead"
            until(
                lambda: dead in Topics(guarded.admin).cluster.topics,
                said=lambda: guarded.log("triggers"),
            )
            assert len(guarded.values(dead, 1)) == 1
        finally:
            ended(worker)
    assert "refund" in (tmp_path / "booked.txt").read_text()
    assert guarded.denied() == []
    # Partitions are added when the source has got more; the app's test does that.
    assert unused(guarded, "hooks") == ["ALTER topic orders.hooks_2Erefunds."]


def test_the_command_line(guarded: Guarded) -> None:
    make(guarded, "orders", "secrets")
    guarded.allow("The command line")
    assert "secrets" not in guarded.run("clerk", "topics", "list")
    guarded.run("clerk", "produce", "orders", stdin="a\nb\n")
    assert guarded.run("clerk", "consume", "orders", "--count", "2").split() == ["a", "b"]
    reset = ("groups", "reset", "billing", "--topic", "orders", "--to-end", "--execute")
    guarded.run("clerk", *reset)
    assert "orders" in guarded.run("clerk", "groups", "describe", "billing")
    guarded.run("clerk", "groups", "delete", "billing", "--yes")
    assert guarded.denied() == []
    assert unused(guarded, "clerk") == []


# ---- what is missing is named


# What is taken away, what is tried, what the person is told of, and what the audit says.
COMMANDS = [
    (
        ("write", "--topic", "orders"),
        ("produce", "orders"),
        "topic orders",
        "IDEMPOTENT_WRITE cluster kafka-cluster",  # that of producers who may write nowhere
    ),
    (
        ("read", "--topic", "orders"),
        ("consume", "orders", "--count", "1"),
        "topic orders",
        "READ topic orders",
    ),
    (
        ("read", "--group", "billing"),
        ("groups", "reset", "billing", "--topic", "orders", "--to-end", "--execute"),
        "group",
        "READ group billing",
    ),
    (
        ("delete", "--group", "billing"),
        ("groups", "delete", "billing", "--yes"),
        "group",
        "DELETE group billing",
    ),
]


def test_a_command_without_its_right_says_what_it_may_not(guarded: Guarded) -> None:
    make(guarded, "orders")
    guarded.allow("The command line")
    reset = ("groups", "reset", "billing", "--topic", "orders", "--to-end", "--execute")
    guarded.run("clerk", "produce", "orders", stdin="a\n")
    guarded.run("clerk", *reset)
    for (operation, kind, name), words, resource, missing in COMMANDS:
        guarded.forbid("clerk", operation, kind, name)
        said = guarded.failure("clerk", *words, stdin="x\n")
        assert said.count("\n") == 1 and resource in said and "may not" in said, (words, said)
        assert f"User:clerk {missing}" in guarded.denied(), (missing, guarded.denied())
        guarded.run(ADMIN, "acls", "add", "-p", "clerk", "-o", operation, kind, name)


@pytest.mark.parametrize(
    ("operation", "where", "named"),
    [
        ("read", ("--group", "billing"), "DESCRIBE group billing"),
        ("write", ("--topic", "invoices"), "DESCRIBE topic invoices"),
        (
            "create",
            ("--topic", "orders.billing.", "--prefixed"),
            "CREATE topic orders.billing.retry",
        ),
        ("write", ("--topic", "orders.billing.", "--prefixed"), "WRITE topic orders.billing.dead"),
    ],
)
def test_an_app_without_its_right_says_what_it_may_not(
    guarded: Guarded, operation: str, where: tuple[str, ...], named: str
) -> None:
    make(guarded, "orders", "invoices")
    guarded.allow(RETRIES)
    guarded.forbid("billing", operation, *where)
    source = APP.replace('"require"', '"off"').replace("2500ms", "100ms")
    worker = guarded.start_app("poor_app", source, "billing")
    try:
        send_orders(guarded, {"fails": 0}, {"fails": 9})
        until(
            lambda: f"User:billing {named}" in guarded.denied(),
            said=lambda: guarded.log("poor_app"),
        )
        until(
            lambda: any(word in guarded.log("poor_app") for word in ("may not", "not allowed")),
            said=lambda: guarded.log("poor_app"),
        )
    finally:
        ended(worker)


def test_the_delay_service_without_a_right_says_so_and_goes_on_when_it_has_it(
    guarded: Guarded, tmp_path: Path
) -> None:
    make(guarded, "orders")
    DelayedTopics(guarded.admin).enable("orders")
    guarded.allow("The delay service")
    guarded.forbid("headrace-delay", "write", "--topic", "orders")
    with Delay(guarded.node.bootstrap, tmp_path) as service:
        with Producer(guarded.admin) as shop:
            shop.send("orders.delay", "waits", headers={"headrace-delay": "10ms"})
        for lacking, said in (
            ("describe", "the topic orders is missing: create it, or let it be seen"),
            ("write", "the service may not write to its target, or to a topic beside it"),
        ):
            until(lambda: said in service.log_text(), said=service.log_text)  # noqa: B023
            words = ("acls", "add", "-p", "headrace-delay", "-o", lacking, "--topic", "orders")
            guarded.run(ADMIN, *words)
        assert guarded.values("orders", 1) == [b"waits"]


def test_a_transaction_that_hangs_needs_a_few_rights_more(guarded: Guarded, tmp_path: Path) -> None:
    """The guide says which; without it the service says so, and an operator can decide."""
    from headrace.services.delay.timeline.progress import (
        IntakeProgress,  # pipelines borrow this module without it
    )
    from tests.sockets.services.delay import test_hanging_transactions as stories

    assert isinstance(guarded.node, WatchedNode)
    make(guarded, "orders")
    DelayedTopics(guarded.admin).enable("orders")
    guarded.allow("The delay service")
    due_ms = stories.DUE_MS
    with Producer(guarded.admin) as shop:
        for value in ("first", "second"):
            shop.send("orders.delay", value, headers={"headrace-deliver-at": f"{due_ms}"})
    unguarded = guarded.node.unguarded
    stories.deliver(unguarded, b"first", commit=True)
    stories.leave_offsets(unguarded, IntakeProgress(1, (due_ms, 0)))
    with Delay(guarded.node.bootstrap, tmp_path) as service:
        until(lambda: "so it waits" in service.log_text(), said=service.log_text)
        assert guarded.denied() == ["User:headrace-delay READ topic orders"]
        guarded.allow("Transactions that hang")
        assert guarded.values("orders", 2) == [b"first", b"second"]
        until(lambda: "commit markers are written" in service.log_text(), said=service.log_text)
    left = unused(guarded, "headrace-delay")
    assert not {"ALTER cluster kafka-cluster", "READ topic orders", "READ topic orders.delay.",
                "READ topic __consumer_offsets"} & set(left), left  # fmt: skip


def test_the_doctor_names_who_may_write_later_and_not_now(guarded: Guarded) -> None:
    make(guarded, "orders")
    DelayedTopics(guarded.admin).enable("orders")
    guarded.run(ADMIN, "acls", "add", "-p", "shop", "--producer", "--topic", "orders.delay")
    found = json.loads(guarded.run(ADMIN, "doctor", "--json"))
    [warned] = [one for one in found if one["about"] == "delay"]
    assert warned["state"] == "watch"
    assert "User:shop may write to orders.delay, and so with a delay to orders" in warned["found"]
    guarded.run(ADMIN, "acls", "add", "-p", "shop", "--producer", "--topic", "orders")
    found = json.loads(guarded.run(ADMIN, "doctor", "--json"))
    [fine] = [one for one in found if one["about"] == "delay"]
    assert fine["state"] == "good"
