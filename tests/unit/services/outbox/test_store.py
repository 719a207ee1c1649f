"""What a relay asks of the database every second costs no more where many rows lie.

Counted in steps of SQLite's machine, so that no clock is needed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from headrace import Outbox
from headrace.outbox import OutboxError
from headrace.services.outbox.engines import engine_for
from headrace.services.outbox.rows import Row
from headrace.services.outbox.store import Store

WEEK_MS = 7 * 86_400_000


class Steps:
    """Steps of SQLite's machine, in tens."""

    def __init__(self, engine: Engine) -> None:
        self.count = 0

        @event.listens_for(engine, "connect")
        def connected(connection: Any, _: object) -> None:
            connection.set_progress_handler(self._step, 10)
            connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32_766)  # as SQLite comes

    def _step(self) -> int:
        self.count += 1
        return 0

    def of(self, call: Callable[[], object]) -> int:
        call()  # the first call also makes the statement
        self.count = 0
        call()
        return self.count


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = engine_for(f"sqlite:///{tmp_path / 'shop.db'}")
    yield engine
    engine.dispose()


@pytest.fixture
def steps(engine: Engine) -> Steps:
    return Steps(engine)


@pytest.fixture
def store(engine: Engine, steps: Steps) -> Store:
    Outbox(engine).create(shards=1)
    return Store(engine)


def wait_behind(store: Store, rows: range, *, keys: int) -> None:
    store.park(
        0,
        [
            (Row(number, "t", b"%d" % (number % keys), b"x", None, None, 1), "why", number > keys)
            for number in rows
        ],
    )


def test_a_look_at_rows_that_wait_takes_as_long_as_they_are_many(
    store: Store, steps: Steps
) -> None:
    wait_behind(store, range(1, 401), keys=200)
    few = steps.of(lambda: store.ready(0, 100))
    store.forget(range(1, 401))
    wait_behind(store, range(1, 4001), keys=2000)
    assert steps.of(lambda: store.ready(0, 100)) < 20 * few


def test_rows_wait_for_the_poison_before_them_and_for_no_other(store: Store) -> None:
    wait_behind(store, range(1, 9), keys=2)  # 1 and 2 are poison, the others wait
    assert store.ready(0, 100) == []
    store.retry([1])
    assert [row.id for row in store.ready(0, 100)] == [1, 3, 5, 7]
    store.repark(5, "again")
    assert [row.id for row in store.ready(0, 100)] == [1, 3]


def fill(engine: Engine, count: int, created_ms: int | None = None) -> None:
    row = "INSERT INTO headrace_outbox (topic) VALUES (:topic)"
    with engine.begin() as db:
        db.execute(text(row), [{"topic": "t"}] * count)
        if created_ms is not None:
            db.execute(text("UPDATE headrace_outbox SET created_at = :at"), {"at": created_ms})


def test_rows_that_are_kept_are_not_looked_at_every_time(
    engine: Engine, store: Store, steps: Steps
) -> None:
    fill(engine, 100)
    few = steps.of(lambda: store.clean(0, after=0, before=100, keep_ms=WEEK_MS, most=50))
    fill(engine, 9900)
    look = steps.of(lambda: store.clean(0, after=0, before=10_000, keep_ms=WEEK_MS, most=5000))
    assert look <= few + 5


def test_old_rows_go_and_younger_ones_stay(engine: Engine, store: Store) -> None:
    fill(engine, 10, created_ms=1)
    fill(engine, 10)
    assert store.clean(0, after=0, before=20, keep_ms=WEEK_MS, most=8) == (8, 8)
    assert store.clean(0, after=8, before=20, keep_ms=WEEK_MS, most=8) == (10, 2)
    assert store.clean(0, after=10, before=20, keep_ms=WEEK_MS, most=8) is None


def test_without_a_time_to_keep_no_clock_is_asked(engine: Engine, store: Store) -> None:
    """Of a database whose clock was set back, rows of the future are removed as well."""
    fill(engine, 10, created_ms=99_999_999_999_999)
    assert store.clean(0, after=0, before=10, keep_ms=0, most=8) == (8, 8)


@pytest.mark.parametrize("count", [1, 40_000])
def test_any_number_of_rows_is_parked_and_forgotten(store: Store, count: int) -> None:
    """A database takes no statement with more than some ten thousand values."""
    wait_behind(store, range(1, count + 1), keys=count)
    assert store.retry(range(1, count + 1)) == count
    assert store.forget(range(1, count + 1)) == count


def test_a_table_that_would_give_ids_again_is_told(engine: Engine, store: Store) -> None:
    assert store.sound() == store.facts()
    with engine.begin() as db:
        db.execute(text("DROP VIEW headrace_outbox_states"))
        db.execute(text("ALTER TABLE headrace_outbox RENAME TO old"))
        db.execute(text("CREATE TABLE headrace_outbox AS SELECT * FROM old"))
    with pytest.raises(OutboxError, match="without AUTOINCREMENT"):
        store.sound()
