"""Messages that wait for a confirmation: the real table in SQLite, the time is a number.

Chance decides by seed when a relay sends, when consumers handle, die and confirm, and when
confirmations are read, twice or late. A message is confirmed or given up, and it is sent again only
when its time is over.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from headrace import Outbox
from headrace.services.outbox import schema
from headrace.services.outbox.confirmations import Confirmations, Due
from headrace.services.outbox.engines import engine_for
from headrace.services.outbox.rows import Asked, NotARecord, Row, record_of
from headrace.services.outbox.store import COLUMNS, Store, row_of
from headrace.wire.contract import confirmations as contract

WITHIN_MS = 10_000
RESENDS = 2


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = engine_for(f"sqlite:///{tmp_path / 'shop.db'}")
    yield engine
    engine.dispose()


class World:
    """An outbox, a cluster that is a list, and a consumer that may be dead."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.chance = random.Random(seed)
        self.engine = engine
        self.store = Store(engine)
        self.table = Confirmations(self.store)
        self.outbox = Outbox(engine)
        self.outbox.create(shards=1)
        self.outbox_id = self.store.facts().outbox_id
        self.now_ms = 1_000_000
        self.position = 0
        self.consumer_alive = True
        self.cluster: list[str] = []  # message ids, as consumers see them
        self.handled_to = 0
        self.confirmations: list[str] = []
        self.sent_at: dict[str, list[int]] = {}
        self.confirmed_at_most: dict[str, int] = {}  # sendings when the confirmation was read
        self.effects: Counter[str] = Counter()
        self.written = 0

    def write(self) -> None:
        with self.engine.begin() as db:
            self.outbox.send(db, "transfers", "x", confirm_within="10s", id=f"m{self.written}")
        self.written += 1

    def relay(self) -> None:
        """As a shard does it: track, send, and then the position; it may die in between."""
        later = text(f"SELECT {COLUMNS} FROM headrace_outbox WHERE id > :id ORDER BY id LIMIT 3")
        with self.engine.connect() as db:
            rows = [row_of(row) for row in db.execute(later, {"id": self.position})]
        if not rows:
            return
        asked = [(row, record_of(row, self.outbox_id).confirmation) for row in rows]
        self.table.track(self.outbox_id, 0, [(row, one) for row, one in asked if one is not None])
        if self.chance.random() < 0.2:
            return  # it died before the commit; the next one does it again
        for _, one in asked:
            assert one is not None
            self.cluster.append(one.message_id)
            self.sent_at.setdefault(one.message_id, []).append(self.now_ms)
        self.position = rows[-1].id

    def report(self) -> None:
        if self.position:
            self.store.save_hint(0, self.position)
        self.table.start_clocks(self.now_ms)

    def consume(self) -> None:
        if self.handled_to < len(self.cluster) and self.consumer_alive:
            message_id = self.cluster[self.handled_to]
            self.effects[message_id] = 1  # once=: the second time nothing happens
            if self.chance.random() < 0.3:
                return  # it died between its commit and the confirmation: the record comes again
            self.handled_to += 1
            if self.chance.random() < 0.8:  # or the confirmation is lost on its way
                self.confirmations.append(message_id)

    def watch(self) -> None:
        """Every confirmation is read before anything is sent again."""
        self.table.confirmed(self.confirmations)
        for message_id in self.confirmations:
            self.confirmed_at_most.setdefault(message_id, len(self.sent_at[message_id]))
        if self.chance.random() < 0.5:
            self.confirmations.clear()  # else its place was not committed: they are read again
        for due in self.table.due(self.now_ms):
            assert self.now_ms >= self.sent_at[due.message_id][-1] + WITHIN_MS, "its time is over"
            if due.resends < RESENDS:
                assert self.table.resend(due)
                assert not self.table.resend(due), "another relay that wants the same comes late"
            else:
                self.table.give_up(due)

    def run(self, steps: int) -> None:
        doings = [self.write, self.relay, self.report, self.consume, self.consume, self.watch]
        for _ in range(steps):
            self.chance.choice(doings)()
            self.now_ms += self.chance.choice([0, 10, 1000, 4000])
            if self.chance.random() < 0.05:
                self.consumer_alive = not self.consumer_alive

    def until_idle(self) -> None:
        for _ in range(40 + 4 * self.written):
            self.relay()
            self.report()
            self.consume()
            self.watch()
            self.now_ms += 1000


@pytest.mark.parametrize("seed", range(8))
def test_each_message_is_confirmed_or_given_up_and_never_sent_again_early(
    engine: Engine, seed: int
) -> None:
    world = World(engine, seed)
    world.run(150)
    world.consumer_alive = seed % 2 == 0
    world.until_idle()
    assert world.table.any_open() is False
    unconfirmed = {each.row.message_id for each in world.table.unconfirmed(most=1000)}
    assert world.written > 5
    for number in range(world.written):
        name = f"m{number}"
        sendings = len(world.sent_at[name])
        if name in unconfirmed:
            assert sendings >= 1 + RESENDS
        else:
            assert world.effects[name] == 1
        if name in world.confirmed_at_most:
            # A resend that was written before the confirmation was read is still sent.
            assert sendings <= world.confirmed_at_most[name] + 1
    if not world.consumer_alive:
        assert unconfirmed, "what nobody confirmed is for a person"


