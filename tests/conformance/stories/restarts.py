"""A clean stop and a new start: a new leader epoch, and everything known before is known still."""

from __future__ import annotations

from typing import Any

from headrace.protocol.messages import (
    describe_configs,
    describe_producers,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from headrace.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.conformance.batches import R, build
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.asking import (
    fetch_request,
    fetch_topic,
    from_offset,
    produce_request,
)
from tests.conformance.stories.configs import TOPIC, describe
from tests.conformance.stories.list_offsets import asked

EPOCHS = ("leader_epoch", "epoch")


def epochs_after_a_restart(stage: Stage) -> None:
    topic = stage.topic("restarted", config={"flush.ms": "123456"})
    old = build(R(b"1"), R(b"2"), producer_id=900, producer_epoch=1, base_sequence=0)
    stage.produce(topic, old)
    restart(stage, topic)
    epoch = stage.find("restarted").partitions[0].leader_epoch
    assert epoch > 0, "a new start is a new epoch"

    def ask(line: str, api: Any, version: int, request: Any) -> None:
        stage.ask(line, api, version, request)
        stage.answers[line] = in_words(stage.answers[line], epoch)

    ask("duplicate of before", produce, 13, produce_request(13, topic, old))
    next_one = build(R(b"3"), producer_id=900, producer_epoch=1, base_sequence=2)
    ask("goes on", produce, 13, produce_request(13, topic, next_one))
    active = DescribeProducersRequest([TopicRequest("restarted", [0])])
    ask("producers", describe_producers, 0, active)
    for name, number in {"current": epoch, "old": epoch - 1, "future": epoch + 1}.items():
        wanted = fetch_topic(13, topic, from_offset(0, leader_epoch=number))
        ask(f"fetch in the {name} epoch", fetch, 13, fetch_request(wanted))
        at = asked("restarted", 0, -1, leader_epoch=number)
        ask(f"list in the {name} epoch", list_offsets, 7, at)
        end = epoch_end(number, 0)
        ask(f"end in the {name} epoch", offset_for_leader_epoch, 4, end)
    for name, number in {"first": 0, "current": epoch, "future": epoch + 5}.items():
        ask(f"end of the {name} epoch", offset_for_leader_epoch, 4, epoch_end(-1, number))
    diverged = fetch_topic(13, topic, from_offset(3, last_fetched_epoch=0))
    ask("diverged", fetch, 13, fetch_request(diverged))
    ask("settings", describe_configs, 4, describe(TOPIC, "restarted", ["flush.ms"]))


def restart(stage: Stage, topic: Topic) -> None:
    stage.drop()
    stage.node.stop()
    stage.node.start()
    stage.until(lambda: stage.is_ready(topic.name, 1))


def epoch_end(current: int, asked_for: int) -> OffsetForLeaderEpochRequest:
    partition = OffsetForLeaderPartition(0, current, asked_for)
    return OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic("restarted", [partition])])


def in_words(answer: Any, epoch: int) -> Any:
    """How far an epoch rises by a restart is the controller's affair."""
    if isinstance(answer, dict):
        return {
            key: "current" if key in EPOCHS and value == epoch else in_words(value, epoch)
            for key, value in answer.items()
        }
    if isinstance(answer, list):
        return [in_words(element, epoch) for element in answer]
    return answer


STORIES = (epochs_after_a_restart,)
