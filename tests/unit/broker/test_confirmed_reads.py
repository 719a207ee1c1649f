"""A coordinator tells offsets when its in-sync followers have shown that they still follow it."""

import pytest

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import describe_groups, offset_fetch
from tests.unit.broker.bench import PARKED
from tests.unit.broker.following import Following
from tests.unit.broker.test_coordinators_that_move import (
    HERE,
    OFFSETS,
    THERE,
    bench,
    commit,
    fetch_offsets,
    lead,
    told,
)

__all__ = ["bench"]  # the fixture
FIVE = {"billing": {0: 5}}


@pytest.fixture
def follower(bench):
    """Broker 2 is in sync, and its fetch waits for something to be written."""
    assert commit(bench, "billing", [(0, 5)]) == {ErrorCode.NONE}
    lead(bench, isr=(HERE, THERE))
    follower = Following(bench, OFFSETS, THERE)
    follower.asks()
    assert follower.asks(wait_ms=500) == PARKED
    return follower


def read(bench):
    reader = bench.connect()
    assert fetch_offsets(bench, "billing", session=reader) == PARKED
    return reader


def test_a_read_has_the_waiting_follower_answered_and_is_told_when_it_asks_on(bench, follower):
    reader = read(bench)
    assert follower.answer().responses == [], "at once, though nothing was written"
    assert not reader.outbox
    assert follower.asks(wait_ms=500) == PARKED
    assert told(bench.answer_on(reader, offset_fetch, 8)) == FIVE
    assert not bench.node.broker.confirmed_reads.pending


def test_a_fetch_that_was_under_way_when_the_read_began_confirms_nothing(bench, follower):
    bench.advance(500)
    follower.answer()
    reader = read(bench)
    follower.asks(wait_ms=500)
    assert not reader.outbox, "it may have been sent before the read"
    follower.asks(wait_ms=500)
    assert told(bench.answer_on(reader, offset_fetch, 8)) == FIVE


def test_who_leads_the_partition_itself_confirms_nothing(bench, follower):
    reader = read(bench)
    follower.answer()
    follower.forgets()
    assert not reader.outbox


def test_who_follows_in_a_later_epoch_may_have_led_and_confirms_nothing(bench, follower):
    reader = read(bench)
    follower.answer()
    follower.asks(epoch=follower.replica.epoch + 2)
    follower.asks()
    assert not reader.outbox


def test_without_a_word_of_the_follower_the_reader_is_sent_on_to_look_again(bench, follower):
    reader = read(bench)
    bench.advance(5_000)
    assert told(bench.answer_on(reader, offset_fetch, 8)) == {"billing": ErrorCode.NOT_COORDINATOR}
    follower.answer()
    follower.asks()
    assert not bench.node.broker.confirmed_reads.pending


def test_readers_that_come_together_share_a_confirmation(bench, follower):
    bench.advance(500)
    follower.answer()
    readers = [read(bench) for _ in range(3)]
    request = describe_groups.DescribeGroupsRequest(["billing"])
    admin = bench.connect()
    assert bench.ask(describe_groups, request, version=5, session=admin) == PARKED
    assert len(bench.node.broker.confirmed_reads.pending) == 1
    follower.asks(wait_ms=500)
    later = read(bench)
    follower.asks(wait_ms=500)
    for reader in readers:
        assert told(bench.answer_on(reader, offset_fetch, 8)) == FIVE
    assert bench.answer_on(admin, describe_groups, 5).groups[0].error_code == ErrorCode.NONE
    assert not later.outbox, "that answer had left before it asked"
    follower.asks(wait_ms=500)
    assert told(bench.answer_on(later, offset_fetch, 8)) == FIVE


def test_a_coordinator_that_nobody_could_succeed_tells_at_once(bench, follower):
    lead(bench, isr=(HERE,))
    assert fetch_offsets(bench, "billing") == FIVE
