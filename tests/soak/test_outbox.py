"""The outbox for long: round after round of kills, on each database."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.client import Admin
from tests.interop.brokers import HeadraceNode
from tests.services.outbox_rounds import TOPIC, Shop, told_once_and_in_order
from tests.services.servers import Mariadb, Postgres, mariadb, postgres

ROUNDS = int(os.environ.get("ROUNDS", "50"))
ROWS = int(os.environ.get("RECORDS", "5000"))

__all__ = ["mariadb", "postgres"]


@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "sqlite"])
def test_rounds_of_kills(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    server: Postgres | Mariadb | None = None
    if kind != "sqlite":
        server = request.getfixturevalue("postgres" if kind == "postgresql" else "mariadb")
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        shop = Shop(server.url if server is not None else f"sqlite:///{folder / 'shop.db'}")
        with HeadraceNode(folder / "node") as node:
            Admin(node.bootstrap).topics.create(TOPIC, partitions=3)
            relays = 1 + number % 4
            told_once_and_in_order(
                shop, node, server, folder, rows=ROWS, relays_at_once=relays, seed=number
            )
        shop.engine.dispose()
