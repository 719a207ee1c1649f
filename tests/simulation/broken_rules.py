"""Rules of the quorum, each broken on purpose: the simulator's fixed seeds must catch every one.

A broken rule is a patch of one small function, in the process that runs the seeds. None of the
checks is aimed at a rule: they only know what must be true of all nodes (`checkers.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.node.consensus.quorum import (
    elections,
    leadership,
    messages,
    quorum_log,
    roles,
    vote_rules,
    voter_history,
)
from headrace.node.consensus.quorum.effects import Committed
from headrace.node.consensus.quorum.fetcher import Fetcher
from headrace.node.consensus.quorum.leadership import Leadership
from headrace.node.consensus.quorum.messages import NOBODY
from headrace.node.consensus.quorum.roles import Leader, Unattached
from headrace.node.consensus.quorum.voter_changes import VoterChanges
from headrace.node.simulator.memory_log import MemoryLog, MemoryState
from headrace.node.simulator.quorum_cluster import QuorumCluster

Patch = pytest.MonkeyPatch


def forget_the_vote(patch: Patch) -> None:
    write = MemoryState.write
    patch.setattr(MemoryState, "write", lambda s, e: write(s, e._replace(voted=None)))


def forget_the_leader(patch: Patch) -> None:
    """A node that restarts may vote again in the epoch whose leader it was or had followed."""
    write = MemoryState.write
    patch.setattr(MemoryState, "write", lambda s, e: write(s, e._replace(leader_id=NOBODY)))


def forget_the_epoch(patch: Patch) -> None:
    patch.setattr(MemoryState, "read", lambda self: quorum_log.Election())


def vote_twice(patch: Patch) -> None:
    def grants(role: Any, request: Any, mine: Any) -> bool:
        if not request.pre_vote and isinstance(role, Unattached):
            return vote_rules.is_up_to_date(request, mine)
        return vote_rules.grants(role, request, mine)

    patch.setattr(elections, "grants", grants)


def vote_for_a_shorter_log(patch: Patch) -> None:
    patch.setattr(vote_rules, "is_up_to_date", lambda request, mine: True)


def compare_logs_by_length(patch: Patch) -> None:
    """A longer log of an older epoch wins the vote."""
    by_length = lambda request, mine: request.last_offset >= mine.offset  # noqa: E731
    patch.setattr(vote_rules, "is_up_to_date", by_length)


def elect_by_half(patch: Patch) -> None:
    patch.setattr(roles, "majority_of", lambda voters: max(len(voters) // 2, 1))


def fetch_before_the_flush(patch: Patch) -> None:
    patch.setattr(Fetcher, "disk_lags", lambda self: False)


def count_what_the_leader_has_not_flushed(patch: Patch) -> None:
    patch.setattr(Leadership, "flushed_end", lambda self: self._quorum.log.end_offset)


def flush_proves_what_was_truncated(patch: Patch) -> None:
    """A flush that began before a truncation counts for what was appended after it."""

    def truncate(log: MemoryLog, to_offset: int, *, wall_ms: int) -> None:
        while log.batches and log.batches[-1].end_offset > to_offset:
            log.batches.pop()

    patch.setattr(MemoryLog, "truncate", truncate)


def commit_what_the_leader_alone_has(patch: Patch) -> None:
    patch.setattr(Leader, "commit_point", lambda self, voters, me, my_end: my_end)


def count_observers_as_voters(patch: Patch) -> None:
    def commit_point(leader: Leader, voters: Any, me: Any, my_end: int) -> int:
        ends = [my_end, *(progress.end_offset for progress in leader.progress.values())]
        majority = voter_history.majority_of(voters)
        return sorted(ends, reverse=True)[majority - 1] if len(ends) >= majority else NOBODY

    patch.setattr(Leader, "commit_point", commit_point)


def commit_records_of_older_epochs(patch: Patch) -> None:
    """Figure 8 of the Raft paper."""
    patch.setattr(Leader, "may_commit", lambda self, point: point > 0)


def skip_truncation(patch: Patch) -> None:
    """The leader believes every follower whose log is not longer than its own."""

    def diverges(log: Any, offset: int, last_epoch: int) -> Any:
        return None if log.start_offset <= offset <= log.end_offset else log.latest_snapshot()

    patch.setattr(leadership, "diverges", diverges)


def believe_the_leaders_high_watermark(patch: Patch) -> None:
    """A follower applies what it does not have yet."""

    def follow(fetcher: Fetcher, high_watermark: int) -> None:
        quorum = fetcher._quorum
        if high_watermark > quorum.high_watermark:
            quorum.high_watermark = high_watermark
            quorum.effects.append(Committed(high_watermark))

    patch.setattr(Fetcher, "_follow_high_watermark", follow)


def acknowledge_before_the_commit(patch: Patch) -> None:
    append = QuorumCluster.append

    def append_and_acknowledge(cluster: QuorumCluster) -> None:
        append(cluster)
        for member in cluster.members.values():
            for batch in member.unanswered:
                cluster.acknowledge(batch)
            member.unanswered.clear()

    patch.setattr(QuorumCluster, "append", append_and_acknowledge)


def change_voters_before_the_last_change_is_committed(patch: Patch) -> None:
    patch.setattr(VoterChanges, "may_begin", lambda self, role: True)


def keep_voters_that_were_truncated(patch: Patch) -> None:
    patch.setattr(voter_history.VoterHistory, "truncate", lambda self, to_offset: None)
    patch.setattr(voter_history.VoterHistory, "_add", lambda self, e: self._entries.append(e))


def take_a_new_disk_for_the_old_one(patch: Patch) -> None:
    patch.setattr(messages.ReplicaKey, "covers", lambda self, other: self.id == other.id)


# Which of the fixed seeds sees it. After a change of the simulator another one may: the test looks
# through all of them, and `python -m tests.simulation.renew` through more.
CAUGHT_BY: dict[Callable[[Patch], None], int] = {
    forget_the_vote: 22,
    forget_the_leader: 330,
    forget_the_epoch: 1,
    vote_twice: 4,
    vote_for_a_shorter_log: 1,
    compare_logs_by_length: 80,
    elect_by_half: 0,
    fetch_before_the_flush: 2,
    count_what_the_leader_has_not_flushed: 129,
    flush_proves_what_was_truncated: 581,
    commit_what_the_leader_alone_has: 1,
    count_observers_as_voters: 35,
    commit_records_of_older_epochs: 120,
    skip_truncation: 1,
    believe_the_leaders_high_watermark: 1,
    acknowledge_before_the_commit: 2,
    change_voters_before_the_last_change_is_committed: 753,
    keep_voters_that_were_truncated: 116,
    take_a_new_disk_for_the_old_one: 50,
}
