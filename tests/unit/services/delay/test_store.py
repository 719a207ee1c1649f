"""The store on disk: what outlives a restart, what does not, and what people find in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.services.delay.timeline import store as stores
from headrace.services.delay.timeline.limits import DelayLimits
from headrace.services.delay.timeline.pending import Changes
from headrace.services.delay.timeline.pending_search import SCANNED_PER_PAGE, PendingRow
from headrace.services.delay.timeline.progress import IntakeProgress
from headrace.services.delay.timeline.rows import Row, row_of
from headrace.services.delay.timeline.store import RocksPending, Store, StoreInUse
from headrace.services.delay.timeline.timeline import Timeline, resume
from headrace.wire.contract import headers as names
from headrace.wire.contract.delay_instructions import Schedule, read_instruction

APPENDED_MS = 1_800_000_000_000


def row(
    offset: int, delay_ms: int, *, id_: str | None = None, key: bytes = b"k", value: bytes = b"v"
) -> Row:
    given: list[tuple[str, bytes | None]] = [(names.DELAY, b"%d" % delay_ms), ("a", None)]
    if id_ is not None:
        given.append((names.ID, id_.encode()))
    record = offset, APPENDED_MS, key, value, given
    schedule = read_instruction(record)
    assert isinstance(schedule, Schedule)
    return row_of(record, schedule)


def put(pending: RocksPending, *rows: Row, watermark: tuple[int, int] | None = None) -> None:
    ids = {one[2][5]: (one[0], one[1]) for one in rows if one[2][5] is not None}
    position = max([pending.position, *(one[1] + 1 for one in rows)])
    at = watermark or pending.watermark
    count_by = len(rows) - len(pending.scan(pending.watermark, at[0], 10**6)[0])
    pending.apply(Changes(position, at, 0, [], count_by, puts=list(rows), ids=dict(ids)))


def found(store: Store, topic: str = "orders.delay", **wanted: object) -> list[int]:
    rows, after = store.find(topic, **wanted)  # type: ignore[arg-type]
    assert after is None
    return [one.offset for one in rows]


def test_what_is_applied_is_there_after_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.made_anew
    pending = store.partition("orders.delay", 0, "cluster/topic")
    put(pending, row(0, 500), row(1, 100, id_="a"))
    store.close()

    store = Store(tmp_path)
    assert not store.made_anew
    pending = store.partition("orders.delay", 0, "cluster/topic")
    assert (pending.position, pending.count) == (2, 2)
    assert pending.scan((-1, -1), 2**62, 10) == ([row(1, 100, id_="a"), row(0, 500)], True)
    assert pending.find_id("a") == (APPENDED_MS + 100, 1)
    store.close()


def test_rows_of_another_topic_of_the_same_name_are_not_taken_for_ours(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put(store.partition("orders.delay", 0, "one"), row(0, 500, id_="a"))
    put(store.partition("orders.delay", 1, "one"), row(0, 700))
    anew = store.partition("orders.delay", 0, "two")
    assert (anew.position, anew.count, anew.find_id("a")) == (0, 0, None)
    assert anew.scan((-1, -1), 2**62, 10) == ([], True)
    assert store.partition("orders.delay", 1, "one").count == 1, "its neighbour keeps what it has"
    store.forget("orders.delay", 1)
    assert store.partition("orders.delay", 1, "one").count == 0
    store.close()


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(StoreInUse, match=str(tmp_path)):
        Store(tmp_path)
    store.close()


def test_a_store_that_cannot_be_read_is_made_anew(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put(store.partition("orders.delay", 0, "one"), row(0, 500))
    store.close()
    for file in tmp_path.glob("MANIFEST-*"):
        file.write_bytes(b"not what it was")
    store = Store(tmp_path)
    assert store.made_anew
    assert store.partition("orders.delay", 0, "one").position == 0
    store.close()


def test_a_damaged_block_is_an_error_and_not_the_end_of_the_rows(tmp_path: Path) -> None:
    """Taken for the end, the rows behind it would never be delivered."""
    store = Store(tmp_path)
    pending = store.partition("orders.delay", 0, "one")
    noise = b"".join(bytes([n * 7 % 251]) for n in range(5_000))
    put(pending, *(row(n, n, value=noise[n : n + 2_000]) for n in range(2_000)))
    store.db.flush()
    table = max(tmp_path.glob("*.sst"), key=lambda file: file.stat().st_size)
    with table.open("r+b") as file:
        file.seek(table.stat().st_size // 2)
        file.write(b"\xff" * 500)
    with pytest.raises(Exception, match="orruption"):
        pending.scan((-1, -1), 2**62, 10_000)
    store.close()


def test_done_rows_leave_the_disk_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "DELETE_DONE_ROWS_AFTER", 10)
    store = Store(tmp_path)
    pending = store.partition("orders.delay", 0, "one")
    put(pending, *(row(n, n) for n in range(20)))
    put(pending, watermark=(APPENDED_MS + 14, 14))
    assert pending.count == 5
    assert [one[1] for one in pending.scan((-1, -1), 2**62, 100)[0]] == [15, 16, 17, 18, 19]
    store.close()


def test_delivered_ids_are_forgotten_after_a_day(tmp_path: Path) -> None:
    store = Store(tmp_path)
    timeline = a_timeline(store)
    timeline.take([(0, APPENDED_MS, None, b"", [(names.ID, b"a")])], APPENDED_MS)
    transact(timeline, APPENDED_MS)
    later_ms = APPENDED_MS + stores.KEEP_IDS_MS
    timeline.take([(1, later_ms, None, b"", None)], later_ms)
    transact(timeline, later_ms)
    assert timeline.pending.find_id("a") is not None
    later_ms += 3_600_000
    timeline.take([(2, later_ms, None, b"", None)], later_ms)
    transact(timeline, later_ms)
    assert timeline.pending.find_id("a") is None
    store.close()


def a_timeline(store: Store) -> Timeline:
    pending = store.partition("orders.delay", 0, "one")
    read_from = resume(pending, IntakeProgress(), 0).read_from
    return Timeline(
        "orders.delay",
        0,
        IntakeProgress(),
        pending,
        read_from=read_from,
        ready_at=0,
        limits=DelayLimits(),
    )


def transact(timeline: Timeline, now_ms: int) -> None:
    plan = timeline.plan(now_ms)
    assert plan is not None
    timeline.committed(plan)


# ---- what people ask ----------------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path: Path) -> Store:
    """Two partitions of orders, and another topic."""
    store = Store(tmp_path)
    zero = store.partition("orders.delay", 0, "one")
    one = store.partition("orders.delay", 1, "one")
    put(zero, row(10, 100, id_="a", key=b"ann"), row(11, 300), row(12, 200, key=b"bob"))
    put(one, row(20, 200, key=b"ann"), row(21, 100), row(22, 900, id_="b"))
    put(store.partition("mails.delay", 0, "one"), row(30, 50))
    return store


def test_all_by_due_time_over_partitions(shop: Store) -> None:
    assert found(shop) == [10, 21, 12, 20, 11, 22]
    assert found(shop, partition=1) == [21, 20, 22]
    assert found(shop, topic="mails.delay") == [30]
    assert found(shop, topic="unknown") == []
    shop.close()


def test_by_id_key_and_time(shop: Store) -> None:
    assert found(shop, id="a") == [10]
    assert found(shop, id="a", partition=1) == []
    assert found(shop, id="nobody") == []
    assert found(shop, key=b"ann") == [10, 20]
    assert found(shop, from_ms=APPENDED_MS + 200, to_ms=APPENDED_MS + 300) == [12, 20]
    assert found(shop, id="b", to_ms=APPENDED_MS + 900) == []
    shop.close()


def test_page_by_page_nothing_is_missed_or_doubled(shop: Store) -> None:
    offsets, after = [], None
    while True:
        rows, after = shop.find("orders.delay", after=after, limit=2)
        offsets += [one.offset for one in rows]
        if after is None:
            break
    assert offsets == [10, 21, 12, 20, 11, 22]
    with pytest.raises(ValueError, match="not a cursor"):
        shop.find("orders.delay", after="x")
    with pytest.raises(ValueError, match="1 to"):
        shop.find("orders.delay", limit=0)
    shop.close()


def test_a_page_looks_at_so_many_rows_and_no_more(tmp_path: Path) -> None:
    store = Store(tmp_path)
    many = [row(n, n) for n in range(SCANNED_PER_PAGE + 5)]
    put(store.partition("orders.delay", 0, "one"), *many, row(10**6, 10**6, key=b"last"))
    rows, after = store.find("orders.delay", key=b"last")
    assert rows == []
    assert after is not None
    rows, after = store.find("orders.delay", key=b"last", after=after)
    assert [one.offset for one in rows] == [10**6]
    store.close()


def test_a_row_tells_all_of_its_record(shop: Store) -> None:
    rows, _ = shop.find("orders.delay", id="a")
    assert rows == [
        PendingRow(
            topic="orders.delay",
            partition=0,
            offset=10,
            due_ms=APPENDED_MS + 100,
            appended_ms=APPENDED_MS,
            id="a",
            key=b"ann",
            value=b"v",
            headers=[("a", None)],
            target_partition=0,
            cron=None,
        )
    ]
    shop.close()


def test_counts(shop: Store) -> None:
    assert shop.count_pending() == 7
    assert shop.count_pending("orders.delay") == 6
    assert shop.count_due_before(APPENDED_MS + 200) == 3
    assert shop.count_due_before(APPENDED_MS + 201, "orders.delay") == 4
    assert shop.count_due_before(2**60, at_most=5) == 5
    shop.release("mails.delay", 0)
    assert shop.count_pending() == 6
    shop.close()
