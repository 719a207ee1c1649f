"""InitProducerId 0-5 and DescribeProducers 0."""

from __future__ import annotations

from typing import Any

from headrace.wire.protocol.messages import describe_producers, init_producer_id
from headrace.wire.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from headrace.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.conformance.batches import R, build
from tests.conformance.stage import Stage


def new_ids(stage: Stage) -> None:
    """Which id is given depends on what was given before; that they rise does not."""
    stage.until(lambda: gives_ids(stage))  # a young broker has to ask its controller for a block
    last = -1
    for version in init_producer_id.VERSIONS:
        for turn in ("first", "second"):
            line = f"v{version} {turn}"
            answer = stage.ask(line, init_producer_id, version, InitProducerIdRequest(None, 60_000))
            stage.answers[line]["producer_id"] = "higher" if answer.producer_id > last else "not"
            last = answer.producer_id


def gives_ids(stage: Stage) -> bool:
    answer: Any = stage.connection.ask(init_producer_id, 5, InitProducerIdRequest(None, 60_000))
    return bool(answer.error_code == 0)


def requests_that_cannot_be(stage: Stage) -> None:
    for version in init_producer_id.VERSIONS:

        def ask(line: str, request: InitProducerIdRequest, version: int = version) -> None:
            stage.ask(f"v{version} {line}", init_producer_id, version, request)

        ask("empty transactional id", InitProducerIdRequest("", 60_000))
        ask("timeout too long", InitProducerIdRequest("t", 2**31 - 1))
        ask("timeout zero", InitProducerIdRequest("t", 0))
        if version >= 3:
            ask("id without epoch", InitProducerIdRequest("t", 60_000, 5, -1))
            ask("epoch without id", InitProducerIdRequest("t", 60_000, -1, 5))


def old_id_for_a_new_epoch(stage: Stage) -> None:
    """Without a transactional id an old producer id is not looked at: a new one is given."""
    for version in range(3, 6):
        line = f"v{version}"
        request = InitProducerIdRequest(None, 60_000, 5, 3)
        answer = stage.ask(line, init_producer_id, version, request)
        stage.answers[line]["producer_id"] = "another" if answer.producer_id != 5 else "the same"


def active_producers(stage: Stage) -> None:
    topic = stage.topic("active-producers", partitions=2)
    stage.produce(topic, build(R()))

    def ask(line: str, name: str, *partitions: int) -> None:
        request = DescribeProducersRequest([TopicRequest(name, list(partitions))])
        stage.ask(line, describe_producers, 0, request)

    ask("none yet", topic.name, 0, 1)
    first = build(R(), R(), producer_id=700, producer_epoch=2, base_sequence=0)
    second = build(R(), producer_id=700, producer_epoch=2, base_sequence=2)
    other = build(R(), producer_id=701, producer_epoch=0, base_sequence=0)
    stage.produce(topic, first, second, other)
    ask("two", topic.name, 0, 1)
    ask("unknown partition", topic.name, 9, -1)
    ask("unknown topic", "never-was", 0)
    ask("bad name", "bad name", 0)
    ask("no partitions", topic.name)
    stage.ask("nothing", describe_producers, 0, DescribeProducersRequest())


STORIES = (new_ids, requests_that_cannot_be, old_id_for_a_new_epoch, active_producers)
