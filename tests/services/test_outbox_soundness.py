"""Tables that a relay cannot count on: it says so at its start, instead of skipping rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from headrace.outbox import Outbox, OutboxError
from headrace.services.outbox.engines import engine_for
from headrace.services.outbox.store import Store
from tests.services.outbox_rounds import Shop
from tests.services.servers import Mariadb, Postgres

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(params=["postgresql", "mariadb"])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    kind = "postgres" if request.param == "postgresql" else request.param
    shop = Shop(request.getfixturevalue(kind).url)
    yield shop
    shop.engine.dispose()


def test_tables_as_they_are_made_are_sound(shop: Shop) -> None:
    assert Store(shop.engine).sound() == Store(shop.engine).facts()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("ALTER SEQUENCE headrace_outbox_id_seq CACHE 20", "draw 20 ids .* CACHE 1"),
        (
            "ALTER TABLE headrace_outbox ALTER id SET DEFAULT nextval('headrace_outbox_id_seq')",
            "another default",
        ),
    ],
)
def test_ids_that_are_drawn_in_another_way_are_told(
    postgres: Postgres, change: str, words: str
) -> None:
    shop = Shop(postgres.url)
    with shop.engine.begin() as db:
        db.execute(text(change))
    with pytest.raises(OutboxError, match=words):
        Store(shop.engine).sound()
    shop.engine.dispose()


def test_a_gate_without_rows_stops_relay_and_writer(mariadb: Mariadb) -> None:
    shop = Shop(mariadb.url)
    with shop.engine.begin() as db:
        db.execute(text("DELETE FROM headrace_outbox_gate"))
    with pytest.raises(OutboxError, match="lost its rows"):
        Store(shop.engine).sound()
    with shop.engine.begin() as db, pytest.raises(OutboxError, match="lost its rows"):
        shop.outbox.send(db, "transfers", "x")
    shop.outbox.create()
    assert Store(shop.engine).sound().shards == 4
    shop.engine.dispose()


def test_an_outbox_in_another_schema_has_a_trigger_of_its_own(postgres: Postgres) -> None:
    shop = Shop(postgres.url)
    with shop.engine.begin() as db:
        db.execute(text("DROP SCHEMA IF EXISTS other CASCADE"))
        db.execute(text("CREATE SCHEMA other"))
    other = engine_for(f"{postgres.url}?options=-csearch_path%3Dother")
    Outbox(other).create()
    wakes = "SELECT count(*) FROM pg_trigger WHERE tgname = 'headrace_outbox_wake'"
    with other.connect() as db:
        assert db.execute(text(wakes)).scalar_one() == 2
        assert Store(other).sound() != Store(shop.engine).sound()
        db.execute(text("DROP SCHEMA other CASCADE"))
        db.commit()
    other.dispose()
    shop.engine.dispose()
