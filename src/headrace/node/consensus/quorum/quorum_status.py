"""The state of the quorum as its leader knows it: the answer to DescribeQuorum."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.environment import Now
from headrace.node.consensus.quorum.machine import Quorum
from headrace.node.consensus.quorum.messages import NOBODY, ReplicaKey
from headrace.node.consensus.quorum.roles import Leader, ReplicaProgress
from headrace.node.consensus.quorum.voter_history import key_of
from headrace.node.consensus.voters import VoterEndpoint

# An observer that has not fetched for so long is not named any more, as at Apache's leader.
OBSERVER_SESSION_MS = 300_000


@dataclass(slots=True)
class ReplicaStatus:
    key: ReplicaKey
    end_offset: int
    last_fetch_wall_ms: int  # -1: never, or not by this leader
    last_caught_up_wall_ms: int
    endpoints: tuple[VoterEndpoint, ...] = ()  # of voters


@dataclass(slots=True)
class QuorumStatus:
    leader_id: int
    epoch: int
    high_watermark: int
    voters: list[ReplicaStatus]
    observers: list[ReplicaStatus]


def status_of(quorum: Quorum, now: Now) -> QuorumStatus | None:
    """None: this node does not lead, so it does not know."""
    role = quorum.role
    if not isinstance(role, Leader):
        return None
    voters = quorum.voters.latest
    here = ReplicaProgress(quorum.log.end_offset, now.monotonic_ms, now.monotonic_ms)
    known = role.progress | {
        next((key_of(v) for v in voters if key_of(v).covers(quorum.me)), quorum.me): here
    }
    keys = {key_of(voter): voter.endpoints for voter in voters}
    observers = [
        _status(key, progress, now)
        for key, progress in sorted(known.items())
        if key not in keys and now.monotonic_ms - progress.last_fetch_ms < OBSERVER_SESSION_MS
    ]
    return QuorumStatus(
        quorum.me.id,
        quorum.epoch,
        role.high_watermark,
        [
            _status(key, known.get(key, ReplicaProgress()), now, points)
            for key, points in sorted(keys.items())
        ],
        observers,
    )


def _status(
    key: ReplicaKey,
    progress: ReplicaProgress,
    now: Now,
    endpoints: tuple[VoterEndpoint, ...] = (),
) -> ReplicaStatus:
    return ReplicaStatus(
        key,
        progress.end_offset,
        _wall(progress.last_fetch_ms, now),
        _wall(progress.last_caught_up_ms, now),
        endpoints,
    )


def _wall(monotonic_ms: int, now: Now) -> int:
    if monotonic_ms == NOBODY:
        return NOBODY
    return now.wall_ms - (now.monotonic_ms - monotonic_ms)
