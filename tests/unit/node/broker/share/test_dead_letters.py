"""Dead letters of share groups: written whole, once for a reader, before a record is archived."""

from __future__ import annotations

import pytest

from headrace.node.broker.share.led_partitions import FIRST_PAUSE_MS
from headrace.wire.contract import headers as names
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.record_batch import Record, RecordHeader, build, headers_in, walk
from tests.unit.node.broker.share.share_rig import (
    ACCEPT,
    GROUP,
    REJECT,
    RELEASE,
    ShareRig,
    acquired,
    outcome,
)

DEAD = f"orders.{GROUP}.dead"
ARCHIVING, ARCHIVED = 3, 4


@pytest.fixture
def rig(tmp_path, monkeypatch):
    return ShareRig(tmp_path / "data", monkeypatch=monkeypatch)


@pytest.fixture
def topic(rig):
    rig.set(offset_reset="earliest", dead_letter_topic=DEAD)
    return rig.create("orders")


@pytest.fixture
def dead(rig):
    return rig.create(DEAD)


def letters(rig):
    data = rig.fetch(DEAD).records
    return [
        record
        for at, header in headers_in(data)
        for record in walk(data[at : at + header.size], 1 << 20)
    ]


def put(rig, topic, record):
    rig.produce(topic, records=build([record]))


def texts(letter):
    return {each.key: (each.value or b"").decode() for each in letter.headers}


def states(rig):
    return {offset: state for offset, (state, _) in rig.states.batches.items()}


def test_a_rejected_record_is_a_whole_letter(rig, topic, dead):
    put(rig, "orders", Record(b"key", b"value", [RecordHeader("trace", b"7")], 1_234))
    one = rig.member("one")
    one.fetch(topic)
    assert outcome(one.acknowledge(topic, (0, 0, [REJECT]))) is ErrorCode.NONE
    rig.advance(1)
    [letter] = letters(rig)
    assert (letter.key, letter.value) == (b"key", b"value")
    said = texts(letter)
    assert said["trace"] == "7"
    assert said[names.DEAD_ATTEMPTS] == "1"
    assert "rejected" in said[names.DEAD_MESSAGE]
    assert (said[names.DEAD_TOPIC], said[names.DEAD_PARTITION], said[names.DEAD_OFFSET]) == (
        "orders",
        "0",
        "0",
    )
    assert said[names.DEAD_GROUP] == GROUP
    assert said[names.RETRY_ORIGIN_AT] == "1234"
    assert states(rig) == {0: ARCHIVED}
    assert rig.led.letters_written == 1


def test_a_record_that_used_up_its_deliveries_is_a_letter(rig, topic, dead):
    """Both ways: released after the last delivery, and its last lock ran out."""
    rig.set(delivery_limit=2)
    rig.produce("orders", "released", "expired")
    one = rig.member("one")
    for _ in range(2):
        while found := acquired(one.fetch(topic)):
            for first, last, _ in found:
                one.acknowledge(
                    topic, *((n, n, [RELEASE]) for n in range(first, last + 1) if not n)
                )
        rig.advance(30_000)
    rig.advance(1)
    assert {(each.value, texts(each)[names.DEAD_ATTEMPTS]) for each in letters(rig)} == {
        (b"released", "2"),
        (b"expired", "2"),
    }
    assert acquired(rig.member("other").fetch(topic)) == []
    assert rig.states.start_offset == 2


def test_that_it_is_given_up_is_stored_before_the_letter(rig, topic, dead):
    rig.produce("orders", "a")
    one = rig.member("one")
    one.fetch(topic)
    rig.states.slow = True
    one.acknowledge(topic, (0, 0, [REJECT]))
    rig.advance(1)
    assert letters(rig) == []
    rig.states.slow = False
    rig.states.reply()
    assert states(rig) == {0: ARCHIVING}
    rig.advance(1)
    assert len(letters(rig)) == 1
    assert states(rig) == {0: ARCHIVED}


