"""The outbox for long: round after round of kills, on each database, with 1 to 4 relays."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

import pytest

from headrace.client import Admin
from tests.interop.brokers import HeadraceNode
from tests.services.outbox_rounds import TOPIC, Shop, told_once_and_in_order
from tests.services.servers import Mariadb, Postgres, mariadb, postgres
from tests.soak.report import write_row

ROUNDS = int(os.environ.get("ROUNDS", "50"))
ROWS = int(os.environ.get("RECORDS", "5000"))
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**31))
MOST_RELAYS = 4

__all__ = ["mariadb", "postgres"]


@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "sqlite"])
def test_rounds_of_kills(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    server: Postgres | Mariadb | None = None
    if kind != "sqlite":
        server = request.getfixturevalue("postgres" if kind == "postgresql" else "mariadb")
    began, told = time.monotonic(), 0
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        shop = Shop(server.url if server is not None else f"sqlite:///{folder / 'shop.db'}")
        with HeadraceNode(folder / "node") as node:
            Admin(node.bootstrap).topics.create(TOPIC, partitions=3)
            relays = 1 + number % MOST_RELAYS
            told_once_and_in_order(
                shop, node, server, folder, rows=ROWS, relays_at_once=relays, seed=SEED + number
            )
        told += sum(shop.versions().values())
        shop.engine.dispose()
        shutil.rmtree(folder)
    write_row(
        f"outbox on {kind}, 8 writers, 1 to 4 relays, {ROUNDS} rounds (seed {SEED}), in each "
        f"kill -9 of two relays, the broker{'' if server is None else ' and the database'}, and a "
        "relay halted past its lease",
        f"{told:,} changes, each told once and in the order of its account; "
        f"{time.monotonic() - began:.0f} s in all",
    )
