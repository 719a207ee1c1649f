"""The examples do what their READMEs say."""

import asyncio
import importlib.util
import json
import sys
import tomllib
from pathlib import Path

import pytest

from headrace.app.triggers.settings import parse
from headrace.services.redrive.letters import Selection
from headrace.services.redrive.service import DeadLetters
from headrace.testing import Broker, TestApp

pytestmark = pytest.mark.usefixtures("quick_producers")

EXAMPLES = Path(__file__).parents[3] / "examples"


def load(folder, name, monkeypatch):
    """An example's module, fresh for each test."""
    path = EXAMPLES / folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def values(records):
    return [json.loads(record.value) for record in records]


@pytest.mark.integration
def test_the_order_service_bills_once_in_order_and_parks_what_cannot_be(tmp_path, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path / 'bills.db'}")
    billing = load("order-service", "billing", monkeypatch)
    down = [True]
    ask = billing.credit_limit

    async def sometimes_down(customer):
        if down and customer == "ada":
            raise ConnectionError("the credit system is away")
        return await ask(customer)

    monkeypatch.setattr(billing, "credit_limit", sometimes_down)
    with TestApp(billing.app, topics=["bills"]) as running:
        for number, customer in enumerate(["ada", "ada", "bob", "unknown eve"], start=1):
            order = {"number": number, "customer": customer, "total": 500 * number}
            running.send("orders", order, key=customer)
        running.until_idle()
        assert [bill["order"] for bill in values(running.records("bills"))] == [3]
        down.clear()
        running.advance(minutes=10)
        assert [bill["order"] for bill in values(running.records("bills"))] == [3, 1, 2]
        [letter] = running.dead_letters("orders")
        assert b"UnknownCustomer" in letter.header("headrace-dead-error")

        async def known(customer):
            return 1

        monkeypatch.setattr(billing, "credit_limit", known)
        letters = DeadLetters(billing.app.connection)
        assert len(list(letters.redrive("orders.billing.dead", Selection(), by="test"))) == 1
        running.until(lambda: len(running.records("bills")) == 4)
        assert values(running.records("bills"))[-1] == {"order": 4, "on_account": False}
    asyncio.run(billing.engine.dispose())


@pytest.mark.integration
def test_the_notifier_reminds_those_who_did_not_come_back(monkeypatch):
    monkeypatch.delenv("REDIS_URL", raising=False)
    notifier = load("notifier", "notifier", monkeypatch)
    with Broker(delay=True) as broker, TestApp(notifier.app, broker=broker) as running:
        notifier.app.connection.timeout_s = 20
        from headrace.client import Admin

        Admin(broker.bootstrap).delayed.enable("users.remind")
        for id, mail in (("1", "ada@example.org"), ("2", "bob@example.org")):
            running.send("users.new", {"id": id, "mail": mail}, key=id)
        running.until_idle()
        running.send("users.back", {"id": "2", "mail": ""}, key="2")
        running.until(lambda: len(notifier.sent) == 2)
        running.until_idle()
        running.advance(hours=24)
        running.until(lambda: len(notifier.sent) == 3)
        assert notifier.sent[-1] == notifier.Notice("ada@example.org", "We have missed you.")


def test_the_function_trigger(monkeypatch):
    file = parse(tomllib.loads((EXAMPLES / "function-trigger/triggers.toml").read_text()), {})
    assert [trigger.name for trigger in file.triggers] == ["shrink", "notify"]
    with Broker() as broker:
        monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)
        functions = load("function-trigger", "functions", monkeypatch)
        cloud_events = pytest.importorskip("headrace.app.triggers.cloud_events")
        events = [
            cloud_events.Event(str(number), "/pictures/0", "t", 0, None, json.dumps(data).encode())
            for number, data in enumerate(
                [
                    {"name": "cat", "width": 4000, "height": 3000},
                    {"name": "dog", "width": 2000, "height": 500, "broken": True},
                ]
            )
        ]
        assert functions.shrink(events) == ["1"]
        functions.producer.close()
