"""Rows that a plain INSERT may have written: each is a record, or is parked with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from headrace import Outbox
from headrace.services.outbox.engines import engine_for
from headrace.services.outbox.rows import NotARecord, Row, record_of
from headrace.services.outbox.source import Source
from headrace.services.outbox.store import Store


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = engine_for(f"sqlite:///{tmp_path / 'shop.db'}")
    Outbox(engine).create(1)
    yield engine
    engine.dispose()


def read(engine: Engine) -> list[Row]:
    source = Source(engine)
    stable = source.poll()
    rows, _ = source.read(0, after=0, up_to=stable.up_to, most=100, incarnation=stable.incarnation)
    source.close()
    return rows


@pytest.mark.parametrize("column", ["topic", "headers"])
def test_text_of_invalid_utf8_does_not_hold_up_the_rows_behind_it(
    engine: Engine, column: str
) -> None:
    """SQLite keeps it, and its driver refuses to read the row, and so all rows behind it."""
    values = {"topic": "'orders'", "headers": "NULL", column: "CAST(x'7bff' AS TEXT)"}
    insert = f"INSERT INTO headrace_outbox (topic, headers, payload) VALUES ({values['topic']}"
    with engine.begin() as db:
        db.execute(text(f"{insert}, {values['headers']}, 'poison')"))
        db.execute(text("INSERT INTO headrace_outbox (topic, payload) VALUES ('orders', 'good')"))
    poison, good = read(engine)
    with pytest.raises(NotARecord) as reason:
        record_of(poison, "outbox")
    assert record_of(good, "outbox").value == b"good"
    Store(engine).park(0, [(poison, str(reason.value), False)])
    [parked] = Store(engine).parked()
    assert parked.row.payload == b"poison"


def test_a_payload_is_what_was_written_and_ids_stay_different(engine: Engine) -> None:
    insert = "INSERT INTO headrace_outbox (topic, payload, message_id) VALUES ('orders', "
    with engine.begin() as db:
        db.execute(text(f"{insert} CAST(x'ff41' AS TEXT), CAST(x'fe' AS TEXT))"))
        db.execute(text(f"{insert} x'ff41', x'ff')"))
    first, second = (record_of(row, "outbox") for row in read(engine))
    assert first.value == second.value == b"\xffA"
    assert first.headers != second.headers, "or a consumer would take them for one message"


def test_a_reason_can_be_written_by_every_database(engine: Engine) -> None:
    """PostgreSQL's text has no NUL: the row could not be parked, and its shard stood still."""
    asks = '{"headrace-confirm-within": "x\\u0000\\u001b[2J"}'
    row = Row(7, "orders", b"k", b"v", asks, None, 1)
    with pytest.raises(NotARecord) as reason:
        record_of(row, "outbox")
    Store(engine).park(0, [(row, str(reason.value), False)])
    [parked] = Store(engine).parked()
    assert parked.reason.isprintable() and r"x\x00\x1b[2J" in parked.reason
    Store(engine).repark(7, "\0" * 100_000)
    [parked] = Store(engine).parked()
    assert parked.reason.isprintable() and len(parked.reason) < 10_000
