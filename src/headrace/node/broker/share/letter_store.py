"""Writes the dead letters of share groups to their topic, here or at another broker.

A letter counts when all in-sync replicas have it, as with acks=all. A missing topic is created if
`auto.create.topics.enable` allows it, with as many partitions as the topic of the records. Another
broker checks the rights of this broker's user: WRITE on the topic, if it is not a super user. Not
done: waiting; who asks tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.node.broker.cluster.broker_requests import BrokerRequests, code_of
from headrace.node.metadata.image import NO_LEADER
from headrace.node.serving.api import WaitingRequest
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import produce

if TYPE_CHECKING:
    from headrace.node.broker.broker import Broker

LANE = "dead-letters"
ALL = -1  # acks
# Letters are read by people, so they are kept for longer than the records: 90 days.
SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": str(90 * 86_400_000),
    "retention.bytes": "-1",
}

Reply = Callable[[KafkaError | None], None]


@dataclass(slots=True, eq=False)
class Letter:
    """One batch for one partition."""

    topic: str
    topic_id: bytes
    index: int
    batch: bytes
    reply: Reply


class LetterStore:
    __slots__ = ("_broker", "_elsewhere", "_makes")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._elsewhere: BrokerRequests[Letter] = BrokerRequests(
            broker, LANE, produce, self._request_of, _answered
        )
        self._makes: set[str] = set()  # topics that are being created

    def write(self, topic: str, like: tuple[str, int], batch: bytes, reply: Reply) -> None:
        """`like` is the topic and partition of the records; `reply` gets None when all are
        stored, or the refusal."""
        broker = self._broker
        found = broker.image.topics.get(topic)
        if found is None:
            self._make(topic, like[0])
            reply(
                KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no dead-letter topic {topic}."
                )
            )
            return
        index = like[1] % len(found.partitions)
        leader = found.partitions[index].leader
        letter = Letter(topic, found.id, index, batch, reply)
        if leader == broker.node_id:
            self._write_here(letter)
        elif leader == NO_LEADER:
            reply(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{index} has no leader."))
        else:
            self._elsewhere.add(leader, letter)
            self._elsewhere.send()

    def tick(self) -> None:
        self._elsewhere.tick()

    def _write_here(self, letter: Letter) -> None:
        broker = self._broker
        try:
            topic = broker.topics.by_name.get(letter.topic)
            if topic is None:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{letter.topic} is not open.")
            leader = topic.leader(letter.index)
            records = memoryview(bytearray(letter.batch))
            leader.append(records, broker.now.wall_ms, acks_all=True)
        except KafkaError as refusal:
            letter.reply(refusal)
            return
        broker.coordinator_appended(leader)
        end_offset, led_since = leader.log.end_offset, leader.led_since
        if leader.high_watermark >= end_offset:
            letter.reply(None)
            return

        def attempt(expired: bool) -> ErrorCode | None:
            code = leader.outcome_of(end_offset, led_since)
            return ErrorCode.REQUEST_TIMED_OUT if code is None and expired else code

        waiting = WaitingRequest(
            attempt,
            deadline_ms=broker.now.monotonic_ms + broker.values["request.timeout.ms"],
            hangs_on=[leader],
        )
        waiting.complete = lambda code: letter.reply(_refusal(code))
        broker.purgatory.add(waiting)

    def _request_of(self, letters: list[Letter]) -> Any:
        topics = [
            produce.TopicProduceData(
                name=each.topic,
                topic_id=each.topic_id,
                partition_data=[produce.PartitionProduceData(each.index, memoryview(each.batch))],
            )
            for each in letters
        ]
        timeout_ms = self._broker.values["request.timeout.ms"]
        return produce.ProduceRequest(None, ALL, timeout_ms, topics)

    def _make(self, topic: str, like: str) -> None:
        broker = self._broker
        source = broker.image.topics.get(like)
        if topic in self._makes or source is None or not broker.values["auto.create.topics.enable"]:
            return
        self._makes.add(topic)
        try:
            made = broker.controller.create_internal_topic(
                topic, len(source.partitions), -1, SETTINGS, lambda: True, broker.now
            )
        except KafkaError:
            self._makes.discard(topic)
            return
        if isinstance(made, WaitingRequest):
            made.complete = lambda _: self._makes.discard(topic)
            broker.purgatory.add(made)
        else:
            self._makes.discard(topic)


def _answered(letters: list[Letter], answer: Any) -> None:
    """Answers come in the order of the request."""
    found = [
        part
        for topic in (() if answer is None else answer.responses)
        for part in topic.partition_responses
    ]
    for number, letter in enumerate(letters):
        if number >= len(found):
            letter.reply(KafkaError(ErrorCode.NETWORK_EXCEPTION))
        else:
            letter.reply(_refusal(code_of(found[number].error_code)))


def _refusal(code: ErrorCode) -> KafkaError | None:
    return None if code == ErrorCode.NONE else KafkaError(code, code.description)
