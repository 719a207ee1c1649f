"""Dead letters of a real app, sent again from the command line: only its own group gets them."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from headrace.client import Admin
from tests.interop.brokers import HeadraceNode
from tests.services.app_rounds import TOPIC, dead, feed
from tests.services.effects import BillingWorkers, Ledger, empty, until_done
from tests.services.servers import Postgres

PROGRAM = str(Path(sys.executable).with_name("headrace"))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HeadraceNode]:
    with HeadraceNode(tmp_path / "node") as node:
        Admin(node.bootstrap).topics.create(TOPIC, partitions=3)
        yield node


@pytest.fixture
def engine(postgres: Postgres) -> Iterator[Engine]:
    engine = create_engine(postgres.url)
    empty(engine)
    yield engine
    engine.dispose()


def redrive(bootstrap: str, topic: str) -> str:
    done = subprocess.run(
        [PROGRAM, "dead-letters", "redrive", topic, "--execute", "-b", bootstrap],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_what_was_mended_is_sent_again_to_its_own_group_in_the_order_of_its_key(
    node: HeadraceNode, postgres: Postgres, engine: Engine, tmp_path: Path
) -> None:
    fed = feed(node.bootstrap, 300, 20, random.Random(21), failing=0.3)
    assert len(fed.parked()) > 10
    ledger = Ledger(engine)
    words = ["--database", postgres.async_url, "--first", "20ms", "--longest", "50ms"]
    (tmp_path / "other").mkdir()
    other_words = ["--plain", "--group", "others", "--mended"]
    with BillingWorkers(node.bootstrap, tmp_path / "other", *other_words) as others:
        others.start()
        others.until(lambda: len(set(others.seen())) == fed.count())
        with BillingWorkers(node.bootstrap, tmp_path, *words) as workers:
            workers.start()
            until_done(node.bootstrap, workers, ledger, fed, within_s=300)
        letters = dead(node.bootstrap)
        assert set(letters) == fed.parked()
        before, theirs = ledger.count(), len(others.seen())
        redrive(node.bootstrap, f"{TOPIC}.workers.dead")
        with BillingWorkers(node.bootstrap, tmp_path, *words, "--mended") as workers:
            workers.start()
            workers.until(lambda: ledger.count() == fed.count())
            workers.stop_all()
        others.stop_all()
        assert len(others.seen()) == theirs, "the other group saw what was not its own"
    assert sorted(ledger.rows()[before:]) == sorted(fed.parked())
    again: dict[str, list[int]] = {}
    for key, number in ledger.rows()[before:]:
        again.setdefault(key, []).append(number)
    assert all(numbers == sorted(numbers) for numbers in again.values())
    assert len(dead(node.bootstrap)) == len(letters), "parked again"
