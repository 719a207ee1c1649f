"""Fetch sessions (KIP-227): a client names its partitions once, then only what changed.

A session looks only at partitions that were *marked*: named in this request, appended to, or found
with data last time. 1,000 partitions at rest cost nothing. A waiting incremental fetch waits on its
session, and so does not have to wait on each of the partitions.

Rules: a session id of 0 asks for a new session (epoch 0) or for none (epoch -1); epochs count up
from 1 and wrap to 1; a full cache evicts only a session that has been idle for two minutes,
otherwise the new client works without a session. All sessions together have at most MOST_ENTRIES
partitions: a client that adds one more continues without a session. Followers always get a session,
and keep it while they fetch: if the cache is full, the client session that has been idle longest is
evicted. A follower's session that has not been used for two minutes was replaced by a newer one; it
is closed when the next session is opened.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from headrace.node.replication.replica import PartitionLeader
from headrace.wire.protocol.errors import ErrorCode, KafkaError

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
LAST_EPOCH = 2**31 - 1
EVICT_WHEN_IDLE_MS = 120_000
# Entries in all sessions together; about 400 bytes each. Kafka bounds only the number of sessions,
# and a session may name any number of partitions that do not exist.
MOST_ENTRIES = 300_000

Key = tuple[str | bytes, int]  # topic name (or id, from version 13), partition


class Entry:
    """One partition of a fetch, in a session or not."""

    __slots__ = (
        "topic",
        "topic_id",
        "index",
        "leader",
        "offset",
        "max_bytes",
        "leader_epoch",
        "last_fetched_epoch",
        "start_offset",
        "seen_high_watermark",
        "seen_start_offset",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.leader: PartitionLeader | None = None
        self.offset = 0
        self.max_bytes = 0
        self.leader_epoch = -1
        self.last_fetched_epoch = -1
        self.start_offset = -1  # the log start offset of a follower
        self.seen_high_watermark = -1  # as last sent to the client
        self.seen_start_offset = -1

    def update(self, wanted: Any) -> None:
        """Take over the fields of a request (a generated FetchPartition)."""
        self.offset = wanted.fetch_offset
        self.max_bytes = wanted.partition_max_bytes
        self.leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.start_offset = wanted.log_start_offset


class FetchSession:
    __slots__ = (
        "id",
        "by_id",
        "epoch",
        "entries",
        "marked",
        "waiting",
        "used_at_ms",
        "rights",
        "counted",
        "is_followers",
        "answered_at",
    )

    def __init__(self, session_id: int, *, by_id: bool, is_followers: bool = False) -> None:
        # Invariants: `marked` is a part of `entries`; an entry with a leader is in that leader's
        # `sessions`, which is how an append marks it. So a fetch costs as much as there are marked
        # partitions, however many the session has.
        self.id = session_id
        self.is_followers = is_followers  # a broker that fetches for its replicas uses it
        self.by_id = by_id  # a session speaks in topic ids or in names, not in both
        self.epoch = 1  # what the next request must carry
        self.entries: dict[Key, Entry] = {}
        self.marked: dict[Key, Entry] = {}
        self.waiting: dict[Any, None] = {}
        self.used_at_ms = 0
        self.counted = 0  # entries of this session that are included in the sum over all sessions
        self.answered_at = 0  # which answer to followers its last one was (confirmed_reads.py)
        self.rights = (
            0  # the change of access control entries that its partitions were held against
        )

    def rights_are_of(self, change: int) -> None:
        """Marks all entries if access control entries have changed: a client that may no longer
        read a partition must learn it, even if nothing is appended."""
        if change != self.rights:
            self.rights = change
            self.marked.update(self.entries)

    def add(self, key: Key, entry: Entry) -> None:
        self.entries[key] = entry
        self.marked[key] = entry

    def attach(self, key: Key, entry: Entry, leader: PartitionLeader) -> None:
        """From now on an append at `leader` marks this entry."""
        if entry.leader is leader:
            return
        self.detach(entry)
        entry.leader = leader
        leader.sessions[self] = key

    def detach(self, entry: Entry) -> None:
        if entry.leader is not None:
            entry.leader.sessions.pop(self, None)
            entry.leader = None

    def forget(self, key: Key) -> None:
        entry = self.entries.pop(key, None)
        self.marked.pop(key, None)
        if entry is not None:
            self.detach(entry)

    def close(self) -> None:
        for entry in self.entries.values():
            self.detach(entry)
        self.entries.clear()
        self.marked.clear()

    def advance(self, now_ms: int) -> None:
        self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1
        self.used_at_ms = now_ms


class FetchSessions:
    """All sessions of a broker, least recently used first."""

    __slots__ = ("_sessions", "_slots", "_new_id", "_entries", "evicted")

    def __init__(self, slots: int, new_id: Callable[[], int]) -> None:
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._slots = slots
        self._new_id = new_id  # a random positive 31-bit number
        self._entries = 0  # in all sessions
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def resume(self, session_id: int, epoch: int, *, by_id: bool, now_ms: int) -> FetchSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        # The epoch counts the requests of a session. A request that was lost or repeated would make
        # both sides disagree about what the client knows, so the client must begin a new session.
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._sessions.move_to_end(session_id)
        session.advance(now_ms)
        return session

    def open(self, *, by_id: bool, now_ms: int, is_followers: bool = False) -> FetchSession | None:
        """Returns a new session, or None if the cache is full of sessions in use."""
        if is_followers:
            self._close_forsaken(now_ms)
        if len(self._sessions) >= self._slots:
            if is_followers:
                self._evict_a_client()
            elif not self._evict_idle(now_ms):
                return None
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, by_id=by_id, is_followers=is_followers)
        self._sessions[session_id] = session
        session.used_at_ms = now_ms
        return session

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._entries -= session.counted
            session.close()

    def has_room_for(self, session: FetchSession) -> bool:
        """Returns False if all sessions together have too many partitions. Call it after a request
        has named partitions."""
        self._entries += len(session.entries) - session.counted
        session.counted = len(session.entries)
        return self._entries <= MOST_ENTRIES or session.is_followers

    def _close_forsaken(self, now_ms: int) -> None:
        """Close sessions that followers have abandoned. A follower that was killed or lost its
        connection never names its old session again, and every append would continue to mark its
        partitions."""
        for session in [each for each in self._sessions.values() if each.is_followers]:
            if not session.waiting and now_ms - session.used_at_ms >= EVICT_WHEN_IDLE_MS:
                self.close(session.id)

    def _evict_idle(self, now_ms: int) -> bool:
        oldest = next(self._of_clients(), None)
        if oldest is None or oldest.waiting or now_ms - oldest.used_at_ms < EVICT_WHEN_IDLE_MS:
            return False
        self.close(oldest.id)
        self.evicted += 1
        return True

    def _evict_a_client(self) -> None:
        """Close the client session that has been idle longest. Its next fetch gets an unknown
        session id as the error, and the client opens another session."""
        clients = list(self._of_clients())
        idle = next((session for session in clients if not session.waiting), None)
        found = idle or next(iter(clients), None)
        if found is not None:
            self.close(found.id)
            self.evicted += 1

    def _of_clients(self) -> Iterator[FetchSession]:
        """Yields the sessions of clients; the one that has been idle longest comes first."""
        return (session for session in self._sessions.values() if not session.is_followers)
