"""Each effect exactly once in a real PostgreSQL, whoever is killed, halted or away meanwhile."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from headrace.client import Admin
from tests.interop.brokers import HeadraceNode
from tests.services.app_rounds import TOPIC, committed_ends, dead, feed, members, wait_for_all
from tests.services.effects import BillingWorkers, Ledger, empty, rounds, until_done
from tests.services.servers import Postgres, Redis

ROUNDS = int(os.environ.get("ROUNDS", "3"))
RECORDS = int(os.environ.get("RECORDS", "1500"))

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HeadraceNode]:
    with HeadraceNode(tmp_path / "node") as node:
        Admin(node.bootstrap).topics.create(TOPIC, partitions=6)
        yield node


@pytest.fixture
def engine(postgres: Postgres) -> Iterator[Engine]:
    engine = create_engine(postgres.url, pool_pre_ping=True)
    empty(engine)
    yield engine
    engine.dispose()


@pytest.mark.parametrize("kind", ["coroutine", "function"])
def test_kills_of_workers_and_broker_leave_each_effect_once_and_in_order(
    node: HeadraceNode, postgres: Postgres, engine: Engine, tmp_path: Path, kind: str
) -> None:
    fed = feed(node.bootstrap, RECORDS, 200, random.Random(11), failing=0.05)
    ledger = Ledger(engine)
    words = ["--database", postgres.async_url, "--kind", kind, "--slow-ms", "20"]
    with BillingWorkers(node.bootstrap, tmp_path, *words) as workers:
        rounds(node, workers, ledger, fed, kills=ROUNDS, every_s=4, most=3, seed=11)
        until_done(node.bootstrap, workers, ledger, fed, within_s=400)
    assert ledger.wrong(fed) == []
    assert set(dead(node.bootstrap)) == fed.parked()
    assert committed_ends(node.bootstrap)


def test_a_worker_that_stands_still_past_its_session_has_no_second_effect(
    node: HeadraceNode, postgres: Postgres, engine: Engine, tmp_path: Path
) -> None:
    ledger = Ledger(engine)
    words = ["--database", postgres.async_url, "--slow-ms", "60"]
    with BillingWorkers(node.bootstrap, tmp_path, *words) as workers:
        for _ in range(2):
            workers.start()
        workers.until(lambda: members(node.bootstrap) == 2)  # or one does all before the other
        fed = feed(node.bootstrap, RECORDS, 100, random.Random(12), failing=0.03)
        workers.until(lambda: len(ledger.workers()) == 2)
        halted = workers.running[0]
        halted.send_signal(signal.SIGSTOP)
        taken = workers.taken()
        workers.until(lambda: workers.taken() > taken)  # the other one has them all
        done = ledger.count()
        workers.until(lambda: ledger.count() > done + 100)
        halted.send_signal(signal.SIGCONT)
        until_done(node.bootstrap, workers, ledger, fed, within_s=400)
    assert ledger.wrong(fed) == []
    assert set(dead(node.bootstrap)) == fed.parked()
    assert committed_ends(node.bootstrap)


def test_a_database_that_disappears_parks_nothing_and_doubles_nothing(
    node: HeadraceNode, postgres: Postgres, engine: Engine, tmp_path: Path
) -> None:
    """Two outages in the middle of handlers, each longer than all attempts together would last."""
    fed = feed(node.bootstrap, RECORDS // 2, 100, random.Random(13), failing=0.03)
    ledger = Ledger(engine)
    words = ["--database", postgres.async_url, "--first", "50ms", "--longest", "100ms"]
    with BillingWorkers(node.bootstrap, tmp_path, *words, "--slow-ms", "40") as workers:
        workers.start()
        for _ in range(2):
            before = ledger.count()
            workers.until(lambda at=before: ledger.count() > at + 100)  # type: ignore[misc]
            postgres.stop()
            try:
                time.sleep(3)
            finally:
                postgres.start()
            engine.dispose()
        assert ledger.count() < len(fed.handled()), "all was done before it came back"
        until_done(node.bootstrap, workers, ledger, fed, within_s=400)
    assert ledger.wrong(fed) == []
    assert set(dead(node.bootstrap)) == fed.parked()


def test_redis_that_disappears_parks_nothing_and_loses_nothing(
    node: HeadraceNode, redis_server: Redis, tmp_path: Path
) -> None:
    fed = feed(node.bootstrap, RECORDS // 3, 50, random.Random(14), failing=0.03)
    words = ["--redis", redis_server.url, "--first", "50ms", "--longest", "100ms"]
    with BillingWorkers(node.bootstrap, tmp_path, *words, "--slow-ms", "40") as workers:
        workers.start()
        workers.until(lambda: len(workers.seen()) > 100)
        redis_server.stop()
        try:
            time.sleep(3)
        finally:
            redis_server.start()
        assert len(set(workers.seen())) < len(fed.handled()), "all was done before it came back"
        wait_for_all(node.bootstrap, workers, fed)
        workers.stop_all()
    assert set(dead(node.bootstrap)) == fed.parked()
