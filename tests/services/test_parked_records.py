"""Parked records on real databases: each once, whoever else parks there."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine

from headrace.client.records import Record
from headrace.services.backlog.parked import Owner, ParkingRun
from headrace.services.backlog.parked_rows import ParkedRows, metadata
from tests.services.servers import Mariadb, Postgres, mariadb, postgres

__all__ = ["mariadb", "postgres"]


@pytest.fixture(params=["postgres", "mariadb"])
def url(request: pytest.FixtureRequest) -> str:
    server: Postgres | Mariadb = request.getfixturevalue(request.param)
    engine = create_engine(server.url)
    metadata.drop_all(engine)
    engine.dispose()
    return server.url


def record(offset: int, value: bytes | None = b"v") -> Record:
    headers = [("a", b"\x00\xff"), ("\u2603'; --", None)]
    return Record("orders", 0, offset, 1_790_000_000_000, "create", b"\x00k", value, headers)


def store_of(url: str, group: str) -> ParkedRows:
    store = ParkedRows(create_engine(url), Owner(group, "orders", "topic-id"))
    store.prepare()
    return store


def park(store: ParkedRows, name: str, records: list[Record], *, at_ms: int = 1) -> None:
    spans = {0: (records[0].offset, records[-1].offset + 1)}
    run = ParkingRun(name, spans, moved=False, at_ms=at_ms)
    store.begin(run)
    store.put(records)
    store.finish(run)
    store.note_moved(name, moved=True)


def test_groups_whose_names_a_database_takes_for_the_same_are_different(url: str) -> None:
    names = ["billing", "Billing", "billing ", "bílling", "g" * 300, "G" * 300]
    for number, group in enumerate(names):
        park(store_of(url, group), "one", [record(5, b"%d" % number)])
    for number, group in enumerate(names):
        [found] = store_of(url, group).waiting({0: 0})
        assert found.value == b"%d" % number


def test_what_is_parked_again_is_there_once_and_waits_again(url: str) -> None:
    store = store_of(url, "billing")
    park(store, "one", [record(offset) for offset in range(10)])
    store.mark_brought_back([(0, offset) for offset in range(10)])
    assert list(store.waiting({0: 0})) == []
    park(store, "two", [record(offset) for offset in range(4, 12)], at_ms=2)
    assert [found.offset for found in store.waiting({0: 0})] == list(range(4, 12))
    [span] = store.spans()
    assert (span.rows, span.waiting) == (12, 8)
    store.note_moved("two", moved=False)  # undone
    assert [found.offset for found in store.waiting({0: 0})] == list(range(4, 10))


def test_bytes_come_back_as_they_were(url: str) -> None:
    store = store_of(url, "billing")
    large = record(3, b"\xff" * 900_000)
    park(store, "one", [record(1, None), record(2, b""), large])
    found = list(store.waiting({0: 0}))
    assert [each.value for each in found] == [None, b"", large.value]
    assert found[0].headers == large.headers and found[0].key == b"\x00k"
