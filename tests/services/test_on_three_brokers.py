"""What stands around the broker runs on three of them while one after the other is killed (-9).

The same rounds as on one broker: delayed messages, an app with once=Sql, the relay of an outbox.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from headrace.client import Admin
from tests.interop.brokers import TARGET
from tests.services import outbox_rounds
from tests.services.app_rounds import TOPIC, committed_ends, dead, feed
from tests.services.delay_checker import Ledger, Watcher, judge, make_delayed_topic
from tests.services.delay_process import DelayProcess
from tests.services.effects import BillingWorkers, empty, rounds, until_done
from tests.services.effects import Ledger as Effects
from tests.services.outbox_rounds import Shop, told_once_and_in_order
from tests.services.servers import Postgres
from tests.soak.three_nodes import ThreeNodes

PARTITIONS = 4
WITHIN_S = 400.0
pytestmark = pytest.mark.timeout(900)


class AnyBroker:
    """One of three, each time the next: for rounds that kill and start the broker."""

    def __init__(self, cluster: ThreeNodes) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap
        self._deaths = 0

    def kill(self) -> None:
        self.cluster.members[self._deaths % 3].kill()
        self._deaths += 1

    def start(self) -> None:
        self.cluster.members[(self._deaths - 1) % 3].start()
        self.cluster.wait_in_sync()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    settings = {"headrace.delay.service": "off"} if TARGET == "headrace" else {}
    with ThreeNodes(TARGET, tmp_path_factory.mktemp("cluster"), settings) as cluster:
        yield AnyBroker(cluster)


def test_delayed_messages_arrive_once_and_in_time(broker: AnyBroker, tmp_path: Path) -> None:
    make_delayed_topic(broker.bootstrap, "delayed", PARTITIONS)
    chance = random.Random(3)
    with DelayProcess(broker.bootstrap, tmp_path):
        watcher, ledger = Watcher(broker.bootstrap, "delayed"), Ledger(broker.bootstrap, "delayed")
        for number in range(3):
            for each in range(1_000):
                ledger.send(
                    f"{number}-{each}".encode(),
                    partition=chance.randrange(PARTITIONS),
                    key=b"key %d" % (each % 100),
                    delay_ms=chance.randrange(6_000),
                )
            time.sleep(chance.uniform(0.3, 2.0))
            broker.kill()
            broker.start()
        ledger.flush()
        watcher.wait_for(len(ledger.sent), WITHIN_S)
        assert not ledger.failed
        judge(ledger.sent, watcher.stop()).require_clean()


def test_an_app_has_each_effect_once(broker: Any, postgres: Postgres, tmp_path: Path) -> None:
    engine = create_engine(postgres.url, pool_pre_ping=True)
    empty(engine)
    Admin(broker.bootstrap).topics.create(TOPIC, partitions=6)
    fed = feed(broker.bootstrap, 600, 120, random.Random(11), failing=0.05)
    effects = Effects(engine)
    words = ["--database", postgres.async_url, "--kind", "coroutine", "--slow-ms", "20"]
    with BillingWorkers(broker.bootstrap, tmp_path, *words) as workers:
        rounds(broker, workers, effects, fed, kills=2, every_s=3, most=2, seed=11)
        until_done(broker.bootstrap, workers, effects, fed, within_s=400)
    assert effects.wrong(fed) == []
    assert set(dead(broker.bootstrap)) == fed.parked()
    assert committed_ends(broker.bootstrap)
    engine.dispose()


def test_an_outbox_tells_each_change_once_and_in_order(
    broker: Any, postgres: Postgres, tmp_path: Path
) -> None:
    Admin(broker.bootstrap).topics.create(outbox_rounds.TOPIC, partitions=3)
    shop = Shop(postgres.url)
    told_once_and_in_order(shop, broker, None, tmp_path, rows=1_000, relays_at_once=2)
    shop.engine.dispose()
