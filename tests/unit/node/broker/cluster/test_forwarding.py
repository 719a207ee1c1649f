"""A broker hands a request on to the controller, whoever that is, for as long as its time lasts."""

from typing import Any

import pytest

from headrace.environment import Address, Now
from headrace.node.broker.cluster.controller_channel import REST_MS, ControllerChannel
from headrace.node.broker.cluster.forwarding import LANE, USUAL_TIMEOUT_MS, Forwarding
from headrace.node.serving.api import Api
from headrace.node.serving.purgatory import Purgatory
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import create_topics
from headrace.wire.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from headrace.wire.protocol.messages.envelope import EnvelopeResponse
from tests.unit.node.serving.test_envelopes import VERSION, a_call

FIRST, SECOND = Address("10.0.0.1", 9093), Address("10.0.0.2", 9093)
API = Api(create_topics, lambda *_: None, create_topics.VERSIONS, owner="controller")


class Story:
    def __init__(self, timeout_ms=10_000):
        self.now, self.purgatory = Now(0, 0), Purgatory()
        self.controller, self.asked, self.answers = FIRST, [], []
        self.channel = ControllerChannel(
            self, lambda: self.controller, self.purgatory, self.now, LANE
        )
        forwarding = Forwarding(self.channel, self.purgatory, self.now)
        request = CreateTopicsRequest(timeout_ms=timeout_ms)
        waiting = forwarding.forward(API, request, a_call())
        waiting.complete = self.answers.append
        self.purgatory.add(waiting)

    def ask(self, to, lane, messages, request, answered, *, timeout_ms, newest=None):
        self.asked.append((to, answered, timeout_ms))

    def answer(self, answer):
        self.asked[-1][1](answer)
        self.purgatory.try_woken()

    def pass_ms(self, ms):
        self.now.monotonic_ms += ms
        self.purgatory.expire(self.now.monotonic_ms)
        self.purgatory.try_woken()


def sealed():
    pieces: list[Any] = [b"\0\0\x12\x67\0"]
    create_topics.ENCODE_RESPONSE[VERSION](CreateTopicsResponse(7), pieces.append)
    return EnvelopeResponse(b"".join(pieces))


def test_the_controllers_answer_is_the_clients():
    story = Story()
    story.answer(sealed())
    assert [answer.throttle_time_ms for answer in story.answers] == [7]


@pytest.mark.parametrize("lost", [None, EnvelopeResponse(None, ErrorCode.NOT_CONTROLLER)])
def test_another_controller_takes_over(lost):
    story = Story(timeout_ms=60_000)
    story.answer(lost)
    story.controller = SECOND
    assert [to for to, _, _ in story.asked] == [FIRST]
    story.pass_ms(REST_MS)
    assert [to for to, _, _ in story.asked] == [FIRST, SECOND]
    assert story.asked[1][2] == 60_000 - REST_MS, "what is left of its time"
    story.answer(sealed())
    assert len(story.answers) == 1


def test_without_a_controller_the_client_is_told_when_its_time_is_up():
    story = Story(timeout_ms=1_000)
    story.controller = None
    story.answer(None)
    for _ in range(20):
        story.pass_ms(REST_MS)
    (refusal,) = story.answers
    assert isinstance(refusal, KafkaError) and refusal.code == ErrorCode.REQUEST_TIMED_OUT
    assert len(story.asked) == 1 and not story.purgatory.waiting


def test_a_refusal_of_the_controller_is_the_clients():
    story = Story()
    story.answer(EnvelopeResponse(None, ErrorCode.UNSUPPORTED_VERSION))
    (refusal,) = story.answers
    assert isinstance(refusal, KafkaError) and refusal.code == ErrorCode.UNSUPPORTED_VERSION


def test_a_client_in_a_hurry_does_not_end_the_connection_of_the_others():
    story = Story(timeout_ms=0)
    assert story.asked[0][2] == USUAL_TIMEOUT_MS, "a late answer would end it for all of them"
    story.pass_ms(1)
    (refusal,) = story.answers
    assert isinstance(refusal, KafkaError) and refusal.code == ErrorCode.REQUEST_TIMED_OUT
    story.answer(EnvelopeResponse(None, ErrorCode.NOT_CONTROLLER))
    story.pass_ms(REST_MS)
    assert len(story.asked) == 1, "nobody waits for it: it is not sent again"
    assert len(story.answers) == 1 and not story.purgatory.waiting


def test_an_answer_after_the_time_is_up_changes_nothing():
    story = Story(timeout_ms=1)
    story.pass_ms(1)
    story.controller = SECOND
    story.channel.moved()
    story.answer(sealed())
    story.pass_ms(REST_MS)
    assert len(story.asked) == len(story.answers) == 1
