"""A relay between SQLite and a real broker: what arrives, what is parked, when it must stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from headrace import Admin, Outbox
from headrace.client.admin.acls import Acl, Acls
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.lookup.record_reader import Record, RecordReader
from headrace.client.once.outcome import NothingWritten, Unknown
from headrace.services.outbox import positions, sender
from headrace.services.outbox.engines import engine_for
from headrace.services.outbox.relay import Relay, Settings
from headrace.services.outbox.resumption import resume
from headrace.services.outbox.rows import RESERVED_TOPICS, OutboxRecord
from headrace.services.outbox.schema import OutboxError
from headrace.services.outbox.sender import Sender, TopicsRefuse
from headrace.services.outbox.shard import Position
from headrace.services.outbox.store import Store
from headrace.testing import Broker
from tests.patience import until

pytestmark = pytest.mark.integration


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = engine_for(f"sqlite:///{tmp_path / 'shop.db'}")
    yield engine
    engine.dispose()


@pytest.fixture
def outbox(engine: Engine) -> Outbox:
    outbox = Outbox(engine)
    outbox.create(shards=2)
    return outbox


@pytest.fixture
def at(headrace_broker: Broker) -> ClientSettings:
    Admin(headrace_broker.bootstrap).topics.create("transfers", partitions=2)
    return ClientSettings({"bootstrap.servers": headrace_broker.bootstrap})


@contextmanager
def running(engine: Engine, at: ClientSettings, **settings: object) -> Iterator[Relay]:
    relay = Relay(engine, at, Settings(lease_ms=2000, **settings))  # type: ignore[arg-type]
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        yield relay
    finally:
        relay.stop()
        thread.join()


def records(at: ClientSettings, topic: str = "transfers") -> list[Record]:
    settings = at.settings | {"isolation.level": "read_committed"}
    reader = RecordReader(ClientSettings(settings), topic)
    try:
        return list(reader.records())
    finally:
        reader.close()


def values(at: ClientSettings, topic: str = "transfers") -> list[str]:
    return sorted((record.value or b"").decode() for record in records(at, topic))


def test_what_is_committed_arrives_with_its_key_headers_and_id(
    engine: Engine, outbox: Outbox, at: ClientSettings
) -> None:
    with running(engine, at) as relay:
        with engine.begin() as db:
            outbox.send(db, "transfers", {"amount": 100}, key="a", headers={"kind": "debit"})
            outbox.send(db, "transfers", None, key="a", id="t-2")
        until(lambda: len(records(at)) == 2)
    first, second = records(at)
    assert (first.key, first.value) == (b"a", b'{"amount":100}')
    assert first.header("kind") == b"debit"
    assert first.header("headrace-message-id") == f"{relay.facts.outbox_id}/1".encode()
    assert (second.value, second.header("headrace-message-id")) == (None, b"t-2")


def test_rows_of_before_the_start_and_of_after_a_restart_arrive_once(
    engine: Engine, outbox: Outbox, at: ClientSettings
) -> None:
    for turn in range(3):
        with engine.begin() as db:
            for number in range(20):
                outbox.send(db, "transfers", f"{turn}/{number:02}", key=f"k{number % 5}")
        with running(engine, at):
            until(lambda so_far=(turn + 1) * 20: len(records(at)) >= so_far)  # type: ignore[misc]
    assert values(at) == [f"{turn}/{number:02}" for turn in range(3) for number in range(20)]


def test_sent_rows_are_removed_but_for_the_last_and_kept_if_wanted(
    engine: Engine, outbox: Outbox, at: ClientSettings
) -> None:
    def count() -> int:
        with engine.connect() as db:
            return int(db.execute(text("SELECT count(*) FROM headrace_outbox")).scalar_one())

    with running(engine, at, keep_ms=None):
        with engine.begin() as db:
            for number in range(50):
                outbox.send(db, "transfers", str(number), key=f"k{number}")
        until(lambda: len(records(at)) == 50)
    assert count() == 50
    with running(engine, at):
        until(lambda: count() == 2)  # the last of each shard proves its position


def test_relays_share_the_shards_and_one_that_leaves_gives_them_back(
    engine: Engine, outbox: Outbox, at: ClientSettings
) -> None:
    with running(engine, at) as first:
        until(lambda: len(first.workers) == 2)
        with running(engine, at) as second:
            until(lambda: len(first.workers) == len(second.workers) == 1)
        until(lambda: len(first.workers) == 2)
        with engine.begin() as db:
            outbox.send(db, "transfers", "x")
        until(lambda: values(at) == ["x"])


def test_a_dead_relay_whose_lease_seems_to_last_for_ever_is_replaced(
    engine: Engine, outbox: Outbox, at: ClientSettings
) -> None:
    """The database's clock was set back after it died."""
    far = 99_999_999_999_999
    with engine.begin() as db:
        outbox.send(db, "transfers", "1", key="a")
        db.execute(text("INSERT INTO headrace_outbox_relays VALUES ('dead', :far)"), {"far": far})
        leased = "UPDATE headrace_outbox_shards SET owner = 'dead', lease_until = :far"
        db.execute(text(leased), {"far": far})
    relay = Relay(engine, at, Settings(lease_ms=300))
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        until(lambda: values(at) == ["1"])
    finally:
        relay.stop()
        thread.join()


