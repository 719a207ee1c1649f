"""once=Sql: the row and the handler's own work are there together, or neither."""

import asyncio

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import create_async_engine

from headrace.app.once.in_sql import CLEAN_EVERY_MS, TOPIC_IDS_SINCE, Sql
from headrace.app.once.memory import Once
from headrace.app.once.message_ids import UPGRADE_TAKES_MS
from headrace.app.retry import TryLater

DAY_MS = 86_400_000


class Clock:
    now_ms = 1_700_000_000_000

    def __call__(self):
        return self.now_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def engine(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}", connect_args={"timeout": 0.1})
    with engine.begin() as db:
        db.execute(text("CREATE TABLE bills (id TEXT PRIMARY KEY)"))
    yield engine
    engine.dispose()


def bills(engine):
    with engine.connect() as db:
        return [row[0] for row in db.execute(text("SELECT id FROM bills ORDER BY id"))]


def bill(once, message_id, *, group="billing", fail=False, written_at_ms=None):
    """What the worker does around a handler; True if the handler ran."""
    with once.attempt(group, message_id, written_at_ms) as attempt:
        if attempt.duplicate:
            return False
        attempt.db.execute(text("INSERT INTO bills VALUES (:id)"), {"id": f"{group}:{message_id}"})
        if fail:
            raise LookupError("no such customer")
    return True


def test_a_message_has_its_effect_once_per_group(engine, clock):
    once = Sql(engine, now_ms=clock)
    assert isinstance(once, Once)
    assert once.refusal(asynchronous=False) is None
    assert "AsyncEngine" in once.refusal(asynchronous=True)
    assert bill(once, "orders/0/1")
    assert not bill(once, "orders/0/1")
    assert bill(once, "orders/0/1", group="mailing")
    assert bill(Sql(engine, now_ms=clock), "orders/0/2")
    assert bills(engine) == ["billing:orders/0/1", "billing:orders/0/2", "mailing:orders/0/1"]


def test_a_failed_attempt_leaves_neither_effect_nor_memory(engine, clock):
    once = Sql(engine, now_ms=clock)
    with pytest.raises(LookupError):
        bill(once, "a", fail=True)
    assert bills(engine) == []
    assert bill(once, "a")
    assert bills(engine) == ["billing:a"]


def test_a_wrong_statement_of_the_handler_is_its_own_failure(engine, clock):
    once = Sql(engine, now_ms=clock)
    for statement in ("INSERT INTO nowhere VALUES (1)", "INSERT INTO bills VALUES (NULL), (NULL)"):
        with pytest.raises((OperationalError, IntegrityError)):  # noqa: SIM117
            with once.attempt("billing", statement) as attempt:
                attempt.db.execute(text(statement))
                raise IntegrityError(statement, {}, Exception())


def test_a_database_that_is_locked_or_away_means_later(engine, clock, tmp_path):
    once = Sql(engine, now_ms=clock)
    assert bill(once, "a")
    with engine.connect() as other:
        other.execute(text("INSERT INTO bills VALUES ('x')"))  # holds the write lock
        with pytest.raises(TryLater):
            bill(once, "b")
    assert bill(once, "b")
    away = Sql(create_engine(f"sqlite:///{tmp_path / 'no' / 'such' / 'folder.db'}"), now_ms=clock)
    with pytest.raises(TryLater):
        bill(away, "c")


def test_a_table_that_was_dropped_is_made_again(engine, clock):
    once = Sql(engine, now_ms=clock)
    assert bill(once, "a")
    with engine.begin() as db:
        db.execute(text("DROP TABLE headrace_once"))
    with pytest.raises(TryLater):
        bill(once, "b")
    assert bill(once, "b")


def test_an_answer_like_starting_up_is_nobodys_failure(engine, clock):
    """asyncpg says it by no class of its own: a plain DBAPIError with state 57P03."""

    class StartingUp(Exception):
        sqlstate = "57P03"

    once = Sql(engine, now_ms=clock)
    with pytest.raises(TryLater), once.attempt("billing", "a"):
        raise DBAPIError("SELECT 1", {}, StartingUp("the database system is starting up"))


