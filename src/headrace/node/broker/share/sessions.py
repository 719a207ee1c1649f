"""Share sessions: the partitions that a member fetches from this broker, named once.

A session belongs to a group and a member, and to the connection that used it last. Epoch 0 begins
one, -1 ends it, and each request between them carries the next number. It also ends when its
connection does: the member may be dead, and what it holds is given back at once instead of when
the locks expire (as Apache Kafka 4.3 does it). All sessions together have at most MOST_PARTITIONS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headrace.node.serving.api import Peer
from headrace.wire.protocol.errors import ErrorCode, KafkaError

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
LAST_EPOCH = 2**31 - 1
# In all sessions; about 200 bytes each. Apache bounds only the number of sessions.
MOST_PARTITIONS = 300_000

TopicPartition = tuple[bytes, int]  # topic id, partition


class ShareSession:
    __slots__ = ("group", "member", "epoch", "partitions", "peer", "turn")

    def __init__(self, group: str, member: str, peer: Peer) -> None:
        self.group = group
        self.member = member
        self.peer = peer
        self.epoch = 1  # what the next request must carry
        self.partitions: dict[TopicPartition, None] = {}
        self.turn = 0  # each fetch begins with another partition

    def in_turn(self) -> list[TopicPartition]:
        """Returns all partitions; each call begins with the one after the first of the call
        before."""
        found = list(self.partitions)
        if found:
            first = self.turn % len(found)
            self.turn += 1
            found = found[first:] + found[:first]
        return found


class ShareSessions:
    """All share sessions of a broker. `ended` is called with each one that has ended."""

    __slots__ = ("_sessions", "_by_peer", "_of_group", "_ended", "_partitions")

    def __init__(self, ended: Callable[[ShareSession, bool], None]) -> None:
        """`ended` also gets whether it was the last session of its group."""
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_peer: dict[Peer, set[tuple[str, str]]] = {}
        self._of_group: dict[str, int] = {}
        self._ended = ended
        self._partitions = 0  # in all sessions

    def __len__(self) -> int:
        return len(self._sessions)

    def has_any(self, group: str) -> bool:
        return group in self._of_group

    def begin(
        self, group: str, member: str, peer: Peer, wanted: Iterable[TopicPartition], most: int
    ) -> ShareSession:
        """Returns a new session; the member's earlier session is forgotten, and its acquired
        records stay acquired."""
        before = self._sessions.get((group, member))
        if before is not None:
            self._remove(before)
        if len(self._sessions) >= most:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = ShareSession(group, member, peer)
        self._sessions[group, member] = session
        self._of_group[group] = self._of_group.get(group, 0) + 1
        self._attach(session, peer)
        try:
            self._add(session, wanted)
        except KafkaError:
            self._remove(session)
            raise
        return session

    def resume(self, group: str, member: str, epoch: int, peer: Peer) -> ShareSession:
        """Returns the session of a request that continues or ends it. The final epoch ends it in
        any state."""
        session = self._sessions.get((group, member))
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch != FINAL_EPOCH:
            if session.epoch != epoch:
                raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session.epoch = 1 if epoch == LAST_EPOCH else epoch + 1
        if session.peer is not peer:
            self._detach(session)
            self._attach(session, peer)
        return session

    def change(
        self,
        session: ShareSession,
        added: Iterable[TopicPartition],
        forgotten: Iterable[TopicPartition],
    ) -> None:
        self._add(session, added)
        for partition in forgotten:
            if partition in session.partitions:
                del session.partitions[partition]
                self._partitions -= 1

    def end(self, session: ShareSession) -> None:
        if self._sessions.get((session.group, session.member)) is session:
            self._remove(session)
            self._ended(session, session.group not in self._of_group)

    def _add(self, session: ShareSession, wanted: Iterable[TopicPartition]) -> None:
        new = [each for each in wanted if each not in session.partitions]
        if self._partitions + len(new) > MOST_PARTITIONS:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        before = len(session.partitions)
        session.partitions.update(dict.fromkeys(new))
        self._partitions += len(session.partitions) - before

    def _attach(self, session: ShareSession, peer: Peer) -> None:
        session.peer = peer
        if peer not in self._by_peer:
            self._by_peer[peer] = set()
            peer.when_closed = self._closed
        self._by_peer[peer].add((session.group, session.member))

    def _detach(self, session: ShareSession) -> None:
        keys = self._by_peer[session.peer]
        keys.discard((session.group, session.member))
        if not keys:
            del self._by_peer[session.peer]
            session.peer.when_closed = None

    def _closed(self, peer: Any) -> None:
        for key in list(self._by_peer.get(peer, ())):
            self.end(self._sessions[key])

    def _remove(self, session: ShareSession) -> None:
        del self._sessions[session.group, session.member]
        self._partitions -= len(session.partitions)
        self._detach(session)
        left = self._of_group[session.group] - 1
        if left:
            self._of_group[session.group] = left
        else:
            del self._of_group[session.group]
