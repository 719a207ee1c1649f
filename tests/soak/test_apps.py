"""Effects of an app for long: RECORDS records (100,000 if nobody says otherwise) under kill -9."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from headrace.client import Admin
from tests.interop.brokers import TARGET, make_node
from tests.services.app_rounds import TOPIC, committed_ends, dead, feed
from tests.services.effects import BillingWorkers, Ledger, empty, rounds, until_done
from tests.services.servers import Postgres, postgres
from tests.soak.report import write_row

__all__ = ["postgres"]

RECORDS = int(os.environ.get("RECORDS", "100000"))
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**31))
# Between two kills, on average. On a machine that is busy choose more: to start a worker takes a
# second or two of processor time.
EVERY_S = float(os.environ.get("EVERY_S", "10"))
FAILING = 0.02


@pytest.mark.timeout(3600)
def test_each_effect_is_in_the_database_once_and_in_order(
    tmp_path: Path, postgres: Postgres
) -> None:
    began = time.monotonic()
    engine = create_engine(postgres.url)
    empty(engine)
    ledger = Ledger(engine)
    with make_node(TARGET, tmp_path / "node") as node:
        Admin(node.bootstrap).topics.create(TOPIC, partitions=12)
        fed = feed(node.bootstrap, RECORDS, 2_000, random.Random(SEED), failing=FAILING)
        words = ["--database", postgres.async_url, "--concurrency", "32", "--slow-ms", "1"]
        with BillingWorkers(node.bootstrap, tmp_path, *words) as workers:
            killed = rounds(
                node, workers, ledger, fed,
                kills=None, every_s=EVERY_S, most=4, seed=SEED, broker_every=6,
            )  # fmt: skip
            until_done(node.bootstrap, workers, ledger, fed, within_s=600)
        wrong = ledger.wrong(fed)
        parked = dead(node.bootstrap)
        pause_s = ledger.longest_pause_s()
        assert not wrong, f"with SEED={SEED}: {len(wrong)} wrong, such as {wrong[:5]}"
        assert set(parked) == fed.parked()
        assert committed_ends(node.bootstrap)
    engine.dispose()
    tell(killed, len(fed.handled()), len(fed.parked()), pause_s, time.monotonic() - began)


def tell(killed: tuple[int, int], handled: int, parked: int, pause_s: float, took_s: float) -> None:
    where = "Apache Kafka 4.3.1" if TARGET == "apache" else "Headrace"
    write_row(
        f"app on {where}, order of 2,000 keys, once=Sql on PostgreSQL, {RECORDS:,} records of "
        f"which {FAILING:.0%} fail at first, 1 to 4 workers (seed {SEED}), a kill every "
        f"{EVERY_S:g} s: worker killed {killed[0]} times, broker killed {killed[1]} times",
        f"{handled:,} effects, each once and in the order of its key, {parked:,} records parked, "
        f"none lost; longest time without any effect {pause_s:.0f} s; {took_s:.0f} s in all",
    )
