"""What a relay reads at once, in SQLite: bounded in rows and in bytes, and nothing passed over."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from headrace import Outbox
from headrace.services.outbox.engines import engine_for
from headrace.services.outbox.source import MOST_BYTES, Source, Stale


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = engine_for(f"sqlite:///{tmp_path / 'shop.db'}")
    yield engine
    engine.dispose()


@pytest.fixture
def source(engine: Engine) -> Iterator[Source]:
    Outbox(engine).create(shards=1)
    source = Source(engine)
    yield source
    source.close()


def fill(engine: Engine, sizes: list[int]) -> None:
    with engine.begin() as db:
        db.execute(
            text("INSERT INTO headrace_outbox (topic, payload) VALUES ('t', zeroblob(:size))"),
            [{"size": size} for size in sizes],
        )


def pieces(source: Source, most: int = 5000) -> list[list[int]]:
    """The ids of all rows, as a relay reads them piece by piece."""
    stable = source.poll()
    after, found = 0, []
    while after < stable.up_to:
        rows, after = source.read(
            0, after=after, up_to=stable.up_to, most=most, incarnation=stable.incarnation
        )
        found.append([row.id for row in rows])
    return found


def test_small_rows_come_at_once_up_to_the_most(engine: Engine, source: Source) -> None:
    fill(engine, [100] * 250)
    assert [len(piece) for piece in pieces(source)] == [250]
    assert [len(piece) for piece in pieces(source, most=100)] == [100, 100, 50]
    assert list(chain(*pieces(source, most=100))) == list(range(1, 251))


def test_large_rows_come_in_pieces_and_none_is_passed_over(engine: Engine, source: Source) -> None:
    fill(engine, [1000] * 40 + [MOST_BYTES // 4] * 10 + [MOST_BYTES + 1] + [1000] * 40)
    found = pieces(source)
    assert list(chain(*found)) == list(range(1, 92))
    assert 4 <= len(found) <= 7, [len(piece) for piece in found]


def test_gaps_between_ids_do_no_harm(engine: Engine, source: Source) -> None:
    fill(engine, [MOST_BYTES // 2] * 3)
    with engine.begin() as db:
        db.execute(text("UPDATE headrace_outbox SET id = id * 1000"))
    assert list(chain(*pieces(source))) == [1000, 2000, 3000]


def test_a_row_that_is_too_large_behind_a_gap_is_read_alone(engine: Engine, source: Source) -> None:
    """A relay that is given nothing asks for the same again: it would never come past it."""
    fill(engine, [1000, MOST_BYTES + 1, MOST_BYTES - 1, 1])
    with engine.begin() as db:
        db.execute(text("UPDATE headrace_outbox SET id = id * 1000"))
    stable = source.poll()
    found, after = [], 0
    while after < 4000:
        rows, _ = source.read(
            0, after=after, up_to=stable.up_to, most=5000, incarnation=stable.incarnation
        )
        assert rows, f"nothing comes after {after}"
        after = rows[-1].id
        found.append([row.id for row in rows])
    assert found == [[1000], [2000], [3000, 4000]]


def test_what_was_found_over_another_connection_is_not_relied_on(
    engine: Engine, source: Source
) -> None:
    fill(engine, [1])
    before = source.poll()
    source.close()
    with pytest.raises(Stale):
        source.read(0, after=0, up_to=1, most=9, incarnation=before.incarnation)
    after = source.poll()
    assert after.incarnation != before.incarnation
