"""Delayed messages in the console: listed by due time, cancelled, delivered now, sent delayed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace.client.admin.admin import Admin
from headrace.client.connection import ClientSettings, connection
from headrace.client.lookup.record_reader import RecordReader
from headrace.client.producer.producer import Producer
from headrace.testing import Broker
from tests.console.full_cluster import wait_until_listed
from tests.console.served import Served, Visitor
from tests.patience import until
from tests.sockets.fills import FILLS


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(delay=True) as running:
        yield running


@pytest.fixture(scope="module")
def at(broker: Broker) -> ClientSettings:
    return connection(bootstrap=broker.bootstrap)


@pytest.fixture(scope="module")
def visitor(broker: Broker, at: ClientSettings) -> Iterator[Visitor]:
    with Served(broker.bootstrap) as served:
        visitor = served.visitor()
        assert "No topic accepts delayed messages yet" in visitor.get("/delayed").said()
        made = visitor.post("/create-topic", {"name": "tea", "delayed": "1", "partitions": "1"})
        assert "headrace topics create tea --partitions 1 --delayed" in made.said()
        with Producer(at, settings=FILLS) as producer:
            for number in range(3):
                producer.send(
                    "tea", f"cup {number}", key="pot", id=f"<b>{number}", delay=f"{number + 1}h"
                )
        wait_until_listed(broker.bootstrap, "tea", 3)
        yield visitor


def first(at: ClientSettings) -> bytes | None:
    with closing(RecordReader(at, "tea", follow=True)) as reader:
        return next(iter(reader.records())).value


@pytest.mark.integration
def test_what_waits_is_listed_cancelled_and_delivered_now(
    visitor: Visitor, at: ClientSettings
) -> None:
    listed = visitor.get("/delayed?topic=tea")
    assert listed.said().index("<b>0") < listed.said().index("<b>1") < listed.said().index("<b>2")
    assert "<b>1" not in listed.text and "When they are due" in listed.text
    assert "3 wait" in visitor.get("/").said()

    which = {"topic": "tea", "partition": "0"}
    cancelled = visitor.post("/delayed/cancel", which | {"id": "<b>1"})
    assert "Cancelled: <b>1 will not be delivered." in cancelled.said()
    again = visitor.post("/delayed/cancel", which | {"id": "<b>1"})
    assert "Unknown: no message with the id <b>1 waits in tea." in again.said()

    now = visitor.post("/delayed/now", which | {"id": "<b>2"})
    assert "headrace delay reschedule tea '<b>2' --delay 0ms --partition 0" in now.said()
    assert first(at) == b"cup 2"
    assert "Nothing waits" in visitor.post("/delayed/now", which | {"id": "gone"}).said()


def test_a_message_is_sent_with_a_delay(visitor: Visitor, at: ClientSettings) -> None:
    form = {"key": "pot", "value": "later", "delay": "2h", "id": "x"}
    assert "Taken: it comes into tea in 2h." in visitor.post("/topics/tea/send", form).said()
    assert Admin(at).delayed.cancel("tea", "x", key="pot").in_time
    wrong = visitor.post("/topics/tea/send", form | {"delay": "soon"})
    assert wrong.status == 502
    assert visitor.get("/delayed?from=never").status == 400


def test_a_cluster_without_a_delay_service_says_so_at_once() -> None:
    with Broker() as broker, Served(broker.bootstrap) as served:
        visitor = served.visitor()
        visitor.post("/create-topic", {"name": "tea", "delayed": "1"})
        for path in ("/", "/delayed"):
            answer = visitor.get(path)
            assert (answer.status, "No delay service runs" in answer.said()) == (200, True)


def until_moved_shows(visitor: Visitor, text: str) -> None:
    until(lambda: text in visitor.get("/delayed?id=moved").said(), f"{text} is not shown")


def test_a_message_gets_another_time_and_a_cron(visitor: Visitor, at: ClientSettings) -> None:
    with Producer(at, settings=FILLS) as producer:
        producer.send("tea", "late", key="pot", id="moved", delay="9h").result(60)
    # Before the service has read it, nothing waits that could get another time.
    until_moved_shows(visitor, "in 8h")
    which = {"topic": "tea", "partition": "0", "id": "moved"}
    for when, listed in (
        ({"delay": "20h"}, "in 19h"),
        ({"cron": "0 9 * * 1-5", "cron_zone": "Europe/Berlin"}, "0 9 * * 1-5"),
    ):
        moved = visitor.post("/delayed/reschedule", which | when)
        assert "headrace delay reschedule" in moved.said(), moved.said()
        until_moved_shows(visitor, listed)
    assert (
        "headrace delay reschedule"
        in visitor.post("/delayed/reschedule", which | {"delay": "5h"}).said()
    )
    assert visitor.post("/delayed/reschedule", which).status == 400
    assert visitor.post("/delayed/reschedule", which | {"delay": "soon"}).status == 502
    gone = which | {"id": "never", "delay": "1h"}
    assert "Nothing waits in tea under never" in visitor.post("/delayed/reschedule", gone).said()


def test_what_was_rejected_is_shown_with_its_reason(visitor: Visitor, at: ClientSettings) -> None:
    with Producer(at, settings=FILLS) as producer:
        producer.send("tea.delay", "x", key="pot", headers={"headrace-delay": "<b>"}).result(60)
    rejected = "/delayed/rejected?topic=tea"
    until(lambda: "Nothing was rejected" not in visitor.get(rejected).said())
    page = visitor.get(rejected)
    assert "<b>" in page.said() and "<b>" not in page.text
    assert "tea.delay/0/" in page.said()
    assert "How late" in visitor.get("/delayed").said()
