"""The answers to members of a classic group, and the keys of their deadlines."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.node.coordination.group.classic_group import ClassicGroup, ClassicMember
from headrace.node.coordination.group.subscriptions import EVERYTHING, Sight
from headrace.node.coordination.shard import Decision
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.wire.protocol.messages.sync_group import SyncGroupResponse

FIRST_VERSION_THAT_SKIPS_ASSIGNMENT = 9  # of JoinGroup
UNKNOWN = ""  # the id of a member that has none yet
NOTHING = Decision()

# Keys of deadlines: the kind, the group, and what else makes them different.
SESSION = "session"  # member id
FIRST_JOIN = "first join"
JOIN = "join"
SYNC = "sync"  # generation
KINDS = frozenset({SESSION, FIRST_JOIN, JOIN, SYNC})


class Client(NamedTuple):
    """The client of a request."""

    id: str
    host: str
    version: int  # of the request
    sight: Sight = EVERYTHING


def joined(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        member_id=member_id,
        members=group.metadata_for_leader() if group.leader == member_id else [],
    )


def restarted(
    group: ClassicGroup, member_id: str, leader_before: str | None, client: Client
) -> JoinGroupResponse:
    """The answer to a static member that is back in a stable group: no new assignment is needed."""
    answer = joined(group, member_id)
    if client.version >= FIRST_VERSION_THAT_SKIPS_ASSIGNMENT:
        answer.skip_assignment = group.leader == member_id
    else:
        # The old leader's id, so that the restarted member does not act as the leader.
        answer.leader, answer.members = leader_before or "", []
    return answer


def join_refused(member_id: str, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(member_id=member_id, error_code=code)


def synced(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


def answered(decision: Decision, response: Any) -> Decision:
    """The same decision with another answer."""
    return Decision(decision.records, response, decision.then)


def rebalance_timeout_ms(request: JoinGroupRequest, client: Client) -> int:
    """Version 0 has no such field: the session timeout is used instead."""
    return request.session_timeout_ms if client.version == 0 else request.rebalance_timeout_ms


def differs(said: str | None, known: str | None) -> bool:
    return said is not None and known is not None and said != known
