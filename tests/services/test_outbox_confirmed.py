"""Confirmed delivery on real databases: a consumer that is killed, and one that never confirms.

The payment side waits for a confirmation of each transfer. The consumer is dead at first, then it
is killed at its work; what it did not confirm is sent again, and booked once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from headrace import Admin
from headrace.services.outbox.confirmations import Confirmations
from headrace.services.outbox.rows import record_of
from headrace.services.outbox.status import status_of
from headrace.services.outbox.store import COLUMNS, Store, row_of
from tests.interop.brokers import HeadraceNode
from tests.services.app_rounds import hears_sigterm
from tests.services.outbox_rounds import TOPIC, Relays, Shop, ends, until

TRANSFERS = 60

SAVINGS = """
import os
from sqlalchemy import create_engine, text
from headrace import App, Sql

engine = create_engine(os.environ["SHOP"])
app = App(os.environ["BOOTSTRAP"], group="savings", settings={"session.timeout.ms": 6000})

@app.on("transfers", once=Sql(engine), confirm=True)
def book(transfer: dict, db) -> None:
    db.execute(text("INSERT INTO booked VALUES (:number)"), transfer)
"""


@pytest.fixture(params=["postgresql", "sqlite"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").url
    shop = Shop(url, shards=2)
    with shop.engine.begin() as db:
        db.execute(text("DROP TABLE IF EXISTS booked"))
        db.execute(text("DROP TABLE IF EXISTS headrace_once"))
        db.execute(text("CREATE TABLE booked (number INT)"))
    yield shop
    shop.engine.dispose()


def test_what_a_killed_consumer_did_not_confirm_is_sent_again_and_booked_once(
    shop: Shop, tmp_path: Path
) -> None:
    (tmp_path / "savings.py").write_text(SAVINGS)
    table = Confirmations(Store(shop.engine))
    with HeadraceNode(tmp_path / "node") as node:
        for topic in (TOPIC, "nobody"):
            Admin(node.bootstrap).topics.create(topic, partitions=2)
        environment = os.environ | {"SHOP": shop.url, "BOOTSTRAP": node.bootstrap}

        def consumer() -> subprocess.Popen[bytes]:
            program = str(Path(sys.executable).with_name("headrace"))
            words = [program, "app", "run", "savings:app"]
            with (tmp_path / "relays.log").open("ab") as log:
                return subprocess.Popen(
                    words, cwd=tmp_path, env=environment, stdout=log, stderr=log
                )

        def booked() -> int:
            with shop.engine.connect() as db:
                return int(db.execute(text("SELECT count(*) FROM booked")).scalar_one())

        with Relays(shop.url, node.bootstrap, tmp_path, "--resends", "1000") as relays:
            relays.start()
            with shop.engine.begin() as db:
                for number in range(TRANSFERS):
                    shop.outbox.send(
                        db, TOPIC, {"number": number}, key=f"k{number}", confirm_within="1s"
                    )
            # Nobody consumes: all of them are sent again, with the ids that they had.
            until(lambda: ends(node.bootstrap) >= 2 * TRANSFERS, 120, relays.log_text)
            killed = consumer()
            try:
                until(lambda: booked() >= 1, 120, relays.log_text)
            finally:
                killed.kill()
                killed.wait()
            running = consumer()
            try:
                until(lambda: table.counts() == (0, 0), 120, relays.log_text)
                until(lambda: hears_sigterm(running), 120, relays.log_text)
            finally:
                running.terminate()
                assert running.wait(400) == 0
            assert booked() == TRANSFERS
            relays.stop()
        with Relays(shop.url, node.bootstrap, tmp_path, "--resends", "1") as relays:
            relays.start()
            with shop.engine.begin() as db:
                shop.outbox.send(db, "nobody", "x", id="t-1", confirm_within="500ms")
            until(lambda: table.counts() == (0, 1), 120, relays.log_text)
            [dead] = table.unconfirmed()
            assert (dead.row.message_id, dead.reason[:12]) == ("t-1", "sent 2 times")
            assert "was sent 2 times and never confirmed" in relays.log_text()
            relays.stop()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_each_database_does_what_the_table_of_confirmations_asks(
    request: pytest.FixtureRequest, kind: str
) -> None:
    """Without a cluster: the relay's statements, one after the other."""
    shop = Shop(request.getfixturevalue("postgres" if kind == "postgresql" else kind).url, shards=2)
    store = Store(shop.engine)
    table, outbox_id = Confirmations(store), store.facts().outbox_id

    def relay(*, up_to: int) -> None:
        with shop.engine.connect() as db:
            rows = [row_of(each) for each in db.execute(text(SELECT), {"up_to": up_to - 1})]
        asked = [(row, record_of(row, outbox_id).confirmation) for row in rows]
        table.track(outbox_id, 0, [(row, one) for row, one in asked if one is not None])
        store.save_hint(0, up_to)

    with shop.engine.begin() as db:
        for name in ("t-1", "t-2"):
            shop.outbox.send(db, TOPIC, "x\0\u00e9", key="k", id=name, confirm_within="1s")
        db.execute(text("UPDATE headrace_outbox SET shard = 0"))
    relay(up_to=1)
    relay(up_to=2)
    table.start_clocks(1000)
    assert [each.message_id for each in table.due(2000)] == ["t-1", "t-2"]
    assert table.confirmed(["t-2", "t-2", "another"]) == 1
    [due] = table.due(2000)
    assert table.resend(due) and not table.resend(due) and not table.give_up(due)
    relay(up_to=3)
    table.start_clocks(5000)
    assert table.due(5999) == []
    [due] = table.due(6000)
    assert (due.resends, table.give_up(due)) == (1, True)
    [dead] = table.unconfirmed()
    assert (dead.row.payload, dead.row.key) == ("x\0\u00e9".encode(), b"k")
    assert table.retry([dead.row.id]) == 1 and table.counts() == (1, 0)
    found = status_of(store)
    assert (found.confirmations_open, found.unconfirmed, found.table_bytes > 0) == (1, 0, True)
    shop.engine.dispose()


SELECT = f"SELECT {COLUMNS} FROM headrace_outbox WHERE id > :up_to ORDER BY id LIMIT 1"