def test_a_failure_to_forget_old_rows_is_not_the_handlers(engine, clock):
    once = Sql(engine, now_ms=clock)
    with engine.begin() as db:
        once.table.create(db)
        db.execute(text("INSERT INTO headrace_once VALUES ('billing', 'old', 0)"))
        db.execute(
            text(
                "CREATE TRIGGER keeps BEFORE DELETE ON headrace_once "
                "BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
        )
    assert bill(once, "a")


def test_an_id_that_no_column_takes_is_remembered_by_its_hash(engine, clock):
    once = Sql(engine, now_ms=clock)
    for strange in ("a\0b", "\ud800", "a\nb"):
        for known in (False, True):
            with once.attempt("billing", strange) as attempt:
                assert attempt.duplicate is known


def test_rows_are_forgotten_after_their_time(engine, clock):
    once = Sql(engine, keep="2d", now_ms=clock)
    bill(once, "old")
    clock.now_ms += 2 * DAY_MS - 1
    bill(once, "newer")
    assert not bill(once, "old")
    clock.now_ms += CLEAN_EVERY_MS
    bill(once, "newest")  # cleans behind itself
    with engine.connect() as db:
        kept = db.execute(text("SELECT message_id FROM headrace_once ORDER BY 1")).scalars().all()
    assert kept == [TOPIC_IDS_SINCE, "newer", "newest"]


def test_a_very_long_message_id_is_remembered_by_its_hash(engine, clock):
    once = Sql(engine, now_ms=clock)
    assert bill(once, "x" * 5_000)
    assert not bill(once, "x" * 5_000)
    assert bill(once, "x" * 5_001)


FIRST, SECOND = "vPeOCWypqUOSepEvx0cbog", "AAeOCWypqUOSepEvx0cbog"


def older_worker_handles(engine, clock, message_id):
    """Its ids hold no topic id, and its table no row that says since when they do."""
    assert bill(Sql(engine, now_ms=clock), message_id)
    with engine.begin() as db:
        of_new_workers = text("DELETE FROM headrace_once WHERE message_id = :since")
        db.execute(of_new_workers, {"since": TOPIC_IDS_SINCE})


def test_what_a_worker_without_topic_ids_has_handled_is_known(engine, clock):
    written_at_ms = clock.now_ms - 5
    older_worker_handles(engine, clock, "orders/0/1")
    older_worker_handles(engine, clock, "orders/0/1~shop~0")  # published for a record of orders
    clock.now_ms += 1_000
    once = Sql(engine, now_ms=clock)
    assert not bill(once, f"orders/0/1@{FIRST}", written_at_ms=written_at_ms)
    assert not bill(once, f"orders/0/1@{FIRST}~shop~0", written_at_ms=written_at_ms)
    assert bill(once, f"orders/0/2@{FIRST}", written_at_ms=written_at_ms)
    assert not bill(once, f"orders/0/1@{FIRST}")  # nobody knows how old it is: money counts once


def test_a_record_of_a_topic_made_anew_is_new_also_where_the_older_id_is_known(engine, clock):
    older_worker_handles(engine, clock, "orders/0/1")
    clock.now_ms += 10 * 60_000
    once = Sql(engine, now_ms=clock)
    assert bill(once, f"orders/0/1@{SECOND}", written_at_ms=clock.now_ms)


def test_the_older_id_is_not_looked_up_for_ever(engine, clock):
    once = Sql(engine, now_ms=clock)
    assert bill(once, "a")  # a group that begins with topic ids
    clock.now_ms += UPGRADE_TAKES_MS + 1
    older_id = "orders/0/1"
    assert bill(once, older_id)
    assert bill(once, f"orders/0/1@{FIRST}", written_at_ms=clock.now_ms)


def test_a_group_name_that_does_not_fit_is_refused_at_the_start(engine):
    with pytest.raises(ValueError, match="255"):
        Sql(engine).prepare("g" * 256)


def test_asyncio(tmp_path, clock):
    async def story():
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}")
        async with engine.begin() as db:
            await db.execute(text("CREATE TABLE bills (id TEXT PRIMARY KEY)"))
        once = Sql(engine, now_ms=clock)
        assert once.refusal(asynchronous=True) is None
        assert once.refusal(asynchronous=False)

        async def attempt(message_id, *, fail=False):
            async with once.attempt_async("billing", message_id) as attempt:
                if attempt.duplicate:
                    return False
                await attempt.db.execute(text("INSERT INTO bills VALUES (:id)"), {"id": message_id})
                if fail:
                    raise LookupError
            return True

        with pytest.raises(LookupError):
            await attempt("a", fail=True)
        assert await attempt("a")
        assert not await attempt("a")
        async with engine.connect() as db:
            assert (await db.execute(text("SELECT id FROM bills"))).scalars().all() == ["a"]
        await engine.dispose()

    asyncio.run(story())
