"""`headrace cluster add-voter` and `remove-voter`: change who votes in the metadata quorum.

Both show a plan; `--execute` carries it out.
"""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.client.admin import quorum_voters
from headrace.client.admin.cluster import Cluster
from headrace.client.admin.quorum_voters import VoterPlan
from headrace.node.metadata.config_definitions.definition import BadValue
from headrace.node.process.listeners.addresses import parse_address

Node = Annotated[int, typer.Argument(metavar="NODE", help="The number of the controller.")]
Execute = Annotated[bool, typer.Option("--execute", help="Do it; else the plan is shown only.")]


@cluster_options
def add_voter(
    at: At,
    node: Node,
    address: Annotated[
        str,
        typer.Option(
            "--at", metavar="HOST:PORT", help="Where its controller listens.", show_default=False
        ),
    ],
    listener: Annotated[
        str, typer.Option("--listener", metavar="NAME", help="The name of that listener.")
    ] = "CONTROLLER",
    execute: Execute = False,
    as_json: Json = False,
) -> None:
    """Let a controller vote that follows the metadata, such as one that was removed before."""
    try:
        host, port = parse_address(address, "--at")
    except BadValue as fault:
        raise Failure(str(fault)) from None
    with at.connection() as cluster:
        plan = quorum_voters.plan_addition(Cluster(cluster).quorum(), node)
        if execute:
            quorum_voters.add_voter(cluster, plan, listener=listener, host=host, port=port)
    _show(plan, f"Node {node} votes now.", executed=execute, as_json=as_json)


@cluster_options
def remove_voter(at: At, node: Node, execute: Execute = False, as_json: Json = False) -> None:
    """Let a controller vote no more. It does not join again by itself."""
    with at.connection() as cluster:
        plan = quorum_voters.plan_removal(Cluster(cluster).quorum(), node)
        if execute:
            quorum_voters.remove_voter(cluster, plan)
    _show(plan, f"Node {node} does not vote any more.", executed=execute, as_json=as_json)


def _show(plan: VoterPlan, done: str, *, executed: bool, as_json: bool) -> None:
    if as_json:
        output.answer_json(
            {
                "before": plan.before,
                "after": plan.after,
                "majority": plan.majority,
                "directory": plan.member.directory_id,
                "executed": executed,
            }
        )
        return
    before, after = (", ".join(map(str, voters)) for voters in (plan.before, plan.after))
    output.say(f"voters {before} -> {after}; a majority is {plan.majority}")
    if executed:
        output.say(done)
    else:
        output.note("Nothing was changed: add --execute to do it.")
