"""`headrace cluster`: how a cluster is, who leads what, and more replicas for what has few."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.cluster.drain import drain, undrain
from headrace.cli.cluster.replica_moves import carry_out
from headrace.cli.cluster.rolling_restart import restart
from headrace.cli.cluster.voters import add_voter, remove_voter
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.cli.options.completion import topic_names
from headrace.client.admin.cluster import Cluster
from headrace.client.admin.cluster_status import ClusterStatus, NodeStatus, read_status
from headrace.client.admin.placement.broker_removal import (
    CORDON,
    cordon,
    replicas_without,
    take_out,
)
from headrace.client.admin.placement.reassignments import Reassignments
from headrace.client.admin.placement.replica_placement import more_replicas
from headrace.client.admin.placement.replicas import PartitionReplicas, Replicas
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.records import TopicPartition

app = typer.Typer(
    help="Show the state of a cluster; move leaders and replicas.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

CLEAR_SCREEN = "\x1b[2J\x1b[H"
USUAL_REPLICAS = 3
# How often `remove-broker` moves what its broker has got meanwhile.
MOST_ROUNDS = 10
WITH_A_MINIMUM_OF_THEIR_OWN = ("__transaction_state", "__share_group_state")
OF_THE_TOPIC = "topic"
OF_ONE = {"have": "has", "are": "is", "lack": "lacks"}


@app.callback()
def about() -> None:
    """Show the state of a cluster, balance its leaders, change its replicas."""


@app.command()
@cluster_options
def status(
    at: At,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            metavar="SECONDS",
            min=0.2,
            help="Repeat after this many seconds, until Ctrl-C.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show nodes, the quorum, and problems. Ends with 1 if there are any."""
    found: ClusterStatus | None = None
    while True:
        try:
            with at.connection() as cluster:
                found = read_status(cluster)
        except Failure as failure:
            if watch is None or found is None:
                raise
            output.note(str(failure))  # it was there, and may come back
            time.sleep(watch)
            continue
        if as_json:
            output.write_json_line(_as_object(found)) if watch else output.answer_json(
                _as_object(found)
            )
        else:
            if watch and sys.stdout.isatty():
                output.write_own(CLEAR_SCREEN.encode())
            _show(found)
        if watch is None:
            break
        sys.stdout.flush()
        time.sleep(watch)
    if not found.is_well:
        raise typer.Exit(1)


def _as_object(found: ClusterStatus) -> dict[str, object]:
    return {
        "cluster": found.id,
        "well": found.is_well,
        "nodes": found.nodes,
        "quorum": {
            "leader": found.leader,
            "epoch": found.leader_epoch,
            "high_watermark": found.high_watermark,
            "voters": found.voters,
            "observers": found.observers,
        },
        "partitions": found.partitions,
        **{name: [str(place) for place in places] for name, places, _, _ in _troubles(found)},
        "moving": [str(place) for place in found.moving],
        "offline_folders": [
            {"broker": folder.broker, "folder": folder.path} for folder in found.offline_folders
        ],
        "full_folders": [
            {"broker": folder.broker, "folder": folder.path} for folder in found.full_folders
        ],
        "out_of_sync": [
            {"partition": str(each.place), "broker": each.broker, "why": each.why}
            for each in found.out_of_sync
        ],
        "no_controller": found.no_controller,
        "leader_skew_percent": found.leader_skew_percent,
    }


def _troubles(found: ClusterStatus) -> list[tuple[str, list[TopicPartition], str, str]]:
    """Name, partitions, what it means, and the colour of it."""
    return [
        ("offline", found.offline, "have no leader, and cannot be read or written", "red"),
        ("under_min_isr", found.under_min_isr, "are under min ISR: acks=all is refused", "red"),
        ("under_replicated", found.under_replicated, "lack a replica in sync", "yellow"),
        ("single_replica", found.single_replica, "have one replica", "yellow"),
        ("not_preferred", found.not_preferred, "are not led by the preferred leader", "yellow"),
    ]


