"""A broker whose disk is full: an app waits, and loses, doubles and disorders nothing."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client import Admin
from tests.interop.brokers import HeadraceNode
from tests.interop.small_disk import fill, small_disk
from tests.services.app_rounds import (
    TOPIC,
    Workers,
    check_order,
    committed_ends,
    dead,
    feed,
    wait_for_all,
)

pytestmark = pytest.mark.timeout(900)
RECORDS = 1_500
FULL_S = 10.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HeadraceNode]:
    with small_disk(tmp_path / "disk", megabytes=40) as disk:
        node = HeadraceNode(tmp_path / "node")
        node.data = disk / "data"
        with node:
            Admin(node.bootstrap).topics.create(TOPIC, partitions=3)
            yield node


def is_full(folder: Path) -> bool:
    return os.statvfs(folder).f_bavail == 0


def test_retries_dead_letters_and_offsets_wait_for_room(node: HeadraceNode, tmp_path: Path) -> None:
    fed = feed(node.bootstrap, RECORDS, 100, random.Random(41), failing=0.1)
    words = ["--mode", "key", "--first", "100ms", "--longest", "3s", "--slow-ms", "60"]
    with Workers(node.bootstrap, tmp_path, *words) as workers:
        for _ in range(2):
            workers.start()
        workers.until(lambda: len(workers.seen()) > RECORDS // 10)
        ballast = fill(node.data.parent)
        try:
            # Once more if the broker has given a page back meanwhile: what it could not finish.
            workers.until(lambda: bool(fill(ballast.parent)) and is_full(ballast.parent))
            seen = len(workers.seen())
            time.sleep(FULL_S)  # as long as a session
            assert all(process.poll() is None for process in workers.running)
            assert node.is_running()
        finally:
            ballast.unlink()
        assert len(set(workers.seen())) < len(fed.handled()), f"all was done, {seen} before"
        wait_for_all(node.bootstrap, workers, fed)
        # Handlers went on while nothing could be committed: the group comes after them.
        workers.until(lambda: committed_ends(node.bootstrap))
        workers.stop_all()
        check_order(fed, workers.seen())
    assert set(dead(node.bootstrap)) == fed.parked()
    assert committed_ends(node.bootstrap)
