"""once= on real servers: also when two workers have the message, and when the server goes away."""

import asyncio
import threading
import uuid

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from headrace.app.once.in_redis import Redis
from headrace.app.once.in_sql import Sql
from headrace.app.retry import TryLater

WORKERS = 8


@pytest.fixture
def engine(postgres):
    engine = create_engine(postgres.url, pool_size=WORKERS)
    with engine.begin() as db:
        db.execute(text("DROP TABLE IF EXISTS bills"))
        db.execute(text("CREATE TABLE bills (id TEXT)"))
    yield engine
    engine.dispose()


def bills(engine):
    with engine.connect() as db:
        return db.execute(text("SELECT count(*) FROM bills")).scalar()


def bill(once, message_id, before_end=lambda: None):
    with once.attempt("billing", message_id) as attempt:
        if attempt.duplicate:
            return "duplicate"
        attempt.db.execute(text("INSERT INTO bills VALUES (:id)"), {"id": message_id})
        before_end()
    return "billed"


def fresh_id():
    return f"orders/0/{uuid.uuid4()}"


def test_workers_that_have_the_same_message_at_once_bill_once(engine):
    message_id, together, said = fresh_id(), threading.Barrier(WORKERS), []

    def worker():
        once = Sql(engine, table="once_race")  # each makes the table
        together.wait()
        while True:
            try:
                said.append(bill(once, message_id))
                return
            except TryLater:  # the lock was not to be had in time
                continue

    workers = [threading.Thread(target=worker) for _ in range(WORKERS)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert sorted(said) == ["billed"] + ["duplicate"] * (WORKERS - 1)
    assert bills(engine) == 1


def test_a_worker_that_stands_still_in_its_transaction_makes_others_come_later(engine):
    once, message_id = Sql(engine, lock_wait="100ms"), fresh_id()
    inside, go_on = threading.Event(), threading.Event()

    def stand_still():
        inside.set()
        assert go_on.wait(400)

    still = threading.Thread(target=bill, args=(once, message_id, stand_still))
    still.start()
    assert inside.wait(400)
    with pytest.raises(TryLater):
        bill(once, message_id)
    go_on.set()
    still.join()
    assert bill(once, message_id) == "duplicate"
    assert bills(engine) == 1


def test_a_database_that_disappears_means_later_and_nothing_is_billed_twice(postgres, engine):
    once, message_id = Sql(engine), fresh_id()
    with pytest.raises(TryLater):  # it goes while the handler is at work
        bill(once, message_id, before_end=postgres.stop)
    with pytest.raises(TryLater):  # and stays away
        bill(once, message_id)
    postgres.start()
    assert bill(once, message_id) == "billed"
    assert bill(once, message_id) == "duplicate"
    assert bills(engine) == 1


def test_coroutines(postgres, engine):
    async def story():
        pool = create_async_engine(postgres.async_url, pool_size=WORKERS)
        once, message_id = Sql(pool, table="once_coroutines"), fresh_id()

        async def worker():
            while True:
                try:
                    async with once.attempt_async("billing", message_id) as attempt:
                        if attempt.duplicate:
                            return "duplicate"
                        await attempt.db.execute(text("INSERT INTO bills VALUES ('x')"))
                    return "billed"
                except TryLater:
                    continue

        said = await asyncio.gather(*(worker() for _ in range(WORKERS)))
        await pool.dispose()
        assert sorted(said) == ["billed"] + ["duplicate"] * (WORKERS - 1)

    asyncio.run(story())
    assert bills(engine) == 1


def test_a_worker_that_is_halted_inside_a_statement_is_ended_too(postgres, engine):
    """asyncpg has prepared and not executed: to the database the session is not idle."""

    async def story():
        table, message_id = "once_halted", fresh_id()
        pool = create_async_engine(postgres.async_url)
        once = Sql(pool, table=table, lock_wait="100ms", longest_pause="300ms")
        async with once.attempt_async("billing", message_id) as halted:
            native = (await halted.db.get_raw_connection()).driver_connection
            await native.prepare("INSERT INTO bills VALUES ('by the halted one')")
            while True:
                try:
                    async with once.attempt_async("billing", message_id) as attempt:
                        assert not attempt.duplicate
                        await attempt.db.execute(text("INSERT INTO bills VALUES ('x')"))
                    break
                except TryLater:
                    continue
            assert native.is_closed()
        await pool.dispose()

    with pytest.raises(TryLater):  # what the halted one hears when it goes on
        asyncio.run(story())
    assert bills(engine) == 1


def notify(once, message_id, *, fail=False):
    with once.attempt("notices", message_id) as attempt:
        if attempt.duplicate:
            return "duplicate"
        if fail:
            raise LookupError
    return "sent"


def test_redis_remembers_what_was_done_and_gives_back_what_failed(redis_server):
    once, message_id = Redis(redis_server.url), fresh_id()
    with pytest.raises(LookupError):
        notify(once, message_id, fail=True)
    assert notify(once, message_id) == "sent"
    assert notify(once, message_id) == "duplicate"
    with once.attempt("notices", other := fresh_id()), pytest.raises(TryLater):
        notify(once, other)  # while another worker is at it
    once.close()


def test_redis_for_coroutines(redis_server):
    async def story():
        once, message_id = Redis(redis_server.url), fresh_id()
        said = []
        for _ in range(2):
            async with once.attempt_async("notices", message_id) as attempt:
                said.append(attempt.duplicate)
        return said

    assert asyncio.run(story()) == [False, True]


def test_redis_that_disappears_means_later(redis_server):
    once = Redis(redis_server.url)
    redis_server.stop()
    try:
        with pytest.raises(TryLater):
            notify(once, fresh_id())
    finally:
        redis_server.start()
    assert notify(once, fresh_id()) == "sent"


TOPIC_ID = "vPeOCWypqUOSepEvx0cbog"
MINUTES_MS = 60_000


def test_what_a_worker_without_topic_ids_has_handled_is_known_to_redis(redis_server):
    """Unless it was handled before the record was written: then that was of another topic."""
    now_ms = 1_700_000_000_000
    older, of_group = Redis(redis_server.url), f"notices-{uuid.uuid4()}"
    for place in ("orders/0/1", "orders/0/2"):
        with older.attempt(of_group, place) as attempt:
            assert not attempt.duplicate
    once = Redis(redis_server.url, now_ms=lambda: now_ms)

    def handled(place, written_at_ms):
        with once.attempt(of_group, f"{place}@{TOPIC_ID}", written_at_ms) as attempt:
            return not attempt.duplicate

    async def handled_async(place, written_at_ms):
        asked = once.attempt_async(of_group, f"{place}@{TOPIC_ID}", written_at_ms)
        async with asked as attempt:
            return not attempt.duplicate

    assert not handled("orders/0/1", now_ms - 5)
    assert not handled("orders/0/1", now_ms + 10 * MINUTES_MS)  # by its new id from now on
    assert handled("orders/0/2", now_ms + 10 * MINUTES_MS)
    assert handled("orders/0/3", now_ms - 5)
    with older.attempt(of_group, "orders/0/4"):
        pass
    assert not asyncio.run(handled_async("orders/0/4", now_ms - 5))
    once.close()
    older.close()


def test_what_a_worker_without_topic_ids_has_handled_is_known_to_postgresql(engine):
    table = f"once_{uuid.uuid4().hex}"
    now_ms = 1_700_000_000_000
    once = Sql(engine, table=table, now_ms=lambda: now_ms)
    assert bill(once, "orders/0/1") == bill(once, "orders/0/2") == "billed"

    def handled(place, written_at_ms):
        with once.attempt("billing", f"{place}@{TOPIC_ID}", written_at_ms) as attempt:
            return not attempt.duplicate

    assert not handled("orders/0/1", now_ms - 5)
    assert handled("orders/0/2", now_ms + 10 * MINUTES_MS)
    assert handled("orders/0/3", now_ms - 5)
