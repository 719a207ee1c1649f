"""Checks whether a cluster survives the loss of a broker: compares its state with a recipe. Pure.

The recipe: three brokers and three controllers, three replicas, min ISR one below that, no unclean
elections, a rack for every broker or for none. A cluster of one broker has nothing to replicate.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.admin.cluster_status import ClusterStatus
from headrace.operations.checkup.finding import Finding, good, watch, wrong

SAFE = 3


def check_replication(status: ClusterStatus, settings: Mapping[str, str | None]) -> list[Finding]:
    """`settings` are those of a broker, by Kafka's names."""
    brokers = [node for node in status.nodes if "broker" in node.roles]
    if len(brokers) < 2:
        return _folders(status)
    return [
        _nodes(status),
        *_folders(status),
        _quorum(status),
        _replicas(status, len(brokers)),
        _new_topics(settings, len(brokers)),
        _elections(settings),
        _racks(status),
    ]


def _nodes(status: ClusterStatus) -> Finding:
    silent = [str(node.id) for node in status.nodes if node.silent and node.roles]
    if silent:
        return wrong(
            "nodes",
            f"the quorum does not hear of controller {', '.join(silent)}",
            "Start it again.",
        )
    fenced = [str(node.id) for node in status.nodes if node.fenced]
    if fenced:
        if len(fenced) == 1:
            return wrong("nodes", f"broker {fenced[0]} is fenced", "Start it again.")
        return wrong("nodes", f"brokers {', '.join(fenced)} are fenced", "Start them again.")
    return good("nodes", f"{sum(not node.silent for node in status.nodes)} alive")


def _folders(status: ClusterStatus) -> list[Finding]:
    """Findings about data folders; none if all are online and have room: most brokers have only
    one, without which they do not run."""
    full = ", ".join(f"{found.path} of broker {found.broker}" for found in status.full_folders)
    if full:
        return [wrong("data folders", f"the disk is full: {full}", "Make room on it.")]
    if not status.offline_folders:
        return []
    named = ", ".join(f"{found.path} of broker {found.broker}" for found in status.offline_folders)
    return [
        wrong(
            "data folders",
            f"offline: {named}",
            "Look at the disk, then start the broker again; `headrace topics describe` says which "
            "replicas are offline.",
        )
    ]


def _quorum(status: ClusterStatus) -> Finding:
    count = len(status.voters)
    if status.no_controller is not None:
        return wrong(
            "quorum",
            "no controller answers: the brokers show what they knew last",
            "Bring a majority of the controllers back.",
        )
    if count < SAFE:
        return watch(
            "quorum",
            f"{count} controller{'' if count == 1 else 's'}: none may be lost",
            "Three controllers keep the metadata when one of them is gone.",
        )
    if count % 2 == 0:
        return watch("quorum", f"{count} controllers survive no more losses than {count - 1}")
    return good("quorum", f"{count} controllers, node {status.leader} leads")


def _replicas(status: ClusterStatus, brokers: int) -> Finding:
    count = min(SAFE, brokers)
    if status.offline:
        return wrong(
            "replicas",
            f"{len(status.offline)} partitions have no leader, {status.offline[0]} among them",
            "Bring the brokers of their replicas back.",
        )
    if status.under_min_isr:
        return wrong(
            "replicas",
            f"{len(status.under_min_isr)} partitions refuse acks=all",
            "Bring the brokers of their replicas back.",
        )
    if status.single_replica:
        return wrong(
            "replicas",
            f"{len(status.single_replica)} partitions have one replica",
            f"headrace cluster raise-replication --all {count}",
        )
    if status.under_replicated:
        return watch(
            "replicas",
            f"{len(status.under_replicated)} partitions lack a replica in sync",
            "`headrace cluster status` says which.",
        )
    return good("replicas", "every partition has more than one, and all are in sync")


def _new_topics(settings: Mapping[str, str | None], brokers: int) -> Finding:
    replicas = int(settings.get("default.replication.factor") or 1)
    minimum = int(settings.get("min.insync.replicas") or 1)
    found = f"a new topic gets {replicas} replicas, min.insync.replicas={minimum}"
    wanted = min(SAFE, brokers)
    if replicas < wanted:
        return watch(
            "new topics", found, f"Start the brokers with default.replication.factor={wanted}."
        )
    if minimum >= replicas > 1:
        return watch("new topics", f"{found}: one broker down stops acks=all")
    if replicas >= SAFE and minimum < replicas - 1:
        return watch(
            "new topics",
            found,
            f"headrace brokers alter --config min.insync.replicas={replicas - 1}",
        )
    return good("new topics", found)


def _elections(settings: Mapping[str, str | None]) -> Finding:
    if settings.get("unclean.leader.election.enable") == "true":
        return wrong(
            "elections",
            "unclean.leader.election.enable=true: a replica that lacks records may become leader",
            "headrace brokers alter --config unclean.leader.election.enable=false",
        )
    return good("elections", "only a replica that lacks nothing may become leader")


def _racks(status: ClusterStatus) -> Finding:
    racks = [node.rack for node in status.nodes if "broker" in node.roles]
    if all(rack is None for rack in racks):
        return good("racks", "none are named; replicas are placed over brokers")
    if None in racks:
        return watch(
            "racks",
            "some brokers have none, so replicas are not kept apart by rack",
            "Set broker.rack for every broker.",
        )
    return good("racks", f"{len(set(racks))} racks; replicas are kept apart by them")
