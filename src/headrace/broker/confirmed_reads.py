"""Reads of coordinators that their in-sync followers confirm: nobody else has led meanwhile.

A coordinator that is cut off does not know that it was deposed, and what it has in memory may be
old. So before it tells an offset it waits until every replica that might have been elected has
asked it for more as a follower of this leader epoch, in answer to something that left here after
the read began. No clock is asked and no controller: a follower that still follows has not led.

Fetches of followers wait here for records, so a read has them answered at once: it costs one round
trip. Reads that begin between two answers to followers share one confirmation. A session's fetch
speaks for all partitions of the session (KIP-227), so a follower without one confirms nothing;
`fetch_sessions.py` gives every follower one. A partition with a single replica needs none of this.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.fetch_sessions import FetchSession
from headrace.replication.replica import PartitionLeader
from headrace.serving.purgatory import Purgatory


class Read:
    """What one or more readers of a partition wait for."""

    __slots__ = ("leader", "led_since", "after", "until_ms", "confirmed", "waiting")

    def __init__(self, leader: PartitionLeader, after: int) -> None:
        self.leader = leader
        self.led_since = leader.led_since
        self.after = after  # how many answers followers had got when it began
        self.until_ms = 0  # nobody waits any longer
        self.confirmed: set[int] = set()
        self.waiting: dict[Any, None] = {}

    @property
    def is_confirmed(self) -> bool:
        """By all that may have been elected. Asked anew each time: whoever has left the in-sync
        replicas since, left them while this replica led."""
        return self.confirmed >= self.leader.possible_successors()

    def concerns(self, session: FetchSession, follower: int) -> bool:
        """The session follows this partition in the epoch that we lead. One that names a later
        epoch may have led since, and one that forgot the partition may lead now."""
        key = self.leader.sessions.get(session)
        entry = None if key is None else session.entries.get(key)
        if entry is None or entry.leader_epoch != self.leader.epoch:
            return False
        return follower not in self.confirmed and follower in self.leader.possible_successors()


class ConfirmedReads:
    """Of all coordinators of a broker."""

    __slots__ = ("pending", "_answers", "_purgatory")

    def __init__(self, purgatory: Purgatory) -> None:
        self.pending: list[Read] = []  # in the order in which they began
        self._answers = 0  # to fetches of followers
        self._purgatory = purgatory

    def begin(self, leader: PartitionLeader, now_ms: int, until_ms: int) -> Read:
        self._drop_late(now_ms)
        read = self._to_share(leader)
        if read is None:
            read = Read(leader, self._answers)
            if read.is_confirmed:  # nobody else could lead
                return read
            self.pending.append(read)
            for session in leader.sessions:
                if session.is_followers and session.waiting:
                    self._purgatory.wake(session)
        read.until_ms = max(read.until_ms, until_ms)
        return read

    def _to_share(self, leader: PartitionLeader) -> Read | None:
        """One to which nothing has happened since it began."""
        for read in reversed(self.pending):
            if read.after != self._answers:
                return None
            if read.leader is leader and read.led_since == leader.led_since:
                return read
        return None

    def is_hurried(self, session: FetchSession, follower: int) -> bool:
        """Its fetch is to be answered now: what it asks then, it asks after a read began."""
        return any(
            session.answered_at <= read.after and read.concerns(session, follower)
            for read in self.pending
        )

    def answered(self, session: FetchSession) -> None:
        """A follower's fetch gets its answer."""
        self._answers += 1
        session.answered_at = self._answers

    def fetched(self, session: FetchSession, follower: int, now_ms: int) -> None:
        """A follower asks on, having got the last answer of its session."""
        self._drop_late(now_ms)
        for read in self.pending:
            if session.answered_at > read.after and read.concerns(session, follower):
                read.confirmed.add(follower)
        done = [read for read in self.pending if read.is_confirmed]
        for read in done:
            self.pending.remove(read)
            self._purgatory.wake(read)

    def _drop_late(self, now_ms: int) -> None:
        if self.pending and self.pending[0].until_ms < now_ms:
            self.pending = [read for read in self.pending if read.until_ms >= now_ms]
