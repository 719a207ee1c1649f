"""The same app on Apache Kafka: retries, order, dead letters, once, kill -9.

`tests/services` has the same on Headrace, so here that is a part of `make full`. The database of
`once=` is a real PostgreSQL, which `make servers` brings.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from headrace.client import Admin
from headrace.client.admin.groups import GroupIsActive
from tests.interop.brokers import Node, make_node
from tests.services.app_rounds import (
    OUT,
    TOPIC,
    Workers,
    check_order,
    committed_ends,
    dead,
    feed,
    topic_values,
    wait_for_all,
)
from tests.services.app_worker import GROUP
from tests.services.effects import BillingWorkers, Ledger, empty, rounds, until_done
from tests.services.servers import Postgres, postgres
from tests.soak.delay_instances import wait_until

__all__ = ["postgres"]

RECORDS = 600


@pytest.fixture(scope="module", params=[pytest.param("headrace", marks=pytest.mark.full), "apache"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    with make_node(request.param, tmp_path_factory.mktemp(request.param)) as node:
        yield node


@pytest.fixture
def node(running: Node) -> Iterator[Node]:
    """With the topics anew; what an earlier test left is gone."""
    admin = Admin(running.bootstrap)
    admin.topics.create(TOPIC, partitions=3)
    admin.topics.create(OUT, partitions=3)
    yield running
    # Who was stopped while it joined is a member until its session is over.
    wait_until(lambda: deleted(admin), "the group still has members")
    for topic in admin.topics.all():
        if topic.name == TOPIC or topic.name.startswith(f"{TOPIC}."):
            admin.topics.delete(topic.name)
    wait_until(lambda: not any(t.name == TOPIC for t in admin.topics.all()), "it is still there")


def deleted(admin: Admin) -> bool:
    try:
        admin.groups.delete(GROUP)
    except GroupIsActive:
        return False
    return True


@pytest.fixture
def engine(postgres: Postgres) -> Iterator[Engine]:
    engine = create_engine(postgres.url)
    empty(engine)
    yield engine
    engine.dispose()


def one_kill(workers: Workers, chance: random.Random) -> None:
    """Two workers, of which one is killed in the middle; a third takes over."""
    for _ in range(2):
        workers.start()
    workers.until(lambda: len(workers.seen()) > RECORDS // 10)
    workers.kill_one(chance)
    workers.start()


def test_order_of_keys_and_dead_letters_over_a_kill(node: Node, tmp_path: Path) -> None:
    fed = feed(node.bootstrap, RECORDS, 50, random.Random(31), failing=0.05)
    words = ["--mode", "key", "--first", "100ms", "--longest", "3s", "--slow-ms", "40"]
    with Workers(node.bootstrap, tmp_path, *words) as workers:
        one_kill(workers, random.Random(31))
        wait_for_all(node.bootstrap, workers, fed)
        workers.stop_all()
        check_order(fed, workers.seen())
    assert set(dead(node.bootstrap)) == fed.parked()


def test_long_waits_pass_through_delayed_messages(node: Node, tmp_path: Path) -> None:
    """On Apache Kafka nobody serves them: the app starts the service itself, and says so."""
    fed = feed(node.bootstrap, RECORDS // 3, 50, random.Random(32), failing=0.1)
    words = ["--mode", "none", "--first", "2500ms", "--longest", "2500ms"]
    with Workers(node.bootstrap, tmp_path, *words) as workers:
        workers.start()
        wait_for_all(node.bootstrap, workers, fed)
        workers.stop_all()
        assert sorted(workers.seen()) == sorted(fed.handled())
        started = "no delay service runs on this cluster" in workers.log_text()
    assert started == (node.name == "apache")
    assert set(dead(node.bootstrap)) == fed.parked()
    assert len(topic_values(node.bootstrap, f"{TOPIC}.{GROUP}.retry")) >= len(fed.parked())


def test_results_are_written_exactly_once_over_a_kill(node: Node, tmp_path: Path) -> None:
    fed = feed(node.bootstrap, RECORDS, 50, random.Random(33), failing=0.01)
    words = ["--mode", "exactly-once", "--first", "20ms", "--longest", "100ms", "--slow-ms", "5"]
    with Workers(node.bootstrap, tmp_path, *words) as workers:
        one_kill(workers, random.Random(33))
        wait_for_all(node.bootstrap, workers, fed)
        workers.stop_all()
    results = Counter(topic_values(node.bootstrap, OUT))
    assert results == Counter(f"{key} {number}".encode() for key, number in fed.handled())
    assert sorted(dead(node.bootstrap)) == sorted(fed.parked())


def test_each_effect_is_in_the_database_once_and_in_order_over_kills(
    node: Node, postgres: Postgres, engine: Engine, tmp_path: Path
) -> None:
    """Two workers are killed, and then the broker."""
    fed = feed(node.bootstrap, 2 * RECORDS, 100, random.Random(34), failing=0.05)
    ledger = Ledger(engine)
    words = ["--database", postgres.async_url, "--slow-ms", "60"]
    with BillingWorkers(node.bootstrap, tmp_path, *words) as workers:
        killed = rounds(node, workers, ledger, fed, kills=3, every_s=3, most=3, seed=34)
        until_done(node.bootstrap, workers, ledger, fed, within_s=400)
    assert killed == (2, 1)
    assert ledger.wrong(fed) == []
    assert set(dead(node.bootstrap)) == fed.parked()
    assert committed_ends(node.bootstrap)


def test_a_worker_that_stands_still_past_its_session_has_no_second_effect(
    node: Node, postgres: Postgres, engine: Engine, tmp_path: Path
) -> None:
    """The database ends its transactions after a while, so that the other one can finish."""
    fed = feed(node.bootstrap, RECORDS, 100, random.Random(35), failing=0.03)
    ledger = Ledger(engine)
    words = ["--database", postgres.async_url, "--slow-ms", "60", "--longest-pause", "8s"]
    with BillingWorkers(node.bootstrap, tmp_path, *words) as workers:
        for _ in range(2):
            workers.start()
        workers.until(lambda: len(ledger.workers()) == 2)
        halted = workers.running[0]
        halted.send_signal(signal.SIGSTOP)
        taken = workers.taken()
        workers.until(lambda: workers.taken() > taken)  # the other one has them all
        workers.until(lambda: ledger.count() == len(fed.handled()))
        halted.send_signal(signal.SIGCONT)
        until_done(node.bootstrap, workers, ledger, fed, within_s=400)
    assert ledger.wrong(fed) == []
    assert set(dead(node.bootstrap)) == fed.parked()
