"""Changes of in-sync replicas that this broker's leaders propose, on their way to the controller.

A leader has at most one proposal open, and a broker at most one AlterPartition request in flight,
as Apache Kafka does; proposals made in the meantime go with a later request. A request names a
bounded number of partitions: the controller decides it in one turn, and every node replays it in
one. A proposal that was not answered is sent again as it was: the partition epoch in it lets the
controller apply it only once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)

# Apache's wait before a request that failed is sent again.
RETRY_MS = 50
# About 40 us each, on the controller and again on every node.
MOST_PER_REQUEST = 500


@dataclass(slots=True)
class IsrProposal:
    topic_id: bytes
    index: int
    leader_epoch: int
    partition_epoch: int  # the change counts only if nothing else has changed the partition
    isr: list[tuple[int, int]]  # broker and its epoch; an epoch of -1 is not checked
    recovery_state: int = 0


class Proposer(Protocol):
    """A leader that proposes an ISR, and gets the controller's answer."""

    def proposal_answered(self, proposal: IsrProposal, answer: ResponsePartitionData) -> bool:
        """Returns whether to send the same proposal again."""
        ...


Key = tuple[bytes, int]  # topic id and partition


class IsrChanges:
    __slots__ = ("_waiting", "_in_flight", "_retry_at_ms")

    def __init__(self) -> None:
        self._waiting: dict[Key, tuple[Proposer, IsrProposal]] = {}
        self._in_flight: dict[Key, tuple[Proposer, IsrProposal]] = {}
        self._retry_at_ms = 0

    def propose(self, proposer: Proposer, proposal: IsrProposal) -> None:
        self._waiting[proposal.topic_id, proposal.index] = proposer, proposal

    def withdraw(self, topic_id: bytes, index: int) -> None:
        """The metadata have overtaken it."""
        self._waiting.pop((topic_id, index), None)

    def next_request(
        self, broker_id: int, broker_epoch: int, now_ms: int
    ) -> AlterPartitionRequest | None:
        """The request to send to the active controller now; its answer goes to `answered`."""
        if self._in_flight or not self._waiting or now_ms < self._retry_at_ms:
            return None
        self._in_flight = dict(islice(self._waiting.items(), MOST_PER_REQUEST))
        for key in self._in_flight:
            del self._waiting[key]
        topics: dict[bytes, RequestTopicData] = {}
        for (topic_id, index), (_, proposal) in self._in_flight.items():
            topic = topics.setdefault(topic_id, RequestTopicData(topic_id=topic_id))
            topic.partitions.append(
                RequestPartitionData(
                    partition_index=index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[BrokerState(*member) for member in proposal.isr],
                    leader_recovery_state=proposal.recovery_state,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(broker_id, broker_epoch, list(topics.values()))

    def answered(self, response: AlterPartitionResponse | None, now_ms: int) -> None:
        """Take the controller's answer. None: no answer came, or the controller has moved."""
        asked, self._in_flight = self._in_flight, {}
        if response is None or response.error_code != ErrorCode.NONE:
            self._retry(asked, now_ms)
            return
        again: dict[Key, tuple[Proposer, IsrProposal]] = {}
        for topic in response.topics:
            for answer in topic.partitions:
                key = topic.topic_id, answer.partition_index
                found = asked.pop(key, None)
                if found is None:
                    continue
                proposer, proposal = found
                if proposer.proposal_answered(proposal, answer):
                    again[key] = found
        self._retry(asked | again, now_ms)

    def _retry(self, proposals: dict[Key, tuple[Proposer, IsrProposal]], now_ms: int) -> None:
        if proposals:
            self._retry_at_ms = now_ms + RETRY_MS
            for key, each in proposals.items():  # after those that have not been sent yet
                self._waiting.setdefault(key, each)  # a newer proposal replaces the older one
