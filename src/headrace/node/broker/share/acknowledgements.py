"""The acknowledgements of one request, from their arrival until all are committed or refused.

ShareFetch and ShareAcknowledge carry them in the same form. A partition is refused as a whole: if
the request is invalid, if the client may not read the topic, if this broker does not lead it, or if
the member does not hold the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headrace.node.broker.broker import Broker
from headrace.node.broker.share.sessions import TopicPartition
from headrace.node.coordination.share.share_partition import Acknowledgement, AcknowledgeType
from headrace.node.serving.api import Call, WaitingRequest
from headrace.node.serving.rights import TOPIC, may
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError

FIRST_VERSION_WITH_RENEW = 2


class AcknowledgementBatch(Protocol):
    """The generated class of either request."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class Acknowledging:
    __slots__ = ("_broker", "_group", "_member", "refusals", "left", "waiting")

    def __init__(self, broker: Broker, group: str, member: str) -> None:
        self._broker = broker
        self._group = group
        self._member = member
        # By partition, in the order of the request: why it was refused; None if it is committed.
        self.refusals: dict[TopicPartition, KafkaError | None] = {}
        self.left = 0  # partitions whose outcome is not known yet
        self.waiting: dict[WaitingRequest, None] = {}

    def take(
        self,
        call: Call,
        key: TopicPartition,
        batches: Sequence[AcknowledgementBatch],
        *,
        renews: bool,
    ) -> None:
        """`renews`: the request says that it may hold acknowledgements of type RENEW."""
        if not batches:
            return
        self.refusals[key] = None
        self.left += 1
        try:
            acknowledgements = checked(batches, renews=renews)
            self._require_readable(call, key)
            self._acknowledge(key, acknowledgements)
        except KafkaError as refused:
            self._ended(key, refused)

    def _require_readable(self, call: Call, key: TopicPartition) -> None:
        topic = self._broker.image.topics_by_id.get(key[0])
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not may(self._broker, call, Operation.READ, TOPIC, topic.name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if not 0 <= key[1] < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _acknowledge(self, key: TopicPartition, acknowledgements: list[Acknowledgement]) -> None:
        broker = self._broker
        part = broker.shared.find(self._group, *key)
        if part is None:
            broker.topics.leader_by_id(*key)  # refuses if it is not here
            # As Apache Kafka 4.3: the share partition is not open, so the member holds nothing.
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The group holds no records of the partition."
            )
        settings = broker.groups.share_settings(self._group)
        if not settings.renews and _renews(acknowledgements):
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE,
                "Renewing acquisition locks is not enabled for the group.",
            )
        broker.shared.acknowledge(
            part, self._member, acknowledgements, lambda code: self._answered(key, code)
        )

    def _answered(self, key: TopicPartition, code: ErrorCode) -> None:
        self._ended(key, None if code == ErrorCode.NONE else KafkaError(code, code.description))

    def _ended(self, key: TopicPartition, refused: KafkaError | None) -> None:
        self.refusals[key] = refused
        self.left -= 1
        if not self.left and self.waiting:
            self._broker.purgatory.wake(self)

    def give_up(self) -> None:
        """Answer at the deadline: whether the rest is committed is unknown."""
        if self.left:
            self.left = 0
            late = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            self.refusals = {key: found or late for key, found in self.refusals.items()}


def checked(batches: Sequence[AcknowledgementBatch], *, renews: bool) -> list[Acknowledgement]:
    most = AcknowledgeType.RENEW if renews else AcknowledgeType.REJECT
    for batch in batches:
        if any(not 0 <= kind <= most for kind in batch.acknowledge_types):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
    return [
        Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
        for batch in batches
    ]


def _renews(acknowledgements: Sequence[Acknowledgement]) -> bool:
    return any(AcknowledgeType.RENEW in each.types for each in acknowledgements)