def _show(found: ClusterStatus) -> None:
    output.say(f"cluster {found.id}")
    rows = [_row(node, found.leader) for node in found.nodes]
    columns = ("node", "address", "roles", "rack", "state", "leads", "replicas", "metadata lag")
    output.table(columns, rows)
    if found.leader is not None:
        voters = ", ".join(map(str, found.voters))
        output.say(
            f"quorum: node {found.leader} leads in epoch {found.leader_epoch}; voters {voters}; "
            f"committed up to {found.high_watermark}"
        )
    if found.no_controller is not None:
        output.say(
            "  no controller answers: the brokers show what they knew last, and nothing can be "
            "changed. Bring a majority of the controllers back",
            mark="!",
            colour="red",
        )
    output.say(
        f"{output.count(found.partitions, 'partition')}, leader skew {found.leader_skew_percent} %"
        + (f", {len(found.moving)} moving" if found.moving else "")
    )
    for _, places, meaning, colour in _troubles(found):
        if places:
            named = ", ".join(map(str, places[:5])) + (", ..." if len(places) > 5 else "")
            output.say(
                f"  {_partitions_that(len(places), meaning)}: {named}", mark="!", colour=colour
            )
    for why, count, named in _reasons(found):
        output.say(f"    {count} of broker {named}: {why}", colour="yellow")
    for folder in found.full_folders:
        output.say(
            f"  the disk of the data folder {folder.path} of broker {folder.broker} is full: the "
            "broker leads only what no other in-sync replica can lead; make room on it",
            mark="!",
            colour="red",
        )
    for folder in found.offline_folders:
        output.say(
            f"  the data folder {folder.path} of broker {folder.broker} is offline, with the "
            "replicas in it: look at its disk, then start the broker again",
            mark="!",
            colour="red",
        )
    if found.is_well:
        output.say("  every partition has a leader, and all replicas are in sync", mark="ok")
    _advise(found)


def _reasons(found: ClusterStatus) -> list[tuple[str, str, str]]:
    """Why replicas are out of the ISR; one line for each broker and reason, with some names."""
    places: dict[tuple[int, str], list[TopicPartition]] = {}
    for each in found.out_of_sync:
        places.setdefault((each.broker, each.why), []).append(each.place)
    return [
        (
            why,
            output.count(len(those), "replica"),
            f"{broker} ({', '.join(map(str, those[:3]))}{', ...' if len(those) > 3 else ''})",
        )
        for (broker, why), those in sorted(places.items())
    ]


def _partitions_that(count: int, meaning: str) -> str:
    """'2 partitions have ...', '1 partition has ...'."""
    verb, _, rest = meaning.partition(" ")
    verb = OF_ONE[verb] if count == 1 else verb
    return f"{output.count(count, 'partition')} {verb} {rest}"


def _row(node: NodeStatus, leader: int | None) -> tuple[output.Cell, ...]:
    state = "fenced" if node.fenced else "silent" if node.silent else "alive"
    if node.id == leader:
        state += ", active controller"
    if node.cordoned:
        state += ", cordoned"
    is_broker = "broker" in node.roles
    return (
        node.id,
        node.address,
        "+".join(node.roles) or "observer",
        node.rack,
        state,
        node.leads if is_broker else None,
        node.replicas if is_broker else None,
        node.metadata_lag,
    )


def _advise(found: ClusterStatus) -> None:
    brokers = [node for node in found.nodes if "broker" in node.roles and not node.fenced]
    registered = sum("broker" in node.roles for node in found.nodes)
    if found.single_replica and registered > 1 and not found.moving:
        count = min(USUAL_REPLICAS, registered)
        output.note(
            "A partition with one replica is lost with its broker: "
            f"`headrace cluster raise-replication --all {count}`."
        )
    if found.not_preferred and not found.under_replicated:
        output.note("`headrace cluster balance` gives leaderships back to preferred replicas.")
    if len(brokers) > 1 and len(found.voters) == 1:
        output.note("One controller holds the metadata: if its folder is lost, the cluster is.")