def test_a_program_relays_beside_its_own_work(engine: Engine, at: ClientSettings) -> None:
    outbox = Outbox(engine, at.bootstrap)
    with pytest.raises(OutboxError, match="headrace outbox init"), outbox.relaying():
        pass
    outbox.create()
    with outbox.relaying() as relay, engine.begin() as db:
        outbox.send(db, "transfers", "1")
    with outbox.relaying():
        until(lambda: values(at) == ["1"])
    assert relay.workers == {}
    with pytest.raises(OutboxError, match="needs an engine"), Outbox().relaying():
        pass


def test_a_relay_beside_a_program_that_gives_up_is_not_silent(
    engine: Engine,
    at: ClientSettings,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def give_up(relay: Relay) -> None:
        raise ClientError("the cluster does not know this user")

    outbox = Outbox(engine, at.bootstrap)
    outbox.create()
    monkeypatch.setattr(Relay, "run", give_up)
    with pytest.raises(OutboxError, match="does not know this user"), outbox.relaying():
        pass
    assert "rows wait" in caplog.text


# ---- rows that cannot be sent


@pytest.fixture
def poisoned(engine: Engine, outbox: Outbox, at: ClientSettings) -> Engine:
    """Between good rows: a broken header, one too large, one without a key for compaction."""
    topics = Admin(at).topics
    topics.create("small", partitions=1, settings={"max.message.bytes": "2000"})
    topics.create("compacted", partitions=1, settings={"cleanup.policy": "compact"})
    broken = "INSERT INTO headrace_outbox (shard, topic, message_key, payload, headers)"
    with engine.begin() as db:
        outbox.send(db, "transfers", "1", key="a")
        db.execute(text(f"{broken} VALUES (0, 'transfers', x'62', x'32', 'no json')"))
        outbox.send(db, "small", "x" * 3000, key="account-1")
        outbox.send(db, "compacted", "no key")
        outbox.send(db, "transfers", "3", key="account-1")
        for number in range(4, 10):
            outbox.send(db, "transfers", str(number), key=f"k{number}")
    return engine


GOOD = ["1", *"456789"]


def test_poison_is_parked_with_its_reason_and_others_go_on(
    poisoned: Engine, at: ClientSettings
) -> None:
    with running(poisoned, at):
        until(lambda: values(at) == sorted([*GOOD, "3"]))
        store = Store(poisoned)
        until(lambda: len(store.parked()) == 3)
    reasons = {each.row.topic: each.reason for each in store.parked()}
    assert "headers are not JSON" in reasons["transfers"]
    assert "too large" in reasons["small"]
    assert "key" in reasons["compacted"]


def test_later_rows_of_a_poisoned_key_wait_if_wanted_and_follow_in_order(
    poisoned: Engine, at: ClientSettings
) -> None:
    store = Store(poisoned)
    with running(poisoned, at, blocks=True):
        until(lambda: values(at) == GOOD)
        until(lambda: len(store.parked()) == 4)
        states = {each.row.key: each.state for each in store.parked() if each.row.topic != "small"}
        assert states[b"account-1"] == "waiting"
        Admin(at).topics.change_settings("small", to={"max.message.bytes": "10000"})
        [large] = [each.row.id for each in store.parked() if each.row.topic == "small"]
        assert store.retry([large]) == 1
        until(lambda: values(at) == sorted([*GOOD, "3"]))
        assert len(records(at, "small")) == 1
        until(lambda: len(store.parked()) == 2)


def test_a_row_that_is_sent_again_in_vain_is_parked_again(
    poisoned: Engine, at: ClientSettings
) -> None:
    store = Store(poisoned)
    with running(poisoned, at):
        until(lambda: len(store.parked()) == 3)
        ids = [each.row.id for each in store.parked()]
        store.retry(ids)
        until(lambda: [each.state for each in store.parked()] == ["poison"] * 3)
    assert records(at, "small") == []


def test_a_topic_that_is_missing_is_waited_for_then_its_rows_are_parked(
    engine: Engine, outbox: Outbox, at: ClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine.begin() as db:
        outbox.send(db, "nowhere", "1", key="a")
        outbox.send(db, "transfers", "2", key="a")
    store = Store(engine)
    headrace_makes_topics = {"allow.auto.create.topics": "false"}
    quiet = ClientSettings(at.settings | headrace_makes_topics)
    with running(engine, quiet) as relay:
        until(lambda: any(each.problem for each in relay.workers.values()))
        assert records(at) == []
        monkeypatch.setattr(sender, "REFUSED_TOPIC_S", 0.0)
        until(lambda: values(at) == ["2"])
    [parked] = store.parked()
    assert "There is no topic nowhere" in parked.reason


def test_topics_that_are_missing_are_waited_for_together(
    at: ClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, each would hold the shard up for half a minute."""
    quiet = ClientSettings(at.settings | {"allow.auto.create.topics": "false"})
    positions.ensure(quiet)
    one = Sender(quiet, "outbox", 0)
    one.open()
    records = [OutboxRecord(t, None, b"x", [], 0) for t in ("x", "transfers", "y", "z")]
    waits = one.send(records, Position(4))
    assert isinstance(waits, TopicsRefuse) and not waits.for_long
    assert "There is no topic x" in waits.why
    monkeypatch.setattr(sender, "REFUSED_TOPIC_S", 0.0)
    refuse = one.send(records, Position(4))
    assert isinstance(refuse, TopicsRefuse)
    assert refuse.for_long.keys() == {"x", "y", "z"}
    one.close()
    assert values(at) == []


def test_a_topic_that_may_not_be_written_to_holds_up_nobody_else(
    engine: Engine, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster does not say which topic it was, and the producer is lost by it."""
    monkeypatch.setattr(sender, "REFUSED_TOPIC_S", 0.0)
    rights = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Broker(settings=rights) as broker:
        at = ClientSettings({"bootstrap.servers": broker.bootstrap})
        for topic in ("closed", "transfers"):
            Admin(at).topics.create(topic, partitions=2)
        Acls(at).add([allowed("read", topic="closed")])
        with engine.begin() as db:
            for number in range(5):
                outbox.send(db, "transfers", str(number), key="a")
                outbox.send(db, "closed", str(number), key="a")
        with running(engine, at):
            until(lambda: values(at) == list("01234"))
            until(lambda: len(Store(engine).parked()) == 5)
        reasons = {each.reason for each in Store(engine).parked()}
        assert all("may not do that with the topic closed" in reason for reason in reasons)
        Acls(at).add([allowed("write", topic="closed")])
        Store(engine).retry([each.row.id for each in Store(engine).parked()])
        with running(engine, at):
            until(lambda: values(at, "closed") == list("01234"))


def allowed(operation: str, *, topic: str) -> Acl:
    return Acl("topic", topic, "literal", "User:*", "*", operation, "allow")


def test_rows_for_internal_topics_are_parked(
    engine: Engine, outbox: Outbox, at: ClientSettings
) -> None:
    """One for the topic of positions could say that rows were sent that were not."""
    assert positions.TOPIC in RESERVED_TOPICS
    with engine.begin() as db:
        for topic in sorted(RESERVED_TOPICS):
            with pytest.raises(OutboxError, match="internal topic"):
                outbox.send(db, topic, "1")
            row = text("INSERT INTO headrace_outbox (topic, payload) VALUES (:topic, '1')")
            db.execute(row, {"topic": topic})
        outbox.send(db, "transfers", "2", key="a")
    with running(engine, at):
        until(lambda: values(at) == ["2"])
        until(lambda: len(Store(engine).parked()) == len(RESERVED_TOPICS))


def test_a_parked_row_is_told_and_counted_once(
    engine: Engine, outbox: Outbox, at: ClientSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if it is parked again and again because what goes with it fails."""
    bad = "INSERT INTO headrace_outbox (topic, headers) VALUES ('transfers', 'no JSON')"
    with engine.begin() as db:
        db.execute(text(bad))
        outbox.send(db, "small", "x" * 2000, key="b")
        outbox.send(db, "small", "y" * 2000, key="b")
    Admin(at).topics.create("small", partitions=1, settings={"max.message.bytes": "1000"})
    with running(engine, at) as relay:
        until(lambda: len(Store(engine).parked()) == 3)
        until(lambda: relay.metrics().count("headrace_outbox_rows_parked_total 3"))
    said = [record.message for record in caplog.records if "is parked" in record.message]
    assert len(said) == 3, said


# ---- positions


def test_a_lost_topic_of_positions_stops_the_relay_with_a_sentence(
    engine: Engine, outbox: Outbox, at: ClientSettings
) -> None:
    with running(engine, at), engine.begin() as db:
        outbox.send(db, "transfers", "1", key="a")
    with running(engine, at):
        until(lambda: values(at) == ["1"])
        # A shard that has sent nothing saves where it begins, maybe after the other one has sent.
        until(lambda: all(Store(engine).hint(number) is not None for number in range(2)))
    Admin(at).topics.delete(positions.TOPIC)
    with engine.begin() as db:
        outbox.send(db, "transfers", "2", key="a")
    with running(engine, at) as relay:
        until(lambda: sum(1 for each in relay.workers.values() if each.halted) == 2)
        until(lambda: "headrace_outbox_shards_in_trouble 2" in relay.metrics())
    assert values(at) == ["1"]
    store = Store(engine)
    for number in range(2):
        resume(store, at, number, after=store.hint(number) or 0)
    with running(engine, at):
        until(lambda: values(at) == ["1", "2"])


def test_a_position_that_is_refused_is_not_the_fault_of_a_row(
    engine: Engine, outbox: Outbox, at: ClientSettings
) -> None:
    def send(*values: str) -> None:
        with engine.begin() as db:
            for value in values:
                outbox.send(db, "transfers", value, key="a")

    with running(engine, at) as relay:
        send("0")
        until(lambda: values(at) == ["0"])
        Admin(at).topics.change_settings(positions.TOPIC, to={"max.message.bytes": "80"})
        send(*"12345678")
        until(lambda: any(positions.TOPIC in (w.problem or "") for w in relay.workers.values()))
        Admin(at).topics.change_settings(positions.TOPIC, to={"max.message.bytes": "1000000"})
        until(lambda: values(at) == list("012345678"))
    assert Store(engine).parked() == []


def test_a_topic_of_positions_that_the_cluster_made_by_itself_is_compacted(
    at: ClientSettings,
) -> None:
    """A producer that writes to a topic which was deleted makes it anew, and by the cluster's
    defaults positions would be deleted after a week."""
    topics = Admin(at).topics
    topics.create(positions.TOPIC, partitions=1)
    positions.ensure(at)
    assert topics.settings_of(positions.TOPIC)["cleanup.policy"].value == "compact"
    topics.change_settings(positions.TOPIC, to={"segment.bytes": "9000000"})
    positions.ensure(at)
    assert topics.settings_of(positions.TOPIC)["segment.bytes"].value == "9000000"


def test_a_restored_database_stops_the_relay_with_a_sentence(
    engine: Engine, outbox: Outbox, at: ClientSettings
) -> None:
    with engine.begin() as db:
        outbox.send(db, "transfers", "1", key="a")
    with running(engine, at):
        until(lambda: values(at) == ["1"])
    with engine.begin() as db:  # the backup has another row of this id
        db.execute(text("UPDATE headrace_outbox SET payload = x'39'"))
    with running(engine, at) as relay:
        until(lambda: any(each.halted for each in relay.workers.values()))
        [said] = [each.halted for each in relay.workers.values() if each.halted]
    assert said is not None and "restored from a backup" in said
    with pytest.raises(OutboxError, match="has no row 99"):
        resume(Store(engine), at, 0, after=99)


def test_a_producer_that_was_fenced_can_commit_nothing(
    engine: Engine, outbox: Outbox, at: ClientSettings
) -> None:
    """A relay that stood still past its lease, seen from the cluster."""
    positions.ensure(at)
    old = sender.Sender(at, "box", 0)
    assert old.open() is None
    old.send([], Position(1))
    new = sender.Sender(at, "box", 0)
    assert new.open() == Position(1)
    assert isinstance(fenced := old.send([], Position(2)), Unknown | NothingWritten)
    assert fenced.is_spent
    old.close()
    new.close()
    assert positions.read(at, positions.key_of("box", 0)) == Position(1)


def test_an_open_transaction_of_another_shard_does_not_hide_a_position(at: ClientSettings) -> None:
    """Both positions lie in one partition, and the other's transaction began before."""
    positions.ensure(at)
    keys = [shard for shard in range(99) if _same_partition(shard)]
    other, mine = sender.Sender(at, "box", keys[0]), sender.Sender(at, "box", keys[1])
    other.open()
    mine.open()
    writer = other._writer.calls
    writer.begin()
    place = positions.partition_of(positions.key_of("box", keys[0]), positions.PARTITIONS)
    writer.send(positions.TOPIC, place, b"other", b"{}", None, 0)
    writer.flush(60)
    mine.send([], Position(5))
    found = []
    reader = threading.Thread(
        target=lambda: found.append(positions.read(at, positions.key_of("box", keys[1])))
    )
    reader.start()
    reader.join(1.0)
    assert found == []  # it waits, it does not say "none"
    writer.abort(60)
    reader.join(60)
    assert found == [Position(5)]
    other.close()
    mine.close()


def _same_partition(shard: int) -> bool:
    return positions.partition_of(positions.key_of("box", shard), positions.PARTITIONS) == 0
