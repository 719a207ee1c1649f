"""The outbox on Apache Kafka: the same relay, the same kills, the same money."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.client import Admin
from tests.interop.brokers import ApacheNode
from tests.services.outbox_rounds import TOPIC, Shop, told_once_and_in_order


def test_kills_leave_each_change_told_once_and_in_order(tmp_path: Path) -> None:
    shop = Shop(f"sqlite:///{tmp_path / 'shop.db'}", shards=2)
    with ApacheNode(tmp_path / "node") as node:
        Admin(node.bootstrap).topics.create(TOPIC, partitions=3)
        told_once_and_in_order(shop, node, None, tmp_path, rows=400, relays_at_once=2)
    shop.engine.dispose()


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_hundred_thousand_rows_under_kills(tmp_path: Path) -> None:
    shop = Shop(f"sqlite:///{tmp_path / 'shop.db'}")
    with ApacheNode(tmp_path / "node") as node:
        Admin(node.bootstrap).topics.create(TOPIC, partitions=3)
        told_once_and_in_order(shop, node, None, tmp_path, rows=100_000, relays_at_once=4)
    shop.engine.dispose()
