"""Reads of coordinators that in-sync followers confirm: no other broker has led meanwhile.

A coordinator without network does not know that it was replaced, and its state in memory may be
old. So before it sends an offset it waits until every replica that might have been elected has sent
a fetch as a follower of this leader epoch, in response to an answer that left here after the read
began. No clock is needed and no controller: a follower that still follows has not led.

Fetches of followers wait here for records, so a read has them answered at once: it costs one round
trip. Answers to followers are counted; a follower's fetch confirms all reads that began before the
answer that it has got, so a fetch costs the same however many reads wait for other followers. Reads
that begin between two answers share one confirmation. A session's fetch speaks for all partitions
of the session (KIP-227), so a follower without one confirms nothing; `fetch_sessions.py` gives
every follower one. A partition with a single replica needs none of this.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from headrace.node.broker.records.fetch_sessions import FetchSession
from headrace.node.replication.replica import PartitionLeader
from headrace.node.serving.purgatory import Purgatory

NEVER = -1


class Read:
    """The condition that one or more readers of a partition wait for."""

    __slots__ = ("leader", "led_since", "after", "until_ms", "heard", "waiting")

    def __init__(self, leader: PartitionLeader, after: int, heard: dict[int, int]) -> None:
        self.leader = leader
        self.led_since = leader.led_since
        self.after = after  # answers that followers had got when it began
        self.until_ms = 0  # after that, no request waits for it
        self.heard = heard  # of all reads of this leader: the last answer each follower got
        self.waiting: dict[Any, None] = {}

    @property
    def is_confirmed(self) -> bool:
        """Returns whether all replicas that may have been elected have confirmed the read. The list
        is computed each time: a replica that has left the in-sync replicas left them while this
        replica led."""
        heard, after = self.heard, self.after
        return all(heard.get(one, NEVER) > after for one in self.leader.possible_successors())


class ConfirmedReads:
    """The reads of a broker's coordinators that wait for their confirmation."""

    __slots__ = ("pending", "_answers", "_purgatory")

    def __init__(self, purgatory: Purgatory) -> None:
        # In the order in which they began: each is confirmed after those before it.
        self.pending: dict[PartitionLeader, deque[Read]] = {}
        self._answers = 0  # to fetches of followers
        self._purgatory = purgatory

    def begin(self, leader: PartitionLeader, now_ms: int, until_ms: int) -> Read:
        reads = self.pending.get(leader)
        if reads is not None:
            drop_late(reads, leader, now_ms)
        newest = reads[-1] if reads else None
        if newest is not None and newest.after == self._answers:
            read = newest  # nothing has happened since it began
        else:
            read = Read(leader, self._answers, {} if newest is None else newest.heard)
            if read.is_confirmed:  # no other broker could lead
                return read
            self.pending.setdefault(leader, deque()).append(read)
            for session in leader.sessions:
                if session.is_followers and session.waiting:
                    self._purgatory.wake(session)
        read.until_ms = max(read.until_ms, until_ms)
        return read

    def is_hurried(self, session: FetchSession, follower: int) -> bool:
        """Returns whether the follower's fetch must be answered now: its next fetch then comes
        after the read began, and confirms it."""
        return any(
            reads
            and session.answered_at <= reads[-1].after
            and is_following(session, leader)
            and follower in leader.possible_successors()
            for leader, reads in self.pending.items()
        )

    def answered(self, session: FetchSession) -> None:
        """Count the answer to a follower's fetch."""
        self._answers += 1
        session.answered_at = self._answers

    def fetched(self, session: FetchSession, follower: int, now_ms: int) -> None:
        """A follower sends its next fetch, so it has got the last answer of its session."""
        for leader, reads in list(self.pending.items()):
            drop_late(reads, leader, now_ms)
            if reads and is_following(session, leader):
                heard = reads[-1].heard
                heard[follower] = max(session.answered_at, heard.get(follower, NEVER))
            while reads and reads[0].is_confirmed:
                self._purgatory.wake(reads.popleft())
            if not reads:
                del self.pending[leader]


def is_following(session: FetchSession, leader: PartitionLeader) -> bool:
    """Returns whether the session follows in the epoch that this replica leads. A session with a
    later epoch belongs to a broker that may have led since; a session without the partition may
    belong to a broker that leads now."""
    key = leader.sessions.get(session)
    entry = None if key is None else session.entries.get(key)
    return entry is not None and entry.leader_epoch == leader.epoch


def drop_late(reads: deque[Read], leader: PartitionLeader, now_ms: int) -> None:
    """Drop reads that no request waits for any more, and reads of an earlier term as the leader."""
    while reads and (reads[0].until_ms < now_ms or reads[0].led_since != leader.led_since):
        reads.popleft()
