"""The delay service and a broker as real processes: what is promised, and what happens to both.

Every story runs with our broker and with Apache Kafka (`TARGET=apache`).
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.wire.contract import headers as names
from tests.interop.brokers import TARGET, Node, make_node
from tests.services.delay_checker import (
    Ledger,
    Verdict,
    Watcher,
    judge,
    make_delayed_topic,
    read_all,
    rejections,
)
from tests.services.delay_process import DelayProcess

PARTITIONS = 4
WITHIN_S = 400.0
ROUNDS = int(os.environ.get("ROUNDS", "3"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """The service is started by the tests, not by the node."""
    settings = {"headrace.delay.service": "off"} if TARGET == "headrace" else {}
    with make_node(TARGET, tmp_path_factory.mktemp(TARGET), settings) as node:
        yield node


@pytest.fixture
def topic(node: Node, request: pytest.FixtureRequest) -> str:
    name = request.node.name.removeprefix("test_").replace("[", "-").rstrip("]")
    make_delayed_topic(node.bootstrap, name, PARTITIONS)
    return name


@pytest.fixture
def service(node: Node, tmp_path: Path) -> Iterator[DelayProcess]:
    with DelayProcess(node.bootstrap, tmp_path) as service:
        yield service


def send_some(ledger: Ledger, count: int, longest_ms: int, seed: int, tag: str = "") -> None:
    chance = random.Random(seed)
    for number in range(count):
        partition = chance.randrange(PARTITIONS)
        ledger.send(
            f"{tag}{seed}-{number}".encode(),
            partition=partition,
            key=b"key %d" % (number % 100),
            delay_ms=chance.randrange(longest_ms),
        )


def verdict_at_the_end(ledger: Ledger, watcher: Watcher) -> Verdict:
    ledger.flush()
    watcher.wait_for(len(ledger.sent), WITHIN_S)
    assert not ledger.failed
    return judge(ledger.sent, watcher.stop())


def test_messages_arrive_when_due_and_unchanged(
    node: Node, topic: str, service: DelayProcess
) -> None:
    watcher, ledger = Watcher(node.bootstrap, topic), Ledger(node.bootstrap, topic)
    send_some(ledger, 5_000, 5_000, seed=1)
    ledger.send(b"at once", partition=2)
    ledger.send(b"elsewhere", partition=0, to_partition=3, delay_ms=500)
    ledger.send(b"with headers", partition=1, delay_ms=100, more=[("trace", b"abc")])
    verdict = verdict_at_the_end(ledger, watcher)
    verdict.require_clean()
    [kept] = [each for each in watcher.arrived if each.value == b"with headers"]
    assert kept.headers["trace"] == b"abc"
    assert names.DELAY not in kept.headers


def test_kills_of_the_service_lose_and_double_nothing(
    node: Node, topic: str, service: DelayProcess
) -> None:
    watcher, ledger = Watcher(node.bootstrap, topic), Ledger(node.bootstrap, topic)
    moments = random.Random(2)
    service.wait_for_partitions(topic, PARTITIONS)  # one that still starts would lose nothing
    for number in range(ROUNDS):
        send_some(ledger, 3_000, 6_000, seed=number)
        time.sleep(moments.uniform(0.3, 2.0))
        service.kill()
        service.start()
    verdict_at_the_end(ledger, watcher).require_clean()


def test_kills_of_the_broker_lose_and_double_nothing(
    node: Node, topic: str, service: DelayProcess
) -> None:
    watcher, ledger = Watcher(node.bootstrap, topic), Ledger(node.bootstrap, topic)
    moments = random.Random(3)
    service.wait_for_partitions(topic, PARTITIONS)  # one that finds no broker at its start ends
    for number in range(ROUNDS):
        send_some(ledger, 3_000, 6_000, seed=number)
        time.sleep(moments.uniform(0.3, 2.0))
        node.kill()
        node.start()
    verdict_at_the_end(ledger, watcher).require_clean()


def test_an_instance_that_stands_still_and_wakes_up_does_no_harm(
    node: Node, topic: str, tmp_path: Path
) -> None:
    watcher, ledger = Watcher(node.bootstrap, topic), Ledger(node.bootstrap, topic)
    with (
        DelayProcess(node.bootstrap, tmp_path, "a") as one,
        DelayProcess(node.bootstrap, tmp_path, "b") as other,
    ):
        one.wait_for_a_share()
        other.wait_for_a_share()
        send_some(ledger, 10_000, 25_000, seed=4)
        time.sleep(1)
        one.halt()
        other.wait_for_partitions(topic, PARTITIONS)  # the session of the first has ended
        one.go_on()
        verdict_at_the_end(ledger, watcher).require_clean()


def test_instances_come_and_go(node: Node, topic: str, tmp_path: Path) -> None:
    watcher, ledger = Watcher(node.bootstrap, topic), Ledger(node.bootstrap, topic)
    with (
        DelayProcess(node.bootstrap, tmp_path, "a") as one,
        DelayProcess(node.bootstrap, tmp_path, "b") as two,
    ):
        send_some(ledger, 10_000, 20_000, seed=5)
        one.wait_for_a_share()
        with DelayProcess(node.bootstrap, tmp_path, "c") as three:
            three.wait_for_a_share()
            send_some(ledger, 5_000, 5_000, seed=6)
            one.stop()
            three.wait_for_a_share()
            two.kill()
            three.wait_for_partitions(topic, PARTITIONS)
            verdict_at_the_end(ledger, watcher).require_clean()


def test_the_store_can_be_lost(node: Node, topic: str, service: DelayProcess) -> None:
    watcher, ledger = Watcher(node.bootstrap, topic), Ledger(node.bootstrap, topic)
    send_some(ledger, 10_000, 12_000, seed=7)
    ledger.flush()
    watcher.wait_for(1_000, WITHIN_S)
    service.kill()
    service.wipe_store()
    service.start()
    verdict_at_the_end(ledger, watcher).require_clean()


def test_cancels_race_delivery_and_the_answers_are_true(
    node: Node, topic: str, service: DelayProcess
) -> None:
    watcher, ledger = Watcher(node.bootstrap, topic), Ledger(node.bootstrap, topic)
    service.wait_for_partitions(topic, PARTITIONS)
    chance = random.Random(8)
    for number in range(600):
        partition = chance.randrange(PARTITIONS)
        delay_ms = chance.randrange(400)
        ledger.send(b"%d" % number, partition=partition, delay_ms=delay_ms, id=f"order-{number}")
        ledger.flush()
        if number % 3 == 0:
            time.sleep(chance.uniform(0, 0.03))
        ledger.cancel(f"order-{number}", partition=partition)
    ledger.cancel("never-was", partition=0)
    ledger.flush()
    deadline = time.monotonic() + WITHIN_S
    while len(decided := read_all(node.bootstrap, f"{topic}.delay.outcomes")) < 601:
        assert time.monotonic() < deadline, f"{len(decided)} outcomes"
        time.sleep(0.2)
    # What comes after all the others shows that those that must not arrive have had their time.
    for partition in range(PARTITIONS):
        ledger.send(b"last", partition=partition, delay_ms=500)
    ledger.flush()
    while sum(each.value == b"last" for each in watcher.arrived) < PARTITIONS:
        assert time.monotonic() < deadline, "nothing arrives any more"
        time.sleep(0.02)
    delivered = {each.value.decode() for each in watcher.stop()}
    for outcome in decided:
        name = outcome.headers[names.CANCEL].decode()
        number = name.removeprefix("order-")
        expected = "too-late" if number in delivered else "cancelled"
        wanted = "unknown" if name == "never-was" else expected
        assert outcome.headers[names.OUTCOME].decode() == wanted, name
    assert {each.headers[names.OUTCOME] for each in decided} >= {b"cancelled", b"unknown"}


def test_the_same_id_replaces_time_and_body(node: Node, topic: str, service: DelayProcess) -> None:
    watcher, ledger = Watcher(node.bootstrap, topic), Ledger(node.bootstrap, topic)
    ledger.send(b"first", partition=1, delay_ms=60_000, id="order-1")
    ledger.send(b"second", partition=1, delay_ms=500, id="order-1")
    ledger.send(b"other", partition=1, delay_ms=800, id="order-2")
    ledger.flush()
    watcher.wait_for(2, WITHIN_S)
    found = watcher.stop()
    assert [each.value for each in found] == [b"second", b"other"]
    due_ms = ledger.sent[1].due_ms
    assert found[0].headers[names.MESSAGE_ID] == f"order-1@{due_ms}".encode()


def test_what_makes_no_sense_is_rejected_and_the_rest_flows(
    node: Node, service: DelayProcess
) -> None:
    topic = "small"
    make_delayed_topic(node.bootstrap, topic, PARTITIONS, {"max.message.bytes": "2000"})
    widen(node.bootstrap, f"{topic}.delay")
    watcher, ledger = Watcher(node.bootstrap, topic), Ledger(node.bootstrap, topic)
    bad = [
        {"more": [(names.DELAY, b"soon")]},
        {"delay_ms": 11 * 366 * 86_400_000},
        {"more": [(names.DELAY, b"1s"), (names.DELIVER_AT, b"1")]},
        {"delay_ms": 10, "to_partition": PARTITIONS},
    ]
    for number, given in enumerate(bad):
        ledger.send(b"bad %d" % number, partition=0, **given)  # type: ignore[arg-type]
        ledger.send(b"good %d" % number, partition=0, delay_ms=20)
    ledger.send(b"x" * 5_000, partition=0, delay_ms=30)
    for number in range(100):
        ledger.send(b"%d" % number * 300, partition=0, delay_ms=30)
    ledger.flush()
    watcher.wait_for(len(bad) + 100, WITHIN_S)
    rejected = {each.source for each in ledger.sent if each.value[:3] == b"bad"}
    rejected |= {each.source for each in ledger.sent if each.value[:2] == b"xx"}
    deadline = time.monotonic() + WITHIN_S
    while len(reasons := rejections(node.bootstrap, topic)) < len(rejected):
        assert time.monotonic() < deadline, reasons
        time.sleep(0.2)
    assert set(reasons) == rejected
    fine = [each for each in ledger.sent if each.source not in rejected]
    judge(fine, watcher.stop()).require_clean()


def test_a_missing_target_waits_until_it_is_there(
    node: Node, topic: str, service: DelayProcess
) -> None:
    make_delayed_topic(node.bootstrap, "gone", 1)
    service.wait_for_partitions("gone", 1)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.delete_topics(["gone"])["gone"].result(60)
    ledger, other = Ledger(node.bootstrap, "gone"), Ledger(node.bootstrap, topic)
    watcher = Watcher(node.bootstrap, topic)
    deadline = time.monotonic() + WITHIN_S
    while not service.says("waiting"):
        assert time.monotonic() < deadline, service.log_text()[-3000:]
        time.sleep(0.1)
    ledger.send(b"patience", partition=0, delay_ms=10)
    other.send(b"flows", partition=0, delay_ms=10)
    ledger.flush()
    verdict_at_the_end(other, watcher).require_clean()
    assert "gone" not in admin.list_topics(timeout=60).topics
    admin.create_topics([NewTopic("gone", 1)])["gone"].result(60)
    back = Watcher(node.bootstrap, "gone")
    back.wait_for(1, WITHIN_S)
    assert [each.value for each in back.stop()] == [b"patience"]


def test_added_partitions_are_served(node: Node, topic: str, service: DelayProcess) -> None:
    service.wait_for_partitions(topic, PARTITIONS)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_partitions([NewPartitions(topic, PARTITIONS + 2)])[topic].result(60)
    service.wait_for_partitions(topic, PARTITIONS + 2)
    watcher, ledger = Watcher(node.bootstrap, topic), Ledger(node.bootstrap, topic)
    for partition in range(PARTITIONS + 2):
        ledger.send(b"%d" % partition, partition=partition, delay_ms=50)
    verdict_at_the_end(ledger, watcher).require_clean()


@pytest.mark.skipif(TARGET != "headrace", reason="only our node has a child")
def test_a_node_brings_its_own_service_which_ends_with_it(tmp_path: Path) -> None:
    with make_node("headrace", tmp_path) as node:
        make_delayed_topic(node.bootstrap, "own", 1)
        watcher, ledger = Watcher(node.bootstrap, "own"), Ledger(node.bootstrap, "own")
        ledger.send(b"hello", partition=0, delay_ms=100)
        verdict_at_the_end(ledger, watcher).require_clean()
        assert "INFO" not in node.log_text(), "the screen belongs to the node"
        [child] = children_of(node.pid)
        node.kill()
        deadline = time.monotonic() + WITHIN_S
        while lives(child):
            assert time.monotonic() < deadline, "the service has outlived its node"
            time.sleep(0.05)
        node.start()
        watcher, ledger = Watcher(node.bootstrap, "own"), Ledger(node.bootstrap, "own")
        ledger.send(b"again", partition=0, delay_ms=100)
        ledger.flush()
        watcher.wait_for(2, WITHIN_S)
        [child] = children_of(node.pid)
        node.stop()
        assert not lives(child)


def lives(pid: int) -> bool:
    """One that has ended and that nobody has waited for yet has no command any more."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def widen(bootstrap: str, topic: str) -> None:
    """Let a companion take more than its target does."""
    at = ClientSettings({"bootstrap.servers": bootstrap})
    Topics(at).change_settings(topic, to={"max.message.bytes": "1000000"})
