"""Workers killed at any moment: every record is handled or parked, and keys keep their order."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client import Admin
from tests.interop.brokers import HeadraceNode
from tests.services.app_rounds import (
    OUT,
    TOPIC,
    Workers,
    check_order,
    committed_ends,
    dead,
    feed,
    members,
    rounds,
    skips,
    topic_values,
    wait_for_all,
)

ROUNDS = int(os.environ.get("ROUNDS", "3"))
RECORDS = int(os.environ.get("RECORDS", "3000"))

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HeadraceNode]:
    with HeadraceNode(tmp_path / "node") as node:
        Admin(node.bootstrap).topics.create(TOPIC, partitions=6)
        Admin(node.bootstrap).topics.create(OUT, partitions=3)
        yield node


@pytest.mark.parametrize("newer", [False, True], ids=["classic", "kip-848"])
def test_keys_keep_their_order_under_kill_and_retry(
    node: HeadraceNode, tmp_path: Path, newer: bool
) -> None:
    fed = feed(node.bootstrap, RECORDS, 200, random.Random(1), failing=0.05)
    words = ["--mode", "key", *(["--newer"] if newer else [])]
    with Workers(node.bootstrap, tmp_path, *words) as workers:
        rounds(node.bootstrap, workers, fed, kills=ROUNDS, every_s=4, most=4, seed=1)
        check_order(fed, workers.seen())
    assert set(dead(node.bootstrap)) == fed.parked()
    assert committed_ends(node.bootstrap)


def test_partitions_keep_their_order_under_kill_and_retry(
    node: HeadraceNode, tmp_path: Path
) -> None:
    fed = feed(node.bootstrap, RECORDS // 3, 50, random.Random(2), failing=0.01)
    with Workers(
        node.bootstrap, tmp_path, "--mode", "partition", "--first", "50ms", "--longest", "200ms"
    ) as workers:
        rounds(node.bootstrap, workers, fed, kills=ROUNDS, every_s=4, most=4, seed=2)
        check_order(fed, workers.seen())
    assert set(dead(node.bootstrap)) == fed.parked()


def test_without_order_nothing_is_lost(node: HeadraceNode, tmp_path: Path) -> None:
    fed = feed(node.bootstrap, RECORDS, 200, random.Random(3), failing=0.1)
    with Workers(node.bootstrap, tmp_path, "--mode", "none") as workers:
        rounds(node.bootstrap, workers, fed, kills=ROUNDS, every_s=4, most=4, seed=3)
    assert set(dead(node.bootstrap)) == fed.parked()
    assert committed_ends(node.bootstrap)


def test_exactly_once_results_are_written_once(node: HeadraceNode, tmp_path: Path) -> None:
    fed = feed(node.bootstrap, RECORDS, 200, random.Random(4), failing=0.01)
    with Workers(
        node.bootstrap, tmp_path, "--mode", "exactly-once", "--first", "20ms", "--longest", "100ms"
    ) as workers:
        rounds(node.bootstrap, workers, fed, kills=ROUNDS, every_s=4, most=4, seed=4)
    results = Counter(topic_values(node.bootstrap, OUT))
    assert set(results) == {f"{key} {number}".encode() for key, number in fed.handled()}
    assert {value: n for value, n in results.items() if n != 1} == {}
    assert sorted(dead(node.bootstrap)) == sorted(fed.parked())


def test_a_worker_that_stood_still_begins_nothing_that_is_anothers(
    node: HeadraceNode, tmp_path: Path
) -> None:
    """SIGSTOP past the session timeout, and back: its partitions have gone on elsewhere."""
    with Workers(node.bootstrap, tmp_path, "--mode", "key", "--slow-ms", "20") as workers:
        for _ in range(2):
            workers.start()
        workers.until(lambda: members(node.bootstrap) == 2)  # or one does all before the other
        fed = feed(node.bootstrap, RECORDS, 100, random.Random(5), failing=0.02)
        workers.until(lambda: len({pid for *_, pid in workers.lines()}) == 2)
        halted = workers.running[0]
        halted.send_signal(signal.SIGSTOP)
        before = len(workers.lines())
        # The other one takes over after the session timeout, and goes beyond what was in hand.
        taken = workers.taken()
        workers.until(lambda: workers.taken() > taken)
        workers.until(lambda: len(workers.lines()) > before + 200)
        halted.send_signal(signal.SIGCONT)
        wait_for_all(node.bootstrap, workers, fed)
        workers.stop_all()
        in_hand = 16  # handlers that were under way when it was halted end when it goes on
        late = skips(fed, workers.seen())
        assert len(late) <= in_hand, late
    assert set(dead(node.bootstrap)) == fed.parked()
