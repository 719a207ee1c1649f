"""Members' patterns are tried between other requests, and only on topics that are new to them."""

import pytest

from headrace.node.coordination import patterns
from headrace.node.coordination.group import subscriptions
from headrace.node.coordination.group.consumer_group import ConsumerGroup
from headrace.node.steps import at_once
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import consumer_group_heartbeat, list_transactions
from tests.unit.node.broker.groups.group_readers import Reader
from tests.unit.node.broker.groups.group_rig import GroupRig

TOPICS = [f"orders-{number}" for number in range(6)]


@pytest.fixture
def rig(tmp_path):
    rig = GroupRig(tmp_path / "data", group_consumer_assignment_interval_ms=0)
    rig.find("g")
    for name in TOPICS:
        rig.create(name)
    return rig


@pytest.fixture
def tried(monkeypatch):
    """The names on which any pattern is tried, one after the other."""
    names = []
    matches = patterns.Pattern.matches

    def note(self, name):
        names.append(name)
        return matches(self, name)

    monkeypatch.setattr(patterns.Pattern, "matches", note)
    return names


def one_name_per_step(monkeypatch):
    monkeypatch.setattr(patterns, "WORK_PER_STEP", 1)
    monkeypatch.setattr(subscriptions, "WORK_AT_ONCE", 1)


def test_a_hostile_pattern_is_refused(rig, tried):
    answer = Reader(rig, "g", "m", regex="(x?){900}" * 8).beat()
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "too complex" in answer.error_message
    assert tried == []


def test_a_hostile_pattern_lists_no_transactions(rig):
    request = list_transactions.ListTransactionsRequest(
        transactional_id_pattern="(x?){900}" * 8, duration_filter=-1
    )
    answer = rig.ask(list_transactions, request)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_others_have_their_turn_while_a_pattern_is_tried(rig, tried, monkeypatch):
    one_name_per_step(monkeypatch)
    reader = Reader(rig, "g", "m", regex="orders-.*")
    reader.rig = sent = SentOnly(rig)
    reader.ask()
    assert tried == [], "nothing is tried while the request is taken"
    turns = 0
    while not sent.session.outbox:
        before = len(tried)
        rig.node.work(lambda: True)
        assert len(tried) - before <= 1
        turns += 1
        assert turns < 50
    assert set(TOPICS) <= set(tried)
    assert len(tried) == len(set(tried)), "the decision tries nothing a second time"
    answer = rig.answer_on(sent.session, consumer_group_heartbeat)
    assert len(answer.assignment.topic_partitions) == len(TOPICS)


def test_topics_that_come_or_go_meanwhile_are_seen(tried):
    sight = at_once(subscriptions.EVERYTHING.try_ahead({"orders-.*": TOPICS[:4]}))
    tried.clear()
    assert sight.matching("orders-.*", TOPICS[1:]) == set(TOPICS[1:])
    assert tried == TOPICS[4:]


def test_each_pattern_is_tried_on_new_topics_only(rig, tried):
    readers = [Reader(rig, "g", f"m{number}", regex=f"orders-.*|{number}") for number in range(5)]
    for reader in readers:
        tried.clear()
        reader.beat()
        assert tried.count(TOPICS[0]) == 1, "its own, not those of the others"
    rig.create("orders-new")
    tried.clear()
    for reader in readers:
        reader.beat()
    assert tried == ["orders-new"] * len(readers)


def test_a_larger_pattern_of_an_earlier_release_matches_nothing_new():
    known = ConsumerGroup("g")
    too_large = "(x?){900}" * 8
    assert subscriptions.EVERYTHING.matching(too_large, TOPICS) == frozenset()
    assert subscriptions.long_trials(known, too_large, dict.fromkeys(TOPICS), 0) == {}


class SentOnly:
    """A rig that only takes a request; the test makes the turns."""

    def __init__(self, rig):
        self._rig = rig
        self.node = rig.node

    def ask(self, messages, request):
        self.session = self._rig.send(messages, request, version=1)
