"""Fetches of this broker from one leader: all partitions in one request, one request at a time.

A fetch session (KIP-227) is opened by a request that names every partition; later requests name
only partitions whose position has changed, and forgotten ones. An answer is taken partition by
partition (`FollowerRole.take`), which may take several turns of the loop; the next request leaves
when all of it is taken. When the session is unknown to the leader, or no answer came, the next
request opens a new one. A request looks only at partitions that were *marked*: added, answered, or
not fetched last time. 1,000 partitions at rest cost nothing. If the leader does not have the offset
of a partition, ListOffsets asks for the ends of the leader's log before the next fetch. With
durability `disk` a fetch waits until all records of the last one are flushed, since a fetch
confirms that this broker has them. Pure: makes requests, takes answers, sends nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from headrace.node.replication.partition_follower import FollowerRole, Position
from headrace.node.replication.replica import Replica
from headrace.node.replication.this_broker import ThisBroker
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from headrace.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

log = logging.getLogger(__name__)

Key = tuple[bytes, int]  # topic id and partition
NO_SESSION = 0
LAST_SESSION_EPOCH = 0x7FFFFFFF
SESSION_IS_GONE = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
# ListOffsets' words for the two ends of a log.
TIMESTAMPS = {"end": -1, "start": -2}


class ReplicaFetcher:
    __slots__ = (
        "leader",
        "broker",
        "replicas",
        "_session",
        "_session_epoch",
        "_broker_epoch",
        "_named",
        "_marked",
        "_is_busy",
        "_bounds_asked",
        "_next_at_ms",
    )

    def __init__(self, broker: ThisBroker, leader: int) -> None:
        self.broker = broker
        self.leader = leader
        self.replicas: dict[Key, Replica[Any]] = {}  # the followers of this leader
        self._session = NO_SESSION
        self._session_epoch = 0  # of the next request
        self._broker_epoch = broker.epoch  # of this broker's registration, as the session began
        # The partitions of the last request; within a session the leader knows them.
        self._named: dict[Key, Position] = {}
        self._marked: dict[Key, None] = {}  # those whose position may be another by now
        self._is_busy = False  # a request is not answered yet, or its answer not taken
        self._bounds_asked: dict[tuple[str, int], tuple[FollowerRole, str, int]] | None = None
        self._next_at_ms = 0

    def add(self, replica: Replica[Any]) -> None:
        """To be called again whenever its role may have changed."""
        key = replica.topic_id, replica.index
        self.replicas[key] = replica
        self._marked[key] = None

    def rest_no_more(self) -> None:
        """Fetch again without waiting: the metadata show a change of the leader, so it may answer
        again."""
        self._next_at_ms = 0

    def remove(self, topic_id: bytes, index: int) -> None:
        if self.replicas.pop((topic_id, index), None) is not None:
            self._marked[topic_id, index] = None

    @property
    def is_busy(self) -> bool:
        return self._is_busy

    # Requests

    def next_request(self, now_ms: int, wall_ms: int) -> FetchRequest | ListOffsetsRequest | None:
        """The request to send now; None: nothing to send, or an answer is awaited."""
        if self._is_busy or now_ms < self._next_at_ms or self._awaits_flush():
            return None
        if question := self._question():
            return question
        if self._broker_epoch != self.broker.epoch:
            # The leader gets the epoch with each partition that a request names, so all must be
            # named.
            self._broker_epoch, self._session = self.broker.epoch, NO_SESSION
        if self._session == NO_SESSION:
            self._named, self._session_epoch = {}, 0
            self._marked = dict.fromkeys(self.replicas)
        changed: dict[Key, Position] = {}
        forgotten: list[Key] = []
        resting: dict[Key, None] = {}
        for key in self._marked:
            position = self._position(key, now_ms, wall_ms)
            if position is None:
                if self._named.pop(key, None) is not None:
                    forgotten.append(key)
                if key in self.replicas:
                    resting[key] = None
            elif self._named.get(key) != position:
                changed[key] = self._named[key] = position
        self._marked = resting
        if not self._named:
            self._session = NO_SESSION  # the leader closes one that has nothing left
            return None
        return self._fetch(changed, forgotten)

    def _awaits_flush(self) -> bool:
        return any(
            replica.vouched_end() < replica.log.end_offset
            for replica in map(self.replicas.get, self._marked)
            if replica is not None and replica.is_durable
        )

    def _position(self, key: Key, now_ms: int, wall_ms: int) -> Position | None:
        replica = self.replicas.get(key)
        following = None if replica is None else replica.following
        if following is None or following.leader != self.leader:
            return None
        if self.broker.is_held_back(replica, now_ms):
            return None
        return following.fetch_position(now_ms, wall_ms)

    def _fetch(self, changed: dict[Key, Position], forgotten: list[Key]) -> FetchRequest:
        settings = self.broker.settings
        self._is_busy = True
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
        for key in self._marked:
            replica = self.replicas.get(key)
            following = None if replica is None else replica.following
            if replica is None or following is None:
                continue
            if not following.lost or following.leader != self.leader:
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
        self._bounds_asked, self._is_busy = asked, True
        return ListOffsetsRequest(replica_id=self.broker.id, topics=list(topics.values()))

    # Answers

    def answered(self, response: FetchResponse, now_ms: int, wall_ms: int) -> None:
        for _ in self.take(response, now_ms, wall_ms):
            pass

    def take(self, response: FetchResponse, now_ms: int, wall_ms: int) -> Iterator[Replica[Any]]:
        """Partition by partition; gives each replica that has taken something. Roles may change
        between two of them: an answer that is not for the current one is left alone."""
        if response.error_code != ErrorCode.NONE:
            self._refused(response.error_code, now_ms)
            return
        self._go_on(response.session_id)
        for topic in response.responses:
            for answer in topic.partitions:
                key = topic.topic_id, answer.partition_index
                self._marked[key] = None
                replica = self.replicas.get(key)
                position = self._named.get(key)
                if replica is None or position is None or replica.following is None:
                    continue
                replica.following.take(position, answer, now_ms, wall_ms)
                yield replica
        self._is_busy = False

    def _refused(self, code: int, now_ms: int) -> None:
        """A session that the leader has lost is replaced at once; other refusals may be repeated,
        so wait."""
        self._is_busy = False
        self._session = NO_SESSION
        if code not in SESSION_IS_GONE:
            log.warning("broker %d refuses a fetch with error %d", self.leader, code)
            self._next_at_ms = now_ms + self.broker.settings.fetch_backoff_ms

    def _go_on(self, session: int) -> None:
        """The leader keeps the session, has made one, or has no room for one."""
        self._session = session
        epoch = self._session_epoch
        self._session_epoch = 1 if epoch == LAST_SESSION_EPOCH else epoch + 1

    def bounds_answered(
        self, response: ListOffsetsResponse, now_ms: int, wall_ms: int
    ) -> list[Replica[Any]]:
        """Returns the replicas that have got an answer; their logs may be shorter now."""
        told = []
        asked, self._bounds_asked = self._bounds_asked or {}, None
        self._is_busy = False
        for topic in response.topics:
            for answer in topic.partitions:
                found = asked.get((topic.name, answer.partition_index))
                if found is None:
                    continue
                following, question, epoch = found
                told.append(following.replica)
                if answer.error_code == ErrorCode.NONE:
                    following.bounds_are(question, epoch, answer.offset, wall_ms)
                else:
                    following.back_off(now_ms)
                    following.lost = ""
        return told

    def failed(self, now_ms: int) -> None:
        """No answer will come: the connection has ended, or the answer took too long."""
        self._is_busy, self._bounds_asked = False, None
        self._session = NO_SESSION
        self._next_at_ms = now_ms + self.broker.settings.fetch_backoff_ms


def _forgotten_topics(keys: list[Key]) -> Iterator[ForgottenTopic]:
    topics: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in keys:
        topic = topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id))
        topic.partitions.append(index)
    yield from topics.values()
