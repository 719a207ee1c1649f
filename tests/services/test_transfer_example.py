"""examples/transfer on two PostgreSQL databases: all money is there, each is thanked once."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

from headrace.client import Admin
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader
from tests import patience
from tests.interop.brokers import HeadraceNode
from tests.services.servers import Postgres

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "transfer"
HEADRACE = str(Path(sys.executable).with_name("headrace"))
NAMES = ("ada", "bob", "eve")


def payment_of(monkeypatch: pytest.MonkeyPatch, url: str) -> ModuleType:
    monkeypatch.setenv("PAYMENT_DB", url)
    found = importlib.util.spec_from_file_location("payment", EXAMPLE / "payment.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def fresh_database(postgres: Postgres, name: str) -> str:
    with create_engine(postgres.url, isolation_level="AUTOCOMMIT").connect() as db:
        db.execute(text(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
        db.execute(text(f"CREATE DATABASE {name}"))
    return postgres.url.rpartition("/")[0] + f"/{name}"


def test_all_money_arrives_over_two_databases_while_everything_is_killed(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = {name: fresh_database(postgres, name) for name in ("payment", "savings")}
    payment = payment_of(monkeypatch, urls["payment"])
    payment.open_accounts(*NAMES)
    with HeadraceNode(tmp_path / "node") as node:
        for topic in ("transfers", "thanks"):
            Admin(node.bootstrap).topics.create(topic, partitions=3)
        running: list[subprocess.Popen[bytes]] = []
        environment = os.environ | {
            "SAVINGS_DB": urls["savings"],
            "HEADRACE_BOOTSTRAP": node.bootstrap,
        }

        def start() -> None:
            for words in (
                ["app", "run", "savings:app"],
                ["outbox", "relay", urls["payment"], "--lease", "2s"],
                ["outbox", "relay", urls["savings"], "--lease", "2s"],
            ):
                with (tmp_path / "log").open("ab") as log:
                    running.append(
                        subprocess.Popen(
                            [HEADRACE, *words], cwd=EXAMPLE, env=environment, stdout=log, stderr=log
                        )
                    )

        def kill() -> None:
            for process in running:
                process.kill()
                process.wait()
            running.clear()

        savings = create_engine(urls["savings"])
        try:
            with savings.connect() as db:
                db.execute(text("SELECT 1"))
            start()
            for number in range(60):
                payment.save(NAMES[number % 3], 10)
            until(lambda: saved(savings) > 0, tmp_path)
            kill()
            start()
            for number in range(30):
                payment.save(NAMES[number % 3], 10)
            until(lambda: saved(savings) == 900, tmp_path)
            until(lambda: len(thanked(node.bootstrap)) == 90, tmp_path)
        finally:
            kill()
        with payment.engine.connect() as db:
            left = db.execute(text("SELECT sum(balance) FROM accounts")).scalar_one()
        assert (left, saved(savings), len(thanked(node.bootstrap))) == (2100, 900, 90)
        savings.dispose()
        payment.engine.dispose()


def saved(engine: Engine) -> int:
    with engine.connect() as db:
        there = db.execute(text("SELECT to_regclass('savings') IS NOT NULL")).scalar_one()
        if not there:
            return 0
        return int(db.execute(text("SELECT coalesce(sum(balance), 0) FROM savings")).scalar_one())


def thanked(bootstrap: str) -> list[Any]:
    settings = {"bootstrap.servers": bootstrap, "isolation.level": "read_committed"}
    reader = RecordReader(ClientSettings(settings), "thanks")
    try:
        return list(reader.records())
    finally:
        reader.close()


def until(true: Any, folder: Path) -> None:
    log = folder / "log"
    patience.until(true, lambda: log.read_text(errors="replace")[-5000:], every_s=0.2)
