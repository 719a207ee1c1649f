"""Fetches of this broker from one other that leads: all partitions in one request, one at a time.

A fetch session (KIP-227) is opened by a request that names every partition; from then on requests
name those whose position has changed, and those that are forgotten. An answer is taken partition by
partition (`FollowerRole.take`); one that belongs to another request than the last is nobody's.
When the session is unknown to the leader, or no answer came, the next request opens a new one.
A partition for which the leader does not have the offset asks where the leader's log ends and
begins (ListOffsets) before it fetches again. Pure: makes requests, takes answers, sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.replication.partition_follower import FollowerRole, Position
from headrace.replication.replica import Replica
from headrace.replication.this_broker import ThisBroker

Key = tuple[bytes, int]  # topic id and partition
NO_SESSION = 0
LAST_SESSION_EPOCH = 0x7FFFFFFF
# ListOffsets' words for the two ends of a log.
TIMESTAMPS = {"end": -1, "start": -2}


class ReplicaFetcher:
    __slots__ = (
        "leader",
        "broker",
        "replicas",
        "_session",
        "_session_epoch",
        "_named",
        "_in_flight",
        "_bounds_asked",
        "_next_at_ms",
    )

    def __init__(self, broker: ThisBroker, leader: int) -> None:
        self.broker = broker
        self.leader = leader
        self.replicas: dict[Key, Replica[Any]] = {}  # those that follow this leader
        self._session = NO_SESSION
        self._session_epoch = 0  # of the next request
        self._named: dict[Key, Position] = {}  # what the session knows
        self._in_flight: dict[Key, Position] | None = None  # of a fetch that is not answered
        self._bounds_asked: dict[tuple[str, int], tuple[FollowerRole, str, int]] | None = None
        self._next_at_ms = 0

    def add(self, replica: Replica[Any]) -> None:
        self.replicas[replica.topic_id, replica.index] = replica

    def remove(self, topic_id: bytes, index: int) -> None:
        self.replicas.pop((topic_id, index), None)

    @property
    def is_busy(self) -> bool:
        return self._in_flight is not None or self._bounds_asked is not None

    # Requests

    def next_request(self, now_ms: int, wall_ms: int) -> FetchRequest | ListOffsetsRequest | None:
        """What to send now; None: nothing, or an answer is awaited."""
        if self.is_busy or now_ms < self._next_at_ms:
            return None
        if question := self._question():
            return question
        positions: dict[Key, Position] = {}
        for key, replica in self.replicas.items():
            following = replica.following
            if following is None or following.leader != self.leader:
                continue
            position = following.fetch_position(now_ms, wall_ms)
            if position is not None:
                positions[key] = position
        if not positions:
            return None
        return self._fetch(positions)

    def _fetch(self, positions: dict[Key, Position]) -> FetchRequest:
        settings = self.broker.settings
        if self._session == NO_SESSION:
            self._named, self._session_epoch = {}, 0
        changed = {
            key: position for key, position in positions.items() if self._named.get(key) != position
        }
        forgotten = [key for key in self._named if key not in positions]
        self._named = dict(positions)
        self._in_flight = positions
        return FetchRequest(
            replica_state=ReplicaState(self.broker.id, self.broker.epoch),
            max_wait_ms=settings.fetch_wait_max_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_response_max_bytes,
            session_id=self._session,
            session_epoch=self._session_epoch,
            topics=list(self._topics(changed)),
            forgotten_topics_data=list(_forgotten_topics(forgotten)),
        )

    def _topics(self, positions: dict[Key, Position]) -> Iterator[FetchTopic]:
        topics: dict[bytes, FetchTopic] = {}
        for (topic_id, index), position in positions.items():
            topic = topics.setdefault(topic_id, FetchTopic(topic_id=topic_id))
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.offset,
                    last_fetched_epoch=position.last_epoch,
                    log_start_offset=position.start_offset,
                    partition_max_bytes=self.broker.settings.fetch_max_bytes,
                    high_watermark=self.replicas[topic_id, index].high_watermark,
                )
            )
        yield from topics.values()

    def _question(self) -> ListOffsetsRequest | None:
        asked: dict[tuple[str, int], tuple[FollowerRole, str, int]] = {}
        topics: dict[str, ListOffsetsTopic] = {}
        for replica in self.replicas.values():
            following = replica.following
            if following is None or not following.lost or following.leader != self.leader:
                continue
            asked[replica.topic, replica.index] = following, following.lost, following.epoch
            topic = topics.setdefault(replica.topic, ListOffsetsTopic(replica.topic))
            topic.partitions.append(
                ListOffsetsPartition(
                    replica.index, following.epoch, timestamp=TIMESTAMPS[following.lost]
                )
            )
        if not asked:
            return None
        self._bounds_asked = asked
        return ListOffsetsRequest(replica_id=self.broker.id, topics=list(topics.values()))

    # Answers

    def answered(self, response: FetchResponse, now_ms: int, wall_ms: int) -> None:
        asked, self._in_flight = self._in_flight or {}, None
        if response.error_code != ErrorCode.NONE:
            self._session = NO_SESSION
            return
        self._go_on(response.session_id)
        for topic in response.responses:
            for answer in topic.partitions:
                key = topic.topic_id, answer.partition_index
                replica = self.replicas.get(key)
                position = asked.get(key)
                if replica is None or position is None or replica.following is None:
                    continue
                replica.following.take(position, answer, now_ms, wall_ms)

    def _go_on(self, session: int) -> None:
        """The leader keeps the session, has made one, or has no room for one."""
        self._session = session
        epoch = self._session_epoch
        self._session_epoch = 1 if epoch == LAST_SESSION_EPOCH else epoch + 1

    def bounds_answered(self, response: ListOffsetsResponse, now_ms: int, wall_ms: int) -> None:
        asked, self._bounds_asked = self._bounds_asked or {}, None
        for topic in response.topics:
            for answer in topic.partitions:
                found = asked.get((topic.name, answer.partition_index))
                if found is None:
                    continue
                following, question, epoch = found
                if answer.error_code == ErrorCode.NONE:
                    following.bounds_are(question, epoch, answer.offset, wall_ms)
                else:
                    following.back_off(now_ms)
                    following.lost = ""

    def failed(self, now_ms: int) -> None:
        """No answer will come: the connection is gone, or it took too long."""
        self._in_flight = self._bounds_asked = None
        self._session = NO_SESSION
        self._next_at_ms = now_ms + self.broker.settings.fetch_backoff_ms


def _forgotten_topics(keys: list[Key]) -> Iterator[ForgottenTopic]:
    topics: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in keys:
        topic = topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id))
        topic.partitions.append(index)
    yield from topics.values()
