"""A position whose transaction was decided, but whose marker never reached the positions' topic.

As Apache Kafka 4.3.1 was seen to leave one behind when it was killed. Here it is written by hand
after its transaction has ended, which a broker takes that does not verify transactions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine

from headrace import Admin, Outbox
from headrace.client.admin.transactional_ids import TransactionalIds
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.lookup.raw_log import RawLog
from headrace.client.lookup.record_reader import RecordReader
from headrace.client.wire import Wire
from headrace.services.outbox import positions
from headrace.services.outbox.engines import engine_for
from headrace.services.outbox.relay import Relay, Settings
from headrace.services.outbox.rows import record_of
from headrace.services.outbox.sender import Sender
from headrace.services.outbox.shard import Position
from headrace.services.outbox.store import Store
from headrace.testing import Broker
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import produce
from headrace.wire.protocol.record_batch import Record, build
from tests.patience import until

pytestmark = pytest.mark.integration

TOPIC = "transfers"
SHARD = 0
LAST_WITHOUT_ADDING = 11  # from version 12 on, the coordinator learns of the partition


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "HELD_BACK_S", 0.5)


@pytest.fixture(params=["CreateTime", "LogAppendTime"])
def at(request: pytest.FixtureRequest) -> Iterator[ClientSettings]:
    with Broker(settings={"transaction.partition.verification.enable": "false"}) as broker:
        settings = {"message.timestamp.type": request.param}
        Admin(broker.bootstrap).topics.create(TOPIC, partitions=2, settings=settings)
        yield ClientSettings({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = engine_for(f"sqlite:///{tmp_path / 'shop.db'}")
    Outbox(engine).create(shards=1)
    yield engine
    engine.dispose()


def write(engine: Engine, *texts: str, id: str | None = None) -> None:
    with engine.begin() as db:
        for text in texts:
            Outbox(engine).send(db, TOPIC, text, key="account-1", id=id)


@contextmanager
def relaying(engine: Engine, at: ClientSettings) -> Iterator[None]:
    relay = Relay(engine, at, Settings(lease_ms=2000))
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        yield
    finally:
        relay.stop()
        thread.join()


def texts(at: ClientSettings) -> list[str]:
    """As readers of committed records see them, in the order of the one key."""
    reader = RecordReader(
        ClientSettings(at.settings | {"isolation.level": "read_committed"}), TOPIC
    )
    try:
        return [(record.value or b"").decode().strip('"') for record in reader.records()]
    finally:
        reader.close()


def relay_all(engine: Engine, at: ClientSettings, count: int) -> None:
    with relaying(engine, at):
        until(lambda: len(texts(at)) >= count)


def leave_position(engine: Engine, at: ClientSettings, *, decided: str) -> TransactionalIds:
    """A transaction of the next rows, decided so; its position is left without a marker."""
    store = Store(engine)
    outbox_id = store.facts().outbox_id
    key = positions.key_of(outbox_id, SHARD)
    sender = Sender(at, outbox_id, SHARD)
    before = sender.open()
    assert before is not None
    rows = store.rows(SHARD, before.row_id, 1 << 60, ())
    writer = sender._writer.calls
    writer.begin()
    for row in rows:
        record = record_of(row, outbox_id)
        headers, at_ms = record.headers, record.timestamp_ms
        writer.send(record.topic, -1, record.key, record.value, headers, at_ms)
    writer.flush(60)
    writer.commit(60) if decided == "commit" else writer.abort(60)
    ids = TransactionalIds(at)
    until(lambda: ids.describe(sender.transactional_id).state.startswith("Complete"))
    known = ids.describe(sender.transactional_id)
    position = positions.written(Position(rows[-1].id, rows[-1].checksum))
    batch = build(
        [Record(key, position, timestamp=1)],
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    partition = positions.partition_of(key, positions.PARTITIONS)
    host, port = at.bootstrap.split(":")
    with Wire(at, (host, int(port))) as wire:
        data = produce.TopicProduceData(
            positions.TOPIC, partition_data=[produce.PartitionProduceData(partition, batch)]
        )
        request = produce.ProduceRequest(sender.transactional_id, -1, 10_000, [data])
        answer = wire._ask(produce, LAST_WITHOUT_ADDING, request)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    sender.close()
    assert ids.open_in(positions.TOPIC, partition), "it hangs"
    return ids


@pytest.mark.parametrize("decided", ["commit", "abort"])
def test_it_is_ended_as_it_was_decided(
    engine: Engine, at: ClientSettings, caplog: pytest.LogCaptureFixture, decided: str
) -> None:
    write(engine, "one")
    relay_all(engine, at, 1)
    write(engine, "two", "three")
    leave_position(engine, at, decided=decided)
    write(engine, "four")
    relay_all(engine, at, 4)
    assert texts(at) == ["one", "two", "three", "four"]
    said = [each.getMessage() for each in caplog.records]
    [told] = [each for each in said if "without a marker" in each]
    assert ("committed now" if decided == "commit" else "aborted now") in told


@pytest.mark.parametrize("at", ["CreateTime"], indirect=True)
def test_the_same_message_sent_before_is_no_evidence(engine: Engine, at: ClientSettings) -> None:
    """A message id may be used again: the time of the row tells the two records apart."""
    write(engine, "one", id="message-1")
    relay_all(engine, at, 1)
    write(engine, "one", id="message-1")
    leave_position(engine, at, decided="abort")
    relay_all(engine, at, 2)
    assert texts(at) == ["one", "one"]


def test_nothing_is_ended_where_the_records_cannot_be_read(
    engine: Engine, at: ClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(engine, "one")
    relay_all(engine, at, 1)
    write(engine, "two")
    ids = leave_position(engine, at, decided="commit")

    def unread(*_: object) -> Iterator[object]:
        raise ClientError("There is more to read than is looked at.")

    monkeypatch.setattr(RawLog, "batches", unread)
    store = Store(engine)
    outbox_id = store.facts().outbox_id
    sender = Sender(at, outbox_id, SHARD, rows_of=lambda after, position: [])
    with pytest.raises(ClientError, match="cannot be ended: There is more to read"):
        sender.open()
    sender.close()
    key = positions.key_of(outbox_id, SHARD)
    assert ids.open_in(positions.TOPIC, positions.partition_of(key, positions.PARTITIONS))
