"""A coordinator tells offsets when its in-sync followers have shown that they still follow it."""

import pytest

from headrace.node.replication.replica import Replica
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import describe_groups, offset_fetch
from tests.unit.node.broker.groups.test_coordinators_that_move import (
    OFFSETS,
    commit,
    fetch_offsets,
    lead,
    rig,
    told,
)
from tests.unit.node.broker.replicas.following import Following
from tests.unit.node.broker.replicas.test_replicas_of_others import HERE, THERE, change
from tests.unit.node.broker.rig import WAITS

__all__ = ["rig"]  # the fixture
ELSEWHERE = 3
FIVE = {"billing": {0: 5}}


@pytest.fixture
def follower(rig):
    """Broker 2 is in sync, and its fetch waits for something to be written."""
    assert commit(rig, "billing", [(0, 5)]) == {ErrorCode.NONE}
    lead(rig, isr=(HERE, THERE))
    follower = Following(rig, OFFSETS, THERE)
    follower.asks()
    assert follower.asks(wait_ms=500) == WAITS
    return follower


def read(rig):
    reader = rig.connect()
    assert fetch_offsets(rig, "billing", session=reader) == WAITS
    return reader


def pending(rig):
    return sum(map(len, rig.node.broker.confirmed_reads.pending.values()))


def test_a_read_has_the_waiting_follower_answered_and_is_told_when_it_asks_on(rig, follower):
    reader = read(rig)
    assert follower.answer().responses == [], "at once, though nothing was written"
    assert not reader.outbox
    assert follower.asks(wait_ms=500) == WAITS
    assert told(rig.answer_on(reader, offset_fetch, 8)) == FIVE
    assert not rig.node.broker.confirmed_reads.pending


def test_a_fetch_that_was_under_way_when_the_read_began_confirms_nothing(rig, follower):
    rig.advance(500)
    follower.answer()
    reader = read(rig)
    follower.asks(wait_ms=500)
    assert not reader.outbox, "it may have been sent before the read"
    follower.asks(wait_ms=500)
    assert told(rig.answer_on(reader, offset_fetch, 8)) == FIVE


def test_who_leads_the_partition_itself_confirms_nothing(rig, follower):
    reader = read(rig)
    follower.answer()
    follower.forgets()
    assert not reader.outbox


def test_who_follows_in_a_later_epoch_may_have_led_and_confirms_nothing(rig, follower):
    reader = read(rig)
    follower.answer()
    follower.asks(epoch=follower.replica.epoch + 2)
    follower.asks()
    assert not reader.outbox


def test_without_a_word_of_the_follower_the_reader_is_sent_on_to_look_again(rig, follower):
    reader = read(rig)
    rig.advance(5_000)
    assert told(rig.answer_on(reader, offset_fetch, 8)) == {"billing": ErrorCode.NOT_COORDINATOR}
    follower.answer()
    follower.asks()
    assert not rig.node.broker.confirmed_reads.pending


def test_readers_that_come_together_share_a_confirmation(rig, follower):
    rig.advance(500)
    follower.answer()
    readers = [read(rig) for _ in range(3)]
    request = describe_groups.DescribeGroupsRequest(["billing"])
    admin = rig.connect()
    assert rig.ask(describe_groups, request, version=5, session=admin) == WAITS
    assert pending(rig) == 1
    follower.asks(wait_ms=500)
    later = read(rig)
    follower.asks(wait_ms=500)
    for reader in readers:
        assert told(rig.answer_on(reader, offset_fetch, 8)) == FIVE
    assert rig.answer_on(admin, describe_groups, 5).groups[0].error_code == ErrorCode.NONE
    assert not later.outbox, "that answer had left before it asked"
    follower.asks(wait_ms=500)
    assert told(rig.answer_on(later, offset_fetch, 8)) == FIVE


def test_a_coordinator_that_nobody_could_succeed_tells_at_once(rig, follower):
    lead(rig, isr=(HERE,))
    assert fetch_offsets(rig, "billing") == FIVE


def test_a_read_is_told_when_the_follower_that_it_waited_for_leaves_the_isr(rig, follower):
    reader = read(rig)
    lead(rig, isr=(HERE,))
    assert told(rig.answer_on(reader, offset_fetch, 8)) == FIVE


def test_a_fetch_costs_the_same_however_many_reads_wait_for_another_follower(rig, monkeypatch):
    """One of two followers stands still; the other one fetches on, and readers come."""
    assert commit(rig, "billing", [(0, 5)]) == {ErrorCode.NONE}
    three = (HERE, THERE, ELSEWHERE)
    change(rig, OFFSETS, leader=HERE, isr=three, replicas=three, directories=(bytes(16),) * 3)
    lively, silent = (Following(rig, OFFSETS, broker) for broker in (THERE, ELSEWHERE))
    silent.asks()
    silent.asks(wait_ms=500)
    readers = []
    for _ in range(100):
        lively.asks()
        readers.append(read(rig))
    assert pending(rig) == 100
    asked = []
    found = Replica.possible_successors
    monkeypatch.setattr(Replica, "possible_successors", lambda self: asked.append(1) or found(self))
    lively.asks()
    assert len(asked) < 5
    silent.answer()  # to the fetch that waited when the first of them came
    for _ in range(2):
        lively.asks()
        silent.asks()
    for reader in readers:
        assert told(rig.answer_on(reader, offset_fetch, 8)) == FIVE
    assert not rig.node.broker.confirmed_reads.pending
