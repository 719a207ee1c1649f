"""The outbox on three brokers: one is killed and one stands still, while rows are written."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from headrace.services.outbox import positions
from headrace.testing import Cluster
from tests.services.outbox_rounds import (
    TOPIC,
    Relays,
    Shop,
    Writers,
    told_up_to,
    wait_until_told,
    wrong,
)

ROWS = 1500


def test_a_broker_dies_and_one_stands_still_and_each_change_is_told_once(tmp_path: Path) -> None:
    shop = Shop(f"sqlite:///{tmp_path / 'shop.db'}", shards=2)
    with Cluster(brokers=3) as cluster:
        at = cluster.bootstrap
        admin = AdminClient({"bootstrap.servers": at})
        for made in admin.create_topics([NewTopic(TOPIC, 3, 3)]).values():
            made.result(60)
        with Relays(shop.url, at, tmp_path) as relays, Writers(shop, rows=ROWS) as writers:
            for _ in range(2):
                relays.start()
            told_up_to(0.2, writers, relays, at)
            assert admin.list_topics(positions.TOPIC).topics[positions.TOPIC].partitions[0].isrs
            dead = leader(admin, TOPIC)
            cluster.kill(dead)
            told_up_to(0.4, writers, relays, at)  # by the two that are left
            cluster.restore(dead)
            told_up_to(0.6, writers, relays, at)
            still = leader(admin, positions.TOPIC)
            cluster.cut(still)
            told_up_to(0.8, writers, relays, at)
            cluster.restore(still)
            told_up_to(0.9, writers, relays, at)
            cluster.kill(dead)  # and the relays with it: the next ones find their positions
            for relay in list(relays.running):
                relays.kill(relay)
                relays.start()
            writers.go_on(1)
            wait_until_told(shop, at, relays)
            relays.stop()
        cluster.restore(dead)
        assert wrong(shop, at) == []
    shop.engine.dispose()


def leader(admin: AdminClient, topic: str) -> int:
    return int(admin.list_topics(topic, timeout=60).topics[topic].partitions[0].leader)
