"""Offsets committed in a transaction: the checks, and the records that wait for its marker.

A producer that does not send its membership may commit at any time; one that does must have the
current generation, so that a member whose partitions went to another cannot commit for them
(KIP-447). Unlike a plain commit it may come while the group rebalances: the generation is enough.
"""

from __future__ import annotations

from typing import Any

from headrace.environment import Now
from headrace.node.coordination.group import offset_rules, records
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.coordination.group.offset_rules import Commit
from headrace.node.coordination.shard import Decision
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest


def commit_in_transaction(
    machine: GroupMachine,
    request: TxnOffsetCommitRequest,
    producer: tuple[int, int],
    commits: list[Commit],
    response: Any,
    now: Now,
) -> Decision:
    instance_id = request.group_instance_id
    if request.generation_id >= 0 or request.member_id or instance_id is not None:
        try:
            offset_rules.require_may_commit(
                machine,
                request.group_id,
                request.member_id,
                instance_id,
                request.generation_id,
                offset_rules.FIRST_VERSION_WITH_EPOCHS,
                commits,
                now,
            )
        except KafkaError as refusal:
            if refusal.code == ErrorCode.GROUP_ID_NOT_FOUND:
                # Apache keeps a group without members for offsets that are pending.
                is_there = machine.offsets.has_open_transaction(request.group_id)
                unknown = ErrorCode.UNKNOWN_MEMBER_ID
                raise KafkaError(unknown if is_there else ErrorCode.ILLEGAL_GENERATION) from refusal
            if refusal.code == ErrorCode.STALE_MEMBER_EPOCH:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION) from refusal
            if refusal.code != ErrorCode.REBALANCE_IN_PROGRESS:
                raise
    return Decision(
        [records.committed_offset(request.group_id, *commit) for commit in commits],
        response,
        producer=producer,
    )
