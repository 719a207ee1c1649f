"""Somebody sets the clock of the machine on which the delay service runs, by hours, both ways.

Real processes; the broker keeps its time. Never early by the service's clock, held while that is
behind what was delivered, nothing lost, nothing doubled, also over kill -9 in between.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.wire.contract import headers as names
from tests import patience
from tests.interop.brokers import TARGET, Node, make_node
from tests.services.delay_checker import (
    Arrived,
    Ledger,
    Watcher,
    make_delayed_topic,
    rejections,
)
from tests.services.delay_process import NO_ANSWER, OnAMovedClock

MINUTE_MS = 60_000
WITHIN_S = 400.0
pytestmark = pytest.mark.timeout(900)
# Brokers take no record that is an hour ahead of them, unless a topic says so.
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    settings = {"headrace.delay.service": "off"} if TARGET == "headrace" else {}
    with make_node(TARGET, tmp_path_factory.mktemp(TARGET), settings) as node:
        yield node


@pytest.fixture
def service(node: Node, tmp_path: Path) -> Iterator[OnAMovedClock]:
    with OnAMovedClock(node.bootstrap, tmp_path) as service:
        yield service  # type: ignore[misc]


def wait_until(true: Callable[[], object], otherwise: str) -> None:
    patience.until(true, otherwise, within_s=WITHIN_S, every_s=0.05)


def told(service: OnAMovedClock, topic: str, partition: int) -> dict[str, Any]:
    with contextlib.suppress(*NO_ANSWER):
        for found in service.ask("/stats")["topics"]:
            for each in found["partitions"]:
                if (found["topic"], each["partition"]) == (topic, partition):
                    return dict(each)
    return {}


def position(service: OnAMovedClock, topic: str, partition: int) -> int:
    """How far it has read, whatever it has delivered; -1 as long as it does not say."""
    return int(told(service, topic, partition).get("position", -1))


class Story:
    """One topic of two partitions: one in which things happen, one that shows that all is alive."""

    def __init__(self, node: Node, service: OnAMovedClock, topic: str) -> None:
        make_delayed_topic(node.bootstrap, topic, 2, ANY_TIME)
        service.wait_for_partitions(topic, 2)
        self.topic, self.service = topic, service
        self.ledger, self.watcher = Ledger(node.bootstrap, topic), Watcher(node.bootstrap, topic)
        self.markers = 0

    def send(self, value: bytes, minutes: int) -> None:
        self.ledger.send(value, partition=0, delay_ms=minutes * MINUTE_MS)
        self.ledger.flush()

    def values(self) -> list[bytes]:
        return [each.value for each in self.watcher.arrived if each.partition == 0]

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.values()) >= count, f"only {self.values()} came")

    def all_is_read_and_alive(self) -> None:
        """Whatever can be delivered now was: a later message, long due, of the other one came."""
        sent = sum(each.partition == 0 for each in self.ledger.sent)
        wait_until(lambda: position(self.service, self.topic, 0) >= sent, "it is not read")
        for _ in range(2):  # the first may have been in the same transaction
            self.markers += 1
            self.ledger.send(b"marker %d" % self.markers, partition=1, at_ms=1)
            self.ledger.flush()
            wait_until(
                lambda: len(self.watcher.arrived) - len(self.values()) == self.markers,
                "the other partition stands still",
            )

    def end(self) -> list[Arrived]:
        found = [each for each in self.watcher.stop() if each.partition == 0]
        early = [each for each in found if each.timestamp_ms < each.due_ms]
        assert not early, f"by the service's own clock: {early[:3]}"
        assert sorted(each.source for each in found) == sorted(
            each.source for each in self.ledger.sent if each.partition == 0
        ), "each once"
        return found


def test_the_clock_steps_forward_and_back_by_hours(node: Node, service: OnAMovedClock) -> None:
    story = Story(node, service, "stepping")
    in_three_hours = [b"in %d minutes" % minutes for minutes in range(15, 181, 15)]
    for number, value in reversed(list(enumerate(in_three_hours, start=1))):
        story.send(value, minutes=15 * number)
    story.all_is_read_and_alive()
    assert story.values() == []

    service.move_clock(timedelta(hours=2, minutes=5))
    story.wait_for(8)
    story.all_is_read_and_alive()
    assert story.values() == in_three_hours[:8], "what is due by then, in order, and no more"

    service.move_clock(timedelta(0))
    story.send(b"in between", minutes=30)  # due before the last delivery, and not yet
    story.send(b"behind it", minutes=0)
    story.all_is_read_and_alive()
    assert story.values() == in_three_hours[:8], "held: it would be early, or out of the books"
    service.kill()
    service.start()
    story.all_is_read_and_alive()
    assert story.values() == in_three_hours[:8], "and still held after a crash"
    wait_until(
        lambda: "the clock was set back" in (told(service, story.topic, 0).get("problem") or ""),
        "it does not say what it waits for",
    )

    service.move_clock(timedelta(minutes=31))
    story.wait_for(10)
    story.all_is_read_and_alive()
    assert set(story.values()[8:]) == {b"in between", b"behind it"}

    service.move_clock(timedelta(hours=-5))
    story.send(b"sent before its time", minutes=0)
    story.all_is_read_and_alive()
    assert len(story.values()) == 10, "five hours in the past nothing is due"

    service.move_clock(timedelta(hours=3, minutes=5))
    story.wait_for(15)
    story.all_is_read_and_alive()
    found = story.end()
    in_order = [each.value for each in found if each.value in in_three_hours]
    assert in_order == in_three_hours


def test_a_clock_that_the_broker_does_not_believe_delays_and_loses_nothing(
    node: Node, service: OnAMovedClock
) -> None:
    """Records from more than an hour ahead are refused: the partition waits and says why."""
    topic = "unbelieved"
    make_delayed_topic(node.bootstrap, topic, 1)
    service.wait_for_partitions(topic, 1)
    ledger, watcher = Ledger(node.bootstrap, topic), Watcher(node.bootstrap, topic)
    service.move_clock(timedelta(hours=2))
    ledger.send(b"patience", partition=0, delay_ms=1_000)
    ledger.flush()
    wait_until(lambda: service.says("clocks"), "it says nothing")
    assert not watcher.arrived
    service.move_clock(timedelta(0))
    watcher.wait_for(1, WITHIN_S)
    [found] = watcher.stop()
    assert found.value == b"patience"
    assert found.timestamp_ms >= found.due_ms and found.seen_ms >= found.due_ms
    assert not rejections(node.bootstrap, topic)


def test_cron_repeats_as_often_as_planned(node: Node, service: OnAMovedClock) -> None:
    topic = "repeating"
    make_delayed_topic(node.bootstrap, topic, 1, ANY_TIME)
    service.wait_for_partitions(topic, 1)
    ledger, watcher = Ledger(node.bootstrap, topic), Watcher(node.bootstrap, topic)
    every_minute = [(names.CRON, b"* * * * *"), (names.CRON_COUNT, b"2")]
    ledger.send(b"tick", partition=0, more=every_minute, id="clock")
    ledger.flush()
    for minutes in (1, 2):
        service.move_clock(timedelta(minutes=minutes))
        watcher.wait_for(minutes, WITHIN_S)
    service.move_clock(timedelta(minutes=9))
    ledger.send(b"behind all ticks", partition=0, at_ms=1)
    ledger.flush()
    watcher.wait_for(3, WITHIN_S)
    first, second, last = watcher.stop()
    assert [each.value for each in (first, second, last)] == [b"tick", b"tick", b"behind all ticks"]
    assert second.due_ms - first.due_ms == MINUTE_MS
    for each in (first, second):
        assert each.due_ms % MINUTE_MS == 0 and each.timestamp_ms >= each.due_ms