@app.command()
@cluster_options
def balance(at: At, as_json: Json = False) -> None:
    """Move leadership of each partition back to its preferred replica, if that is in sync.

    Clients of a partition that moves wait for a moment and continue. Brokers do this by themselves
    every five minutes where more than a tenth is led by others, so it is rarely needed.
    """
    with at.connection() as cluster:
        before = {each.place: each.leader for each in Replicas(cluster).all()}
        Reassignments(cluster).elect_preferred_leaders()
        after = Replicas(cluster).all()
    moved = [each.place for each in after if each.leader != before.get(each.place, each.leader)]
    waiting = [each for each in after if each.leader != each.replicas[0]]
    if as_json:
        output.answer_json(
            {
                "moved": [str(place) for place in moved],
                "not_preferred": [str(each.place) for each in waiting],
            }
        )
        return
    output.say(f"{output.count(len(moved), 'partition')} got another leader.")
    if waiting:
        output.note(
            _partitions_that(
                len(waiting), "are not led by the preferred replica, because it is not in sync."
            )
        )


@app.command("raise-replication")
@cluster_options
def raise_replication(
    at: At,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC]...",
            help="The topics.",
            show_default=False,
            autocompletion=topic_names,
        ),
    ] = None,
    to: Annotated[
        int | None, typer.Option("--to", metavar="N", min=1, help="Replicas of these topics.")
    ] = None,
    everything: Annotated[
        int | None,
        typer.Option(
            "--all", metavar="N", min=1, help="Replicas of all topics, the internal ones too."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan only.")] = False,
    as_json: Json = False,
) -> None:
    """Give partitions more replicas, while they are in use.

    Partitions with enough replicas are not changed. Moves that have begun continue if this
    command is stopped; the same command does the rest.
    """
    count = _count(topics or [], to, everything)
    with at.connection() as cluster:
        moves = _moves(cluster, topics or None, count)
        if dry_run:
            _show_moves(moves, as_json=as_json)
            return
        done = carry_out(cluster, moves)
        _require_raised(cluster, moves, topics or None, count)
        minimums = _raise_minimums(cluster, topics or None, count)
    if as_json:
        output.answer_json({"raised": done, "to": count, "min_in_sync_raised": minimums})
    elif not done:
        output.say(f"Every partition has {count} replicas or more.")
    else:
        output.say(_partitions_that(done, f"have {count} replicas now."))


def _count(topics: list[str], to: int | None, everything: int | None) -> int:
    if everything is not None and not topics and to is None:
        return everything
    if to is not None and topics and everything is None:
        return to
    raise Failure("Use --all N for all topics, or name topics and use --to N.")


def _moves(
    cluster: ClientSettings, topics: list[str] | None, count: int
) -> dict[TopicPartition, list[int]]:
    racks = {broker.id: broker.rack for broker in Cluster(cluster).describe().brokers}
    return more_replicas(_partitions(cluster, topics), racks, count)


def _partitions(cluster: ClientSettings, topics: list[str] | None) -> list[PartitionReplicas]:
    replicas = Replicas(cluster)
    return replicas.all() if topics is None else replicas.of(topics)


def _raise_minimums(cluster: ClientSettings, topics: list[str] | None, count: int) -> list[str]:
    """Coordinators give their topics a minimum when they make them, that of the cluster as it was
    then: one replica in sync would be enough for a transaction for ever."""
    raised = []
    partitions = _partitions(cluster, topics)
    for name in WITH_A_MINIMUM_OF_THEIR_OWN:
        here = [each for each in partitions if each.place.topic == name]
        if not here or min(len(each.replicas) for each in here) < count:
            continue
        minimum = Topics(cluster).settings_of(name)["min.insync.replicas"]
        if minimum.source == OF_THE_TOPIC and int(minimum.value) < count - 1:
            Topics(cluster).change_settings(name, to={"min.insync.replicas": str(count - 1)})
            raised.append(name)
            output.note(f"min.insync.replicas of {name} is {count - 1} now.")
    return raised


def _require_raised(
    cluster: ClientSettings,
    moves: dict[TopicPartition, list[int]],
    topics: list[str] | None,
    count: int,
) -> None:
    """Somebody else may have called a move off."""
    few = [
        each.place
        for each in _partitions(cluster, topics)
        if each.place in moves and len(each.replicas) < count
    ]
    if few:
        raise ClientError(
            _partitions_that(len(few), f"have fewer than {count} replicas, {few[0]} among them: ")
            + "a move was cancelled."
        )


def _show_moves(moves: dict[TopicPartition, list[int]], *, as_json: bool) -> None:
    if as_json:
        output.answer_json({str(place): replicas for place, replicas in moves.items()})
        return
    rows: list[tuple[output.Cell, ...]] = [
        (place.topic, place.partition, ",".join(map(str, replicas)))
        for place, replicas in moves.items()
    ]
    output.table(("topic", "partition", "replicas"), rows)


@app.command("remove-broker")
@cluster_options
def remove_broker(
    at: At,
    broker: Annotated[int, typer.Argument(metavar="BROKER", help="The number of the broker.")],
    fewer_replicas: Annotated[
        bool,
        typer.Option(
            "--fewer-replicas",
            help="Let partitions have one replica less where no other broker can take it.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan only.")] = False,
    as_json: Json = False,
) -> None:
    """Move all replicas away from a broker; once it is stopped, remove it from the cluster.

    The broker gets no new partitions from then on (cordoned.log.dirs of Kafka 4.3, KIP-1066).
    Run it while the broker is alive, stop the broker, then run it again. Reassignments that have
    begun continue if this command is stopped; the same command does the rest.
    """
    with at.connection() as cluster:
        status = read_status(cluster)
        leaving = next((n for n in status.nodes if n.id == broker and "broker" in n.roles), None)
        if leaving is None:
            known = ", ".join(str(n.id) for n in status.nodes if "broker" in n.roles)
            raise Failure(f"There is no broker {broker}; there are {known}.")
        alive = {n.id: n.rack for n in status.nodes if "broker" in n.roles and not n.fenced}
        moves = replicas_without(
            broker, Replicas(cluster).all(), alive, fewer_replicas=fewer_replicas
        )
        if dry_run:
            _show_moves(moves, as_json=as_json)
            return
        why_not = None if leaving.fenced else cordon(cluster, broker)
        if why_not is not None:
            output.note(f"Broker {broker} may get new partitions meanwhile: {why_not}")
        moved = _empty(cluster, broker, alive, fewer_replicas=fewer_replicas)
        if leaving.fenced:
            take_out(cluster, broker)
    is_cordoned = not leaving.fenced and why_not is None
    if as_json:
        output.answer_json(
            {
                "broker": broker,
                "moved": moved,
                "removed": leaving.fenced,
                "cordoned": is_cordoned,
            }
        )
    elif leaving.fenced:
        output.say(f"Broker {broker} is not a part of the cluster any more.")
    else:
        output.say(f"Broker {broker} holds no replicas any more: {moved} were moved.")
        if is_cordoned:
            output.note(
                "It gets no new ones. To keep it after all: "
                f"`headrace brokers alter {broker} --unset {CORDON}`."
            )
        output.note(f"Stop it, then run `headrace cluster remove-broker {broker}` again.")


def _empty(
    cluster: ClientSettings, broker: int, alive: dict[int, str | None], *, fewer_replicas: bool
) -> int:
    """Move everything away from a broker, and what it gets meanwhile; how many moves."""
    moved = 0
    for _ in range(MOST_ROUNDS):
        moves = replicas_without(
            broker, Replicas(cluster).all(), alive, fewer_replicas=fewer_replicas
        )
        if not moves:
            return moved
        if moved:
            output.note(
                f"Broker {broker} has got {output.count(len(moves), 'partition')} meanwhile."
            )
        moved += carry_out(cluster, moves)
    place = next(iter(moves))
    raise ClientError(
        f"Broker {broker} still has {output.count(len(moves), 'partition')}, {place} among them: "
        "they are new, or their moves were cancelled. Run the command again."
    )


app.command("add-voter")(add_voter)
app.command("remove-voter")(remove_voter)
app.command("restart")(restart)
app.command("drain")(drain)
app.command("undrain")(undrain)
