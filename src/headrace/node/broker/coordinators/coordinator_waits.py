"""Requests that wait for a coordinator: until its log is committed, or for other members.

A wait ends in one of three ways. The high watermark passes the records of the answer: it leaves.
Another broker leads the partition, or the disk has refused the record: NOT_COORDINATOR. The time is
up, because too few replicas have the record: COORDINATOR_NOT_AVAILABLE, as with Apache Kafka; the
record stays in the log then, and may count later. A read whose followers have not confirmed in time
that this broker still leads ends with NOT_COORDINATOR: another broker may lead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.node.broker.coordinators.confirmed_reads import Read
from headrace.node.coordination.shard import Later
from headrace.node.replication.replica import PartitionLeader
from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.chain import or_refused
from headrace.wire.protocol.errors import ErrorCode, KafkaError

# A request that waits for others has no deadline of its own: the machine's timers end the wait.
NO_DEADLINE_MS = 1 << 62


def wait_for_commit(
    leader: PartitionLeader, offset: int, response: Any, deadline_ms: int
) -> WaitingRequest:
    led_since = leader.led_since

    def attempt(expired: bool) -> Any | None:
        require_kept(leader, offset, led_since)
        if leader.high_watermark >= offset:
            return response
        if expired:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return None

    return WaitingRequest(attempt, deadline_ms=deadline_ms, hangs_on=[leader])


def wait_for_confirmation(
    read: Read, offset: int, response: Any, deadline_ms: int
) -> WaitingRequest:
    leader, led_since = read.leader, read.led_since

    def attempt(expired: bool) -> Any | None:
        require_kept(leader, offset, led_since)
        is_committed = leader.high_watermark >= offset
        if is_committed and read.is_confirmed:
            return response
        if expired:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR if is_committed else ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
        return None

    return WaitingRequest(attempt, deadline_ms=deadline_ms, hangs_on=[leader, read])


def require_kept(leader: PartitionLeader, offset: int, led_since: int) -> None:
    """Raises a refusal if the record at this offset may be lost: the disk may have refused it, or
    another leader, which may lack it, writes other records at this offset."""
    if leader.led_since != led_since or leader.log.end_offset < offset:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)


def wait_for_later(leader: PartitionLeader, later: Later) -> WaitingRequest:
    led_since = leader.led_since

    def attempt(expired: bool) -> Any | None:
        if leader.led_since == led_since:
            if later.answer is not None and leader.high_watermark >= later.at_offset:
                return later.answer
            if expired:
                return later.otherwise
        require_kept(leader, later.at_offset, led_since)
        return None

    return WaitingRequest(attempt, deadline_ms=NO_DEADLINE_MS, hangs_on=[later, leader])


def after_all(waits: list[WaitingRequest], response: Any) -> Any | WaitingRequest:
    """Returns the response when all its parts are committed. A wait that is refused refuses the
    whole response, unless its part of the response can carry the error (`refused_alone`)."""
    if not waits:
        return response

    def attempt(expired: bool) -> Any | None:
        return response if all([one.attempt(expired) for one in waits]) else None

    things = [thing for one in waits for thing in one.hangs_on]
    deadline_ms = min(one.deadline_ms for one in waits)
    return WaitingRequest(attempt, deadline_ms=deadline_ms, hangs_on=things)


def refused_alone(
    waits: list[WaitingRequest], parts: list[Any], refused: Callable[[ErrorCode], Any]
) -> None:
    """The waits are for the last of the parts of a response. If one of them is refused, that part
    becomes the result of `refused` for the code, and the response leaves."""
    index = len(parts) - 1

    def replace(code: ErrorCode) -> bool:
        parts[index] = refused(code)
        return True

    for wait in waits:
        or_refused(wait, replace)
