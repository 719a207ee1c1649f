"""What a broker asks of a controller in another process, and what its clients hear meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.environment import Address
from headrace.node.assembly.active_controller import ActiveController
from headrace.node.assembly.controller_elsewhere import PATIENCE_MS
from headrace.node.serving.api import WaitingRequest
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import allocate_producer_ids, create_topics
from headrace.wire.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from headrace.wire.protocol.messages.alter_partition import AlterPartitionRequest
from headrace.wire.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from tests.unit.node.broker.cluster.remote_controller import RemoteBroker, RemoteController


class Story:
    def __init__(self, folder: Path) -> None:
        self.controller = RemoteController(folder)
        self.broker = RemoteBroker(self.controller).starts()
        self.controller.asked.clear()

    def waits(self, waiting: Any) -> list[Any]:
        """The list gets the answer."""
        assert isinstance(waiting, WaitingRequest)
        answers: list[Any] = []
        waiting.complete = answers.append
        self.controller.purgatory.add(waiting)
        return answers

    def create(self, *names: str) -> list[Any]:
        def answer() -> list[str]:
            return [name for name in names if name in self.broker.image.topics]

        port = self.broker.port
        return self.waits(port.create_topics(list(names), answer, self.controller.now))

    def ids(self) -> list[Any]:
        port = self.broker.port
        return self.waits(port.allocate_producer_ids(lambda *block: block, self.controller.now))

    def asked(self, lane: str) -> list[Any]:
        return [request for each, request in self.controller.asked if each == lane]


def test_a_topic_is_answered_when_this_broker_knows_it(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.broker.lags = True
    answers = story.create("orders")
    story.controller.until_idle()
    assert "orders" in story.controller.image.topics and not answers
    story.broker.lags = False
    story.broker.follows(story.controller.image)
    story.controller.until_idle()
    assert answers == [["orders"]]


def test_a_topic_that_many_ask_for_is_made_once(tmp_path: Path) -> None:
    story = Story(tmp_path)
    first, second = story.create("orders"), story.create("orders", "payments")
    story.controller.until_idle()
    assert first == [["orders"]] and second == [["orders", "payments"]]
    requests = story.asked("controller")
    assert [[topic.name for topic in request.topics] for request in requests] == [
        ["orders"],
        ["payments"],
    ]


def test_a_topic_that_cannot_be_made_is_left_out(tmp_path: Path) -> None:
    story = Story(tmp_path)
    answers = story.create("orders", "not/legal")
    story.controller.until_idle()
    assert answers == [["orders"]]


def test_a_coordinators_topic_gets_its_settings(tmp_path: Path) -> None:
    story = Story(tmp_path)
    port, now = story.broker.port, story.controller.now
    settings = {"cleanup.policy": "compact"}
    answers = story.waits(
        port.create_internal_topic("__consumer_offsets", 3, 1, settings, lambda: "made", now)
    )
    story.controller.until_idle()
    assert answers == ["made"]
    assert len(story.broker.image.topics["__consumer_offsets"].partitions) == 3
    assert story.broker.image.configs[2, "__consumer_offsets"] == settings


def test_while_no_controller_is_there_the_topic_waits_and_then_the_client_hears_what_there_is(
    tmp_path: Path,
) -> None:
    story = Story(tmp_path)
    story.controller.place = None
    answers, late = story.create("orders"), story.create("payments")
    story.controller.passes(5_000)
    assert not answers
    story.controller.place = Address("controller", 9093)
    story.controller.passes(200)
    assert answers == [["orders"]] and late == [["payments"]]
    story.controller.place = None
    never = story.create("returns")
    story.controller.passes(PATIENCE_MS + 200)
    assert never == [[]], "the client asks again"
    story.controller.place = Address("controller", 9093)
    again = story.create("returns")
    story.controller.until_idle()
    assert again == [["returns"]]


def test_a_controller_that_is_not_active_sends_the_broker_on(tmp_path: Path) -> None:
    story = Story(tmp_path)
    refusals = [2]

    def not_active(messages: Any, request: Any) -> Any:
        if not refusals[0]:
            return None
        code = ErrorCode.NOT_CONTROLLER
        if messages is create_topics:
            refusals[0] -= 1
            return CreateTopicsResponse(topics=[CreatableTopicResult("orders", error_code=code)])
        if messages is allocate_producer_ids:
            refusals[0] -= 1
            return AllocateProducerIdsResponse(error_code=code)
        return None

    story.controller.answer_instead = not_active
    answers, blocks = story.create("orders"), story.ids()
    story.controller.until_idle()
    assert not answers and not blocks
    story.controller.passes(200)
    assert answers == [["orders"]] and len(blocks) == 1


def test_a_silent_controller_is_not_waited_for_when_another_is_active(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.controller.is_reachable = False
    answers = story.create("orders")
    story.controller.passes(1_000)
    story.controller.is_reachable = True
    story.controller.place = Address("another", 9093)
    story.broker.port.controller_moved()
    story.controller.until_idle()
    assert answers == [["orders"]]


def test_blocks_of_producer_ids_are_each_given_out_once(tmp_path: Path) -> None:
    story = Story(tmp_path)
    first, second = story.ids(), story.ids()
    story.controller.until_idle()
    assert {*first, *second} == {(0, 1_000), (1_000, 1_000)}


def test_without_ids_the_client_comes_again(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.broker.this.epoch += 1  # of a broker that was replaced
    answers = story.ids()
    story.controller.until_idle()
    (refusal,) = answers
    assert isinstance(refusal, KafkaError)
    assert refusal.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("is_known", [True, False])
def test_a_proposal_of_in_sync_replicas_is_answered_once(tmp_path: Path, is_known: bool) -> None:
    story = Story(tmp_path)
    answers: list[Any] = []
    if not is_known:
        story.controller.place = None
    this = story.broker.this
    request = AlterPartitionRequest(this.id, this.epoch, [])
    story.broker.port.alter_partition(request, answers.append, story.controller.now)
    assert not answers, "never before it returns"
    story.controller.until_idle()
    assert [None if each is None else each.error_code for each in answers] == [
        ErrorCode.NONE if is_known else None
    ]


def test_heartbeats_do_not_stand_behind_topics(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.create("orders")
    story.controller.passes(2_000)
    assert len(story.asked("heartbeat")) == 1 and len(story.asked("controller")) == 1


class Port:
    """Notes that it was asked."""

    def __init__(self, name: str, asked: list[str]) -> None:
        self.name, self.asked = name, asked

    def __getattr__(self, what: str) -> Any:
        return lambda *arguments: self.asked.append(f"{self.name}: {what}")


def test_the_controller_at_hand_is_asked_while_it_is_the_active_one() -> None:
    asked: list[str] = []
    is_active = [False]
    at_hand, elsewhere = Port("at hand", asked), Port("elsewhere", asked)
    controller: Any = ActiveController(at_hand, elsewhere, lambda: is_active[0])
    methods = [name for name in vars(ActiveController) if not name.startswith("_")]
    for is_active[0] in (False, True):
        for name in methods:
            count = getattr(ActiveController, name).__code__.co_argcount - 1
            getattr(controller, name)(*[None] * count)
    assert asked == [
        *(f"elsewhere: {name}" for name in methods),
        *(f"at hand: {name}" for name in methods),
    ]
    assert len(methods) == 8
