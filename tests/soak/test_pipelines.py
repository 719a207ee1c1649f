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
    sink = jdbc(f"jdbc:postgresql://{postgres.place}", upserts=name.endswith("upsert"))
    with psycopg.connect(f"postgresql://headrace@{postgres.place}") as database:
        database.execute("DROP TABLE IF EXISTS killed")
    with make_node(TARGET, tmp_path / "node") as node:
        killed = rounds(node, sink, tmp_path / "run", ROUNDS, SEED)
    with psycopg.connect(f"postgresql://headrace@{postgres.place}") as database:
        held = sorted(database.execute("SELECT id, amount FROM killed").fetchall())
    assert held == sink.expected(killed.orders), f"with SEED={SEED}"
    tell(name, killed, time.monotonic() - began)


def tell(name: str, killed: Killed, took_s: float) -> None:
    where = "Apache Kafka 4.3.1" if TARGET == "apache" else "Headrace"
    write_row(
        f"pipeline from {where} into {name} (seed {SEED}), killed in mid-batch: driver "
        f"{killed.driver} times, Spark {killed.spark}, broker {killed.broker}",
        f"{killed.orders:,} records, each once; {took_s:.0f} s in all",
    )
