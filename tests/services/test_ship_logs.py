"""The log shipper as a process: files rotate, it is killed, the broker is killed; none is lost.

Records come at least once, and each line under one id, so a table that drops repeats by id has each
line once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from headrace.client import Admin
from headrace.wire.contract.logs import TOPIC
from tests.interop.brokers import HeadraceNode
from tests.services.log_files import LogFiles, ShipperProcess, shipped

ROUNDS = int(os.environ.get("SHIP_ROUNDS", "20"))
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HeadraceNode]:
    with HeadraceNode(tmp_path / "node") as node:
        Admin(node.bootstrap).topics.create(TOPIC, partitions=3)
        yield node


def each_line_under_one_id(bootstrap: str, files: LogFiles) -> None:
    by_id: dict[str, str] = {}
    for id, message in shipped(bootstrap, TOPIC):
        assert by_id.setdefault(id, message) == message
    assert files.written - set(by_id.values()) == set(), "lost"
    assert set(by_id.values()) - files.written == set(), "torn"
    assert len(by_id) == len(files.written), "doubled"


def killed_rounds(
    node: HeadraceNode, folder: Path, *, rounds: int, lines: int, files: int, seed: int
) -> None:
    chance = Random(seed)
    logs = LogFiles(folder / "logs", files, chance)
    pattern = str(logs.folder / "app*.log*")
    shipper = ShipperProcess(node.bootstrap, [pattern], folder / "state", folder / "ship.log")
    for number in range(rounds):
        shipper.start()
        for _ in range(4):
            logs.write(lines // rounds // 4)
            if chance.random() < 0.6:
                logs.rotate(chance.randrange(files), copies=chance.random() < 0.5)
        if number % 3:
            shipper.wait_until_it_keeps()
        if number % 5 == 4:
            node.kill()
            logs.write(lines // rounds // 4)
            node.start()
        shipper.kill()
        logs.write(lines // rounds // 8)
        if chance.random() < 0.5:  # while nobody follows
            logs.rotate(chance.randrange(files), copies=chance.random() < 0.5)
    shipper.once(within_s=3000)
    each_line_under_one_id(node.bootstrap, logs)


def test_no_line_is_lost_or_doubled_over_rotation_and_kills(
    node: HeadraceNode, tmp_path: Path
) -> None:
    killed_rounds(node, tmp_path, rounds=ROUNDS, lines=4000, files=4, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_lines_of_twenty_files(node: HeadraceNode, tmp_path: Path) -> None:
    lines = int(os.environ.get("RECORDS", "1000000"))
    killed_rounds(node, tmp_path, rounds=20, lines=lines, files=20, seed=2)
