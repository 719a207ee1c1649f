"""`headrace cluster drain` and `undrain`: a broker leads nothing and gets nothing new for a while.

It stays in the cluster, follows the leaders, and keeps its replicas; `remove-broker` moves these
too. Both commands show a plan; `--execute` carries it out, and again what was left of it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.client.admin.cluster import Cluster
from headrace.client.admin.cluster_status import ClusterStatus, read_status
from headrace.client.admin.placement.broker_removal import CORDON, cordon
from headrace.client.admin.placement.leader_moves import leaders_away, leaders_back, led_alone
from headrace.client.admin.placement.reassignments import Reassignments
from headrace.client.admin.placement.replicas import Replicas
from headrace.client.connection import ClientSettings
from headrace.client.records import TopicPartition

MOVES_AT_ONCE = 500
MOST_NAMED = 5

Node = Annotated[int, typer.Argument(metavar="NODE", help="The number of the broker.")]
Execute = Annotated[bool, typer.Option("--execute", help="Do it; else the plan is shown only.")]


@cluster_options
def drain(at: At, node: Node, execute: Execute = False, as_json: Json = False) -> None:
    """Let a broker lead nothing and get no new partitions, before work on its machine.

    It keeps its replicas, which stay in sync. `undrain` ends it.
    """
    why_not = None
    with at.connection() as cluster:
        alive = _alive(read_status(cluster), node)
        moves = leaders_away(node, Replicas(cluster).all(), alive)
        if execute:
            why_not = cordon(cluster, node)
            _carry_out(cluster, moves)
        partitions = Replicas(cluster).all()
    alone = led_alone(node, partitions)
    leads = [each.place for each in partitions if each.leader == node and each.place not in alone]
    if as_json:
        output.answer_json(
            {
                "broker": node,
                "moves": {str(place): replicas for place, replicas in moves.items()},
                "only_replica_in_sync": [str(place) for place in alone],
                "leads": len(leads) + len(alone),
                "cordoned": execute and why_not is None,
                "executed": execute,
            }
        )
        return
    _show(moves, executed=execute)
    if alone:
        named = ", ".join(map(str, alone[:MOST_NAMED])) + (", ..." if alone[MOST_NAMED:] else "")
        output.note(
            f"Broker {node} still leads what no other broker has in sync: {named}. "
            "`headrace cluster raise-replication` gives it more replicas."
        )
    if why_not is not None:
        output.note(f"Broker {node} may get new partitions meanwhile: {why_not}")
    if execute and not alone and not leads:
        output.say(
            f"Broker {node} leads nothing. `headrace cluster undrain {node} --execute` ends this."
        )


@cluster_options
def undrain(at: At, node: Node, execute: Execute = False, as_json: Json = False) -> None:
    """Let a broker take new partitions again, and give it its share of the leaders."""
    with at.connection() as cluster:
        alive = _alive(read_status(cluster), node)
        moves = leaders_back(node, Replicas(cluster).all(), alive)
        if execute:
            if CORDON in Cluster(cluster).settings(node):
                Cluster(cluster).change_settings(node, to={}, remove=[CORDON])
            _carry_out(cluster, moves)
    if as_json:
        output.answer_json(
            {
                "broker": node,
                "moves": {str(place): replicas for place, replicas in moves.items()},
                "executed": execute,
            }
        )
        return
    _show(moves, executed=execute)
    if execute:
        output.say(f"Broker {node} takes new partitions again.")


def _alive(status: ClusterStatus, node: int) -> set[int]:
    alive = {each.id for each in status.nodes if "broker" in each.roles and not each.fenced}
    if node not in alive:
        known = ", ".join(map(str, sorted(alive)))
        raise Failure(f"There is no broker {node} that is alive; there are {known}.")
    return alive


def _carry_out(cluster: ClientSettings, moves: dict[TopicPartition, list[int]]) -> None:
    """The order of replicas changes at once: nothing is copied."""
    reassignments = Reassignments(cluster)
    waiting = list(moves)
    while waiting:
        some, waiting = waiting[:MOVES_AT_ONCE], waiting[MOVES_AT_ONCE:]
        reassignments.move({place: moves[place] for place in some})
        reassignments.elect_preferred_leaders(some)


def _show(moves: dict[TopicPartition, list[int]], *, executed: bool) -> None:
    rows: list[tuple[output.Cell, ...]] = [
        (place.topic, place.partition, ",".join(map(str, replicas)))
        for place, replicas in moves.items()
    ]
    if rows:
        output.table(("topic", "partition", "replicas, the leader first"), rows)
    if not executed:
        output.note("Nothing was changed: add --execute to do it.")
