"""Apps whose surroundings go away for long: a database for a whole minute."""

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
from tests.services.effects import BillingWorkers, Ledger, empty, until_done
from tests.services.servers import Postgres, postgres
from tests.soak.report import write_row

__all__ = ["postgres"]

RECORDS = int(os.environ.get("RECORDS", "6000"))
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**31))
AWAY_S = 60.0


@pytest.mark.timeout(900)
def test_a_database_that_is_away_for_a_minute(tmp_path: Path, postgres: Postgres) -> None:
    """Each attempt of a record lasts milliseconds: had they counted, all would be parked."""
    began = time.monotonic()
    engine = create_engine(postgres.url, pool_pre_ping=True)
    empty(engine)
    ledger = Ledger(engine)
    with make_node(TARGET, tmp_path / "node") as node:
        Admin(node.bootstrap).topics.create(TOPIC, partitions=6)
        fed = feed(node.bootstrap, RECORDS, 500, random.Random(SEED), failing=0.02)
        words = ["--database", postgres.async_url, "--concurrency", "16", "--slow-ms", "20"]
        words += ["--first", "50ms", "--longest", "100ms"]
        with BillingWorkers(node.bootstrap, tmp_path, *words) as workers:
            for _ in range(2):
                workers.start()
            workers.until(lambda: ledger.count() > RECORDS // 10)
            engine.dispose()
            postgres.stop()
            try:
                time.sleep(AWAY_S)
                assert all(process.poll() is None for process in workers.running)
            finally:
                postgres.start()
            before = ledger.count()
            assert before < len(fed.handled()), "all was done before it came back"
            until_done(node.bootstrap, workers, ledger, fed, within_s=300)
            log = workers.log_text()
        wrong = ledger.wrong(fed)
        assert not wrong, f"with SEED={SEED}: {len(wrong)} wrong, such as {wrong[:5]}"
        assert set(dead(node.bootstrap)) == fed.parked()
        assert committed_ends(node.bootstrap)
    engine.dispose()
    # One line per worker and half minute, not one per record.
    assert 1 <= log.count("no attempt is counted") <= 12
    write_row(
        f"app on {node.name}, once=Sql on PostgreSQL, {RECORDS:,} records, 2 workers "
        f"(seed {SEED}): the database was away for {AWAY_S:.0f} s after {before:,} effects",
        f"{len(fed.handled()):,} effects, each once and in the order of its key, "
        f"{len(fed.parked()):,} records parked as they should be, none lost; "
        f"{time.monotonic() - began:.0f} s in all",
    )
