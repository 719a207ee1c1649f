"""once= on a real MariaDB: its own words for what is there already, and for who waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, create_engine, text

from headrace.app.once.in_sql import Sql
from headrace.app.retry import TryLater
from tests.services.servers import Mariadb

WORKERS = 6


@pytest.fixture
def engine(mariadb: Mariadb) -> Iterator[Engine]:
    engine = create_engine(mariadb.url, pool_size=WORKERS)
    with engine.begin() as db:
        db.execute(text("DROP TABLE IF EXISTS bills, headrace_once"))
        db.execute(text("CREATE TABLE bills (id VARCHAR(600)) CHARACTER SET utf8mb4"))
    yield engine
    engine.dispose()


def bills(engine: Engine) -> int:
    with engine.connect() as db:
        return int(db.execute(text("SELECT count(*) FROM bills")).scalar_one())


def bill(once: Sql, message_id: str, before_end: Callable[[], object] = lambda: None) -> str:
    with once.attempt("billing", message_id) as attempt:
        if attempt.duplicate:
            return "duplicate"
        attempt.db.execute(text("INSERT INTO bills VALUES (:id)"), {"id": message_id})
        before_end()
    return "billed"


def test_workers_that_have_the_same_message_at_once_bill_once(engine: Engine) -> None:
    together, said = threading.Barrier(WORKERS), []

    def worker() -> None:
        once = Sql(engine)  # each makes the table
        together.wait()
        while True:
            try:
                said.append(bill(once, "orders/0/1"))
                return
            except TryLater:
                continue

    workers = [threading.Thread(target=worker) for _ in range(WORKERS)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert sorted(said) == ["billed"] + ["duplicate"] * (WORKERS - 1)
    assert bills(engine) == 1


def test_ids_that_differ_by_case_accent_or_a_space_are_different_messages(engine: Engine) -> None:
    once = Sql(engine)
    ids = ["order-a", "order-A", "order-a ", "order-\u00e1", "order-\U0001f600", "x" * 512]
    assert [bill(once, each) for each in ids] == ["billed"] * len(ids)
    assert [bill(once, each) for each in ids] == ["duplicate"] * len(ids)


def test_a_failed_attempt_leaves_neither_effect_nor_memory(engine: Engine) -> None:
    once = Sql(engine)

    def fail() -> None:
        raise LookupError("no such customer")

    with pytest.raises(LookupError):
        bill(once, "orders/0/1", fail)
    assert bills(engine) == 0
    assert bill(once, "orders/0/1") == "billed"


def test_a_worker_that_stands_still_in_its_transaction_makes_others_come_later(
    engine: Engine,
) -> None:
    once = Sql(engine, lock_wait="100ms")  # a second is the least that MySQL waits
    inside, go_on = threading.Event(), threading.Event()

    def stand_still() -> None:
        inside.set()
        assert go_on.wait(400)

    still = threading.Thread(target=bill, args=(once, "orders/0/1", stand_still))
    still.start()
    assert inside.wait(400)
    with pytest.raises(TryLater):
        bill(once, "orders/0/1")
    go_on.set()
    still.join()
    assert bill(once, "orders/0/1") == "duplicate"


def test_a_database_that_disappears_means_later_and_nothing_is_billed_twice(
    mariadb: Mariadb, engine: Engine
) -> None:
    once = Sql(engine)
    with pytest.raises(TryLater):  # it goes while the handler is at work
        bill(once, "orders/0/1", before_end=mariadb.stop)
    with pytest.raises(TryLater):  # and stays away
        bill(once, "orders/0/1")
    mariadb.start()
    assert bill(once, "orders/0/1") == "billed"
    assert bill(once, "orders/0/1") == "duplicate"
    assert bills(engine) == 1


def test_what_a_worker_without_topic_ids_has_handled_is_known(engine: Engine) -> None:
    now_ms, topic_id = 1_700_000_000_000, "vPeOCWypqUOSepEvx0cbog"
    once = Sql(engine, now_ms=lambda: now_ms)
    assert bill(once, "orders/0/1") == "billed"
    for place, known in (("orders/0/1", True), ("orders/0/2", False)):
        with once.attempt("billing", f"{place}@{topic_id}", now_ms - 5) as attempt:
            assert attempt.duplicate is known