def test_a_message_that_nobody_confirms_is_sent_again_then_waits_for_a_person(
    engine: Engine,
) -> None:
    world = World(engine, 1)
    world.chance.random = lambda: 0.9  # type: ignore[method-assign]
    world.consumer_alive = False
    world.write()
    world.until_idle()
    assert world.cluster == ["m0"] * (1 + RESENDS)
    [dead] = world.table.unconfirmed()
    assert (dead.state, dead.reason) == ("unconfirmed", "sent 3 times, never confirmed within 10s")
    assert world.table.retry([dead.row.id]) == 1
    world.relay()
    assert len(world.cluster) == 5 - 1
    world.table.confirmed(["m0"])
    assert world.table.counts() == (0, 0)


def test_the_time_begins_when_it_was_sent_not_when_it_was_written(engine: Engine) -> None:
    """With the cluster away for an hour nothing is due."""
    world = World(engine, 1)
    world.write()
    with engine.connect() as db:
        row = row_of(db.execute(text(f"SELECT {COLUMNS} FROM headrace_outbox")).one())
    asked = record_of(row, world.outbox_id).confirmation
    assert asked == Asked("m0", WITHIN_MS)
    world.table.track(world.outbox_id, 0, [(row, asked)])
    world.now_ms += 3_600_000
    world.table.start_clocks(world.now_ms)
    assert world.table.due(world.now_ms) == []
    world.store.save_hint(0, row.id)
    world.table.start_clocks(world.now_ms)
    assert world.table.due(world.now_ms + WITHIN_MS - 1) == []
    assert [due.message_id for due in world.table.due(world.now_ms + WITHIN_MS)] == ["m0"]


def test_a_parked_row_is_not_waited_for(engine: Engine) -> None:
    world = World(engine, 1)
    world.write()
    with engine.connect() as db:
        row = row_of(db.execute(text(f"SELECT {COLUMNS} FROM headrace_outbox")).one())
    world.table.track(world.outbox_id, 0, [(row, Asked("m0", WITHIN_MS))])
    world.store.park(0, [(row, "too large", False)])
    assert world.table.any_open() is False


def test_a_late_confirmation_ends_the_alarm(engine: Engine) -> None:
    world = World(engine, 1)
    world.write()
    world.chance.random = lambda: 0.9  # type: ignore[method-assign]
    world.consumer_alive = False
    world.until_idle()
    assert world.table.counts() == (0, 1)
    assert world.table.give_up(Due("m0", 1, "transfers", 2, 5)) is False
    world.table.confirmed(["m0", "m0", "nobody's"])
    assert world.table.counts() == (0, 0)


def row(headers: str, message_id: str | None = None) -> Row:
    return Row(7, "transfers", None, b"x", headers, message_id, 0)


def test_the_record_says_which_outbox_waits_and_the_row_for_how_long() -> None:
    record = record_of(row('{"headrace-confirm-within": "10m", "kind": "debit"}'), "box")
    assert record.confirmation == Asked("box/7", 600_000)
    assert record.headers == [
        ("kind", b"debit"), ("headrace-message-id", b"box/7"), ("headrace-confirm", b"box"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "message_id", "said"),
    [
        ('{"headrace-confirm-within": "soon"}', None, "not a duration"),
        ('{"headrace-confirm-within": "0s"}', None, "more than 0"),
        ('{"headrace-confirm-within": "5000w"}', None, "at most ten years"),
        ('{"headrace-confirm-within": "1s", "headrace-delay": "1s"}', None, "delayed"),
        ('{"headrace-confirm-within": "1s", "headrace-message-id": ""}', None, "needs an id"),
        ('{"headrace-confirm-within": "1s"}', "a\0b", "needs an id"),
        ('{"headrace-confirm-within": {"base64": "/w=="}}', None, "in an unknown way"),
    ],
)
def test_a_row_that_asks_in_a_wrong_way_is_no_record(
    headers: str, message_id: str | None, said: str
) -> None:
    with pytest.raises(NotARecord, match=said):
        record_of(row(headers, message_id), "box")


def test_a_confirmation_is_read_as_it_was_written_and_anything_else_is_none() -> None:
    value = contract.written(outbox_id="box", message_id="m\u00e9", group="savings")
    assert contract.understood(value) == ("box", "m\u00e9")
    for other in (None, b"", b"\xff", b"[]", b"{}", b'{"outbox": 1, "id": 2}', b"[" * 100_000):
        assert contract.understood(other) is None


def test_tables_of_the_older_version_are_brought_up_by_init(engine: Engine) -> None:
    Outbox(engine).create(shards=2)
    with engine.begin() as db:
        db.execute(text("DROP TABLE headrace_outbox_confirmations"))
        db.execute(text("UPDATE headrace_outbox_meta SET value = '1' WHERE name = 'version'"))
        db.execute(text("ALTER TABLE headrace_outbox_shards DROP COLUMN rows_per_s"))
    with pytest.raises(schema.OutboxError, match="are of version 1.*headrace outbox init"):
        Store(engine).facts()
    Outbox(engine).create()
    assert Store(engine).facts().shards == 2
    assert Confirmations(Store(engine)).counts() == (0, 0)
