"""Adds and removes voters of the metadata quorum (KIP-853): a plan, then one request.

Works at every cluster of kraft.version 1, through any broker. `plan_addition` and `plan_removal`
are pure; they refuse changes that cannot work, or that would leave the quorum without a majority.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client.admin.cluster import Cluster, Quorum, QuorumReplica
from headrace.client.admin.cluster_status import is_silent
from headrace.client.admin.placement.broker_removal import removal_of
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.wire import require_no_error
from headrace.wire.protocol import uuids
from headrace.wire.protocol.messages import add_raft_voter, remove_raft_voter


@dataclass(slots=True)
class VoterPlan:
    member: QuorumReplica  # the node that is added or removed
    before: list[int]
    after: list[int]

    @property
    def majority(self) -> int:
        return len(self.after) // 2 + 1


def plan_addition(quorum: Quorum, node: int) -> VoterPlan:
    before = [voter.id for voter in quorum.voters]
    if node in before:
        raise ClientError(f"Node {node} is a voter already.")
    found = [each for each in quorum.observers if each.id == node]
    if not found:
        known = ", ".join(str(each.id) for each in quorum.observers) or "none"
        raise ClientError(
            f"Node {node} does not fetch the metadata; the nodes that do and do not vote: {known}. "
            "Start it as a controller with controller.quorum.bootstrap.servers of this cluster."
        )
    if is_silent(found[-1], quorum):
        raise ClientError(f"The quorum does not hear of node {node}: start it again.")
    return VoterPlan(found[-1], before, sorted([*before, node]))


def plan_removal(quorum: Quorum, node: int) -> VoterPlan:
    before = [voter.id for voter in quorum.voters]
    found = next((voter for voter in quorum.voters if voter.id == node), None)
    if found is None:
        raise ClientError(
            f"Node {node} is not a voter; the voters are {', '.join(map(str, before))}."
        )
    plan = VoterPlan(found, before, [voter for voter in before if voter != node])
    if not plan.after:
        raise ClientError(f"Node {node} is the only voter: add another one first.")
    silent = [v.id for v in quorum.voters if v.id != node and is_silent(v, quorum)]
    if len(plan.after) - len(silent) < plan.majority:
        raise ClientError(
            f"Without node {node} the quorum has no majority: it does not hear of voter "
            f"{', '.join(map(str, silent))}. Start that one first."
        )
    return plan


def add_voter(
    connection: ClientSettings, plan: VoterPlan, *, listener: str, host: str, port: int
) -> None:
    request = add_raft_voter.AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=int(connection.timeout_s * 1000),
        voter_id=plan.member.id,
        voter_directory_id=uuids.from_text(plan.member.directory_id),
        listeners=[add_raft_voter.Listener(listener, host, port)],
    )
    with Cluster(connection).anybody() as wire:
        answer = wire.ask(add_raft_voter, request)
    require_no_error(answer.error_code, answer.error_message)


def remove_voter(connection: ClientSettings, plan: VoterPlan) -> None:
    with Cluster(connection).anybody() as wire:
        answer = wire.ask(remove_raft_voter, removal_of(plan.member))
    require_no_error(answer.error_code, answer.error_message)
