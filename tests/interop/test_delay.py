"""Delayed messages on Headrace and on Apache Kafka: the same service, the same promises.

Producers in C, Java, Go and JavaScript only set a header. Then ROUNDS deaths, an instance that
sleeps past its session, and lost stores: nothing early, lost or doubled.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.wire.contract import headers
from headrace.wire.contract.delay_topics import companion_of, rejected_of
from tests.interop.brokers import Node, make_node
from tests.interop.clients import Client, Record
from tests.soak.delay_checking import Verdict, check, read
from tests.soak.delay_instances import instances_for, run_cli, wait_until
from tests.soak.delay_rounds import Delays, run_rounds

ROUNDS = int(os.environ.get("ROUNDS", "3"))
SEED = int(os.environ.get("SEED", "5"))
CLIENTS = ("kcat", "java", "franz-go", "kafkajs", "confluent-kafka", "aiokafka", "kafka-python")
DELAY_MS = 300
# One death of the broker in three rounds: Apache Kafka needs ten seconds to come back from it.
DECK = ("service killed", "both killed", "store lost")
TARGETS = ("headrace", "apache")


@pytest.fixture(scope="module", params=TARGETS)
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    """A broker of each kind, for all tests that leave it as they found it."""
    with make_node(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(scope="module")
def served(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """With one instance of the service, as `headrace start` has it."""
    instances = instances_for(node, tmp_path_factory.mktemp("instances"), 1)
    for instance in instances:
        instance.keep_running()
    yield node
    for instance in instances:
        instance.kill()


def delayed_topic(node: Node, name: str, partitions: int = 1) -> str:
    run_cli(node, "topics", "create", name, "--partitions", str(partitions))
    run_cli(node, "delay", "enable", name)
    return name


def wait_for_delivery(node: Node, target: str, count: int) -> None:
    wait_until(lambda: len(list(read(node.bootstrap, target))) >= count, f"{target}: too few came")


def right(verdict: Verdict) -> None:
    assert not verdict.wrong, verdict.told()


def test_a_header_is_all_a_client_needs(served: Node, clients: dict[str, Client]) -> None:
    """Each client as its users call it; the record comes later, with key, value and headers."""
    target = delayed_topic(served, "orders")
    for name in CLIENTS:
        record = Record(
            name.encode(),
            b"pay within 30 minutes",
            (("own", b"kept"), (headers.DELAY, b"%dms" % DELAY_MS)),
            timestamp=time.time_ns() // 1_000_000 if clients[name].sets_timestamps else -1,
        )
        clients[name].produce(served.bootstrap, companion_of(target), "none", [record])
    wait_for_delivery(served, target, len(CLIENTS))
    right(check(served.bootstrap, target))
    assert [one.key for one in read(served.bootstrap, target)] == [n.encode() for n in CLIENTS]


def test_what_makes_no_sense_is_set_aside_and_stops_nothing(
    served: Node, clients: dict[str, Client]
) -> None:
    target = delayed_topic(served, "strict")
    said = [(headers.DELAY, b"soon"), (headers.DELAY, b"11000d"), (headers.DELAY_LEVEL, b"19")]
    records = [Record(b"k", b"%d" % n, (header,)) for n, header in enumerate(said)]
    good = Record(b"k", b"good", ((headers.DELAY, b"0"),))
    companion = companion_of(target)
    clients["confluent-kafka"].produce(served.bootstrap, companion, "none", [*records, good])
    wait_for_delivery(served, target, 1)
    assert [one.value for one in read(served.bootstrap, target)] == [b"good"]
    wait_for_delivery(served, rejected_of(target), len(said))
    aside = list(read(served.bootstrap, rejected_of(target)))
    assert [one.value for one in aside] == [b"0", b"1", b"2"]
    assert all(one.text(headers.REJECTED_REASON) for one in aside)


@pytest.mark.timeout(600 + 40 * ROUNDS)
@pytest.mark.parametrize("target", ["headrace", pytest.param("apache", marks=pytest.mark.full)])
def test_deaths_lose_and_double_nothing(target: str, tmp_path: Path) -> None:
    with make_node(target, tmp_path / "node") as node:
        survived = run_rounds(node, tmp_path, ROUNDS, SEED, deck=DECK)
    right(survived.verdict)
    assert survived.verdict.delivered > 50 * ROUNDS


# On Headrace tests/services/test_delay.py has both, one after the other.
@pytest.mark.parametrize(
    "node", [pytest.param("headrace", marks=pytest.mark.full), "apache"], indirect=True
)
def test_an_instance_sleeps_past_its_session_while_the_other_loses_its_store(
    node: Node, tmp_path: Path
) -> None:
    """What the sleeper held is delivered by the other one; waking up, it doubles nothing."""
    with Delays(node, tmp_path, "sleepy", instances=2) as delays:
        delays.crowd(SEED, count=20_000, within_ms=12_000)
        delays.racers(SEED, rate=300)
        delays.run_for(2)
        delays.happen("store lost", delays.instances[0])
        delays.happen("service halted", delays.instances[-1])
        delays.run_for(1)
        verdict = delays.end()
    right(verdict)
    assert verdict.delivered > 20_000
