"""Pipelines for long: ROUNDS kills in mid-batch (10 in `make soak`) for each exactly-once sink."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import psycopg
import pytest

from tests.interop.brokers import TARGET, make_node
from tests.pipelines.conftest import spark
from tests.pipelines.killing import SINKS, Killed, jdbc, rounds
from tests.pipelines.orders import table
from tests.services.servers import Postgres, postgres
from tests.soak.report import write_row

__all__ = ["postgres", "spark"]

ROUNDS = int(os.environ.get("ROUNDS", "10"))
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**31))

pytestmark = pytest.mark.timeout(3600)


@pytest.mark.parametrize("name", SINKS)
def test_tables_hold_each_record_once(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    began = time.monotonic()
    with make_node(TARGET, tmp_path / "node") as node:
        killed = rounds(node, SINKS[name], tmp_path / "run", ROUNDS, SEED)
    reader = request.getfixturevalue("spark")
    held = table(reader, tmp_path / "run" / "tables" / "killed", name.split()[0])
    assert held == SINKS[name].expected(killed.orders), f"with SEED={SEED}"
    tell(name, killed, time.monotonic() - began)


@pytest.mark.parametrize("name", ["jdbc upsert", "jdbc append"])
def test_postgresql_holds_each_record_once(name: str, tmp_path: Path, postgres: Postgres) -> None:
    began = time.monotonic()
    with psycopg.connect(f"postgresql://headrace@{postgres.place}", autocommit=True) as database:
        database.execute("DROP TABLE IF EXISTS killed")

        def commits(_: Path) -> int:
            try:
                asked = database.execute("SELECT coalesce(sum(batch + 1), 0) FROM headrace_batches")
            except psycopg.errors.UndefinedTable:
                return 0
            [(count,)] = asked.fetchall()
            return int(count)

        url = f"jdbc:postgresql://{postgres.place}"
        sink = jdbc(url, commits, upserts=name.endswith("upsert"))
        with make_node(TARGET, tmp_path / "node") as node:
            killed = rounds(node, sink, tmp_path / "run", ROUNDS, SEED)
        held = sorted(database.execute("SELECT id, amount FROM killed").fetchall())
    assert held == sink.expected(killed.orders), f"with SEED={SEED}"
    tell(name, killed, time.monotonic() - began)


def tell(name: str, killed: Killed, took_s: float) -> None:
    where = "Apache Kafka 4.3.1" if TARGET == "apache" else "Headrace"
    who = ", ".join(f"{one} {count} times" for one, count in sorted(killed.who.items()))
    write_row(
        f"pipeline from {where} into {name}, {ROUNDS} rounds of kill -9 (seed {SEED}): {who}; "
        f"{killed.in_mid_batch} rounds hit a batch under way, {killed.before_checkpoint} of them "
        "between the table's commit and the checkpoint's",
        f"{killed.orders:,} records, the table is what plain Python computes; each of "
        f"{len(killed.broken)} broken records in the dead letters ({killed.letters} letters); "
        f"after the broker's death a driver ended by itself {killed.gave_up} times; "
        f"{took_s:.0f} s in all at a load of {os.getloadavg()[1]:.0f}",
    )
