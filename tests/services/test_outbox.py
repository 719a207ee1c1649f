"""The outbox on real databases and a real broker: none lost, none doubled, the order of a key kept.

Relays are killed and stand still past their lease, the broker and the database are killed, while
eight writers commit, roll back and straggle.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client import Admin
from tests.interop.brokers import HeadraceNode
from tests.services.outbox_rounds import TOPIC, Shop, told_once_and_in_order
from tests.services.servers import Mariadb, Postgres

ROWS = int(os.environ.get("RECORDS", "2000"))
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HeadraceNode]:
    with HeadraceNode(tmp_path / "node") as node:
        Admin(node.bootstrap).topics.create(TOPIC, partitions=3)
        yield node


@pytest.fixture(params=["postgresql", "mariadb", "sqlite"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    match request.param:
        case "postgresql":
            server: Postgres = request.getfixturevalue("postgres")
            url = server.url
        case "mariadb":
            url = request.getfixturevalue("mariadb").url
        case _:
            url = f"sqlite:///{tmp_path / 'shop.db'}"
    shop = Shop(url)
    yield shop
    shop.engine.dispose()


def database_of(request: pytest.FixtureRequest, shop: Shop) -> Postgres | Mariadb | None:
    match shop.engine.dialect.name:
        case "postgresql":
            return request.getfixturevalue("postgres")
        case "mysql" | "mariadb":
            return request.getfixturevalue("mariadb")
    return None


def test_kills_leave_each_change_told_once_and_in_order(
    request: pytest.FixtureRequest, shop: Shop, node: HeadraceNode, tmp_path: Path
) -> None:
    told_once_and_in_order(
        shop, node, database_of(request, shop), tmp_path, rows=ROWS, relays_at_once=2
    )


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_hundred_thousand_rows_under_kills(
    request: pytest.FixtureRequest, shop: Shop, node: HeadraceNode, tmp_path: Path
) -> None:
    told_once_and_in_order(
        shop, node, database_of(request, shop), tmp_path, rows=100_000, relays_at_once=4
    )