def test_a_letter_that_is_refused_is_tried_again_and_its_record_is_not_archived(
    rig, topic, dead, monkeypatch, caplog
):
    write = rig.node.broker.letter_store.write
    refusals = [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")]

    def refuse(_, *what):
        reply = what[-1]
        if refusals:
            reply(refusals.pop())
        else:
            write(*what)

    monkeypatch.setattr(type(rig.node.broker.letter_store), "write", refuse_with(refuse, write))
    rig.produce("orders", "a", "b")
    one = rig.member("one")
    one.fetch(topic)
    one.acknowledge(topic, (0, 0, [REJECT]), (1, 1, [ACCEPT]))
    rig.advance(1)
    assert states(rig) == {0: ARCHIVING, 1: 2}
    assert (rig.led.letters_due, rig.led.letters_refused) == (1, 1)
    assert "the disk is full" in caplog.text
    assert acquired(one.fetch()) == [], "it was rejected, so it is not delivered again"
    rig.advance(FIRST_PAUSE_MS)
    assert [each.value for each in letters(rig)] == [b"a"]
    assert rig.led.letters_due == 0
    assert rig.states.start_offset == 2


def refuse_with(refuse, write):
    return lambda store, topic, like, batch, reply: refuse(store, topic, like, batch, reply)


def test_a_missing_topic_is_created(rig, topic):
    rig.produce("orders", "a")
    one = rig.member("one")
    one.fetch(topic)
    one.acknowledge(topic, (0, 0, [REJECT]))
    rig.advance(1)
    rig.advance(FIRST_PAUSE_MS)
    assert len(rig.node.broker.image.topics[DEAD].partitions) == 1
    assert rig.states.start_offset == 1


def test_a_missing_topic_that_may_not_be_created_is_said(tmp_path, monkeypatch, caplog):
    rig = ShareRig(tmp_path / "data", monkeypatch=monkeypatch, auto_create_topics_enable="false")
    rig.set(offset_reset="earliest", dead_letter_topic=DEAD)
    topic = rig.create("orders")
    rig.produce("orders", "a")
    one = rig.member("one")
    one.fetch(topic)
    one.acknowledge(topic, (0, 0, [REJECT]))
    rig.advance(1)
    assert f"There is no dead-letter topic {DEAD}" in caplog.text
    assert rig.led.letters_due == 1
    rig.create(DEAD)
    rig.advance(FIRST_PAUSE_MS)
    assert rig.led.letters_due == 0


def test_a_crash_after_the_letter_writes_the_same_letter_once_more(rig, topic, dead):
    """The next leader cannot know whether the letter was stored; readers see one."""
    rig.produce("orders", "a")
    one = rig.member("one")
    one.fetch(topic)
    rig.states.slow = True
    one.acknowledge(topic, (0, 0, [REJECT]))
    rig.states.reply()
    rig.advance(1)
    assert len(letters(rig)) == 1
    assert states(rig) == {0: ARCHIVING}
    [part] = rig.led._open.values()
    rig.led.close(part)
    rig.states.held.clear()
    rig.states.slow = False
    assert acquired(rig.member("new").fetch(topic)) == []
    rig.advance(1)
    first, second = letters(rig)
    assert texts(first)[names.DEAD_ID] == texts(second)[names.DEAD_ID]
    assert states(rig) == {0: ARCHIVED}


def test_letters_are_written_when_all_members_are_gone(rig, topic, dead):
    rig.set(delivery_limit=2)
    rig.produce("orders", "a")
    one = rig.member("one")
    one.fetch(topic)
    one.acknowledge(topic, (0, 0, [REJECT]))
    one.disconnect()
    rig.advance(1)
    assert len(letters(rig)) == 1
    assert len(rig.led) == 0


def test_many_letters_go_in_batches(rig, topic, dead):
    rig.produce("orders", *(str(number) for number in range(250)))
    one = rig.member("one")
    one.fetch(topic)
    one.acknowledge(topic, (0, 249, [REJECT]))
    for _ in range(5):
        rig.advance(1)
    assert rig.led.letters_written == 250
    assert rig.states.start_offset == 250


def test_without_a_topic_a_rejected_record_is_given_up(rig, topic, dead):
    rig.set(dead_letter_topic="")
    rig.produce("orders", "a")
    one = rig.member("one")
    one.fetch(topic)
    one.acknowledge(topic, (0, 0, [REJECT]))
    rig.advance(1)
    assert letters(rig) == []
    assert rig.states.start_offset == 1


def test_a_record_that_came_back_keeps_its_first_place(rig, topic, dead):
    retry = rig.create(f"orders.{GROUP}.retry")
    put(
        rig,
        f"orders.{GROUP}.retry",
        Record(None, b"a", [RecordHeader(names.RETRY_ORIGIN, b"orders/3/17")], 5),
    )
    one = rig.member("one")
    one.fetch(retry)
    one.acknowledge(retry, (0, 0, [REJECT]))
    rig.advance(1)
    said = texts(letters(rig)[0])
    assert [said[name] for name in (names.DEAD_TOPIC, names.DEAD_PARTITION, names.DEAD_OFFSET)] == [
        "orders",
        "3",
        "17",
    ]
