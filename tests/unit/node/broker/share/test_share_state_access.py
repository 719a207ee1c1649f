"""The state of share partitions that another broker keeps: asked in order, together, and again."""

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.environment import Now
from headrace.node.broker.coordinators.share_state_access import ShareStateAccess
from headrace.node.broker.coordinators.share_states import SHARE_STATE_TOPIC
from headrace.node.coordination.share.state_key import SharePartitionKey
from headrace.node.metadata.image import MetadataImage, PartitionImage, TopicImage
from headrace.node.serving.purgatory import Purgatory
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import write_share_group_state as write
from tests.unit.node.broker.rig import Rig

TOPIC_ID = b"t" * 16
ZERO = SharePartitionKey("workers", TOPIC_ID, 0)
ONE = ZERO._replace(partition=1)


class Elsewhere:
    """Broker 2 keeps all of the state; its answers are given by hand."""

    def __init__(self, tmp_path):
        node = Rig(tmp_path / "data").node
        partition = PartitionImage((2,), (2,), 2, 0, 0, (bytes(16),))
        topic = TopicImage(SHARE_STATE_TOPIC, bytes(16), (partition,))
        listener = SimpleNamespace(name="PLAINTEXT", host="two", port=9092)
        two: Any = SimpleNamespace(fenced=False, endpoints=[listener])
        self.asked = []
        self.replies = []
        broker: Any = SimpleNamespace(
            node_id=1,
            values=node.broker.values,
            image=MetadataImage("c", topics={SHARE_STATE_TOPIC: topic}, brokers={2: two}),
            now=Now(0, 0),
            purgatory=Purgatory(),
            confirmed_reads=None,
            coordinator_appended=None,
            loads=None,
            chores=None,
            inter_broker_listener="PLAINTEXT",
            peers=SimpleNamespace(ask=self.ask),
        )
        self.broker = broker
        self.states = ShareStateAccess(broker)

    def ask(self, address, lane, messages, request, answered, *, timeout_ms):
        self.asked.append((request, answered))

    def write(self, key, start):
        data = write.PartitionData(key.partition, 1, 1, start, 0)
        self.states.write(
            key, data, lambda found: self.replies.append((key.partition, start, found.error_code))
        )

    def starts(self, number):
        """What a request asks to be written, by partition."""
        [topic] = self.asked[number][0].topics
        return {part.partition: part.start_offset for part in topic.partitions}

    def answer(self, number, code=ErrorCode.NONE):
        request, answered = self.asked[number]
        results = [
            write.WriteStateResult(
                topic.topic_id,
                [write.PartitionResult(part.partition, code) for part in topic.partitions],
            )
            for topic in request.topics
        ]
        answered(write.WriteShareGroupStateResponse(results))

    def wait(self, ms):
        self.broker.now.monotonic_ms += ms
        self.states.tick(self.broker.now)


@pytest.fixture
def elsewhere(tmp_path):
    return Elsewhere(tmp_path)


def test_what_comes_while_one_is_under_way_goes_together_in_the_next(elsewhere):
    elsewhere.write(ZERO, 5)
    elsewhere.write(ONE, 6)
    elsewhere.write(ZERO, 7)
    assert len(elsewhere.asked) == 1 and elsewhere.starts(0) == {0: 5}
    elsewhere.answer(0)
    assert elsewhere.starts(1) == {1: 6, 0: 7}
    elsewhere.answer(1)
    assert elsewhere.replies == [(0, 5, 0), (1, 6, 0), (0, 7, 0)]


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.NETWORK_EXCEPTION])
def test_a_coordinator_that_moves_or_is_silent_is_asked_again_with_the_same(elsewhere, code):
    elsewhere.write(ZERO, 5)
    elsewhere.write(ZERO, 6)
    elsewhere.answer(0, code)
    assert elsewhere.replies == [] and len(elsewhere.asked) == 1
    elsewhere.wait(100)
    assert elsewhere.starts(1) == {0: 5}, "the later write waits for its turn"
    elsewhere.answer(1)
    assert elsewhere.replies == [(0, 5, 0)] and elsewhere.starts(2) == {0: 6}


def test_a_refusal_of_the_request_itself_is_answered_at_once(elsewhere):
    elsewhere.write(ZERO, 5)
    elsewhere.answer(0, ErrorCode.FENCED_STATE_EPOCH)
    assert elsewhere.replies == [(0, 5, ErrorCode.FENCED_STATE_EPOCH)]


def test_when_the_time_is_over_the_reply_says_why(elsewhere):
    elsewhere.write(ZERO, 5)
    number = 0
    while not elsewhere.replies:
        elsewhere.answer(number, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        number += 1
        elsewhere.wait(5_000)
        assert number < 20
    assert elsewhere.replies == [(0, 5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
