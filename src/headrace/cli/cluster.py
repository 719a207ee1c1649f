"""`headrace cluster`: how a cluster is, who leads what, and more replicas for what has few."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.cluster_options import At, Json, cluster_options
from headrace.cli.completion import topic_names
from headrace.cli.failure import Failure
from headrace.client.cluster import Cluster
from headrace.client.cluster_status import ClusterStatus, NodeStatus, read_status
from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.client.reassignments import Reassignments
from headrace.client.records import TopicPartition
from headrace.client.replica_placement import more_replicas
from headrace.client.replicas import PartitionReplicas, Replicas

app = typer.Typer(
    help="How a cluster is; its leaders and replicas.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

# So many partitions are filled at a time: the disks and the network have other work too.
MOVES_AT_ONCE = 50
LOOK_AGAIN_S = 0.5
CLEAR_SCREEN = "\x1b[2J\x1b[H"
USUAL_REPLICAS = 3


@app.callback()
def about() -> None:
    """How a cluster is, who leads what, and more replicas for what has few."""


@app.command()
@cluster_options
def status(
    at: At,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch", metavar="SECONDS", min=0.2, help="Show it again and again, until Ctrl-C."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show nodes, the quorum, and what is not in order. Ends with 1 if something is not."""
    while True:
        with at.connection() as cluster:
            found = read_status(cluster)
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
        "leader_skew_percent": found.leader_skew_percent,
    }


def _troubles(found: ClusterStatus) -> list[tuple[str, list[TopicPartition], str, str]]:
    """Name, partitions, what it means, and the colour of it."""
    return [
        ("offline", found.offline, "have no leader: nobody can read or write them", "red"),
        ("under_min_isr", found.under_min_isr, "are under min ISR: acks=all is refused", "red"),
        ("under_replicated", found.under_replicated, "lack a replica in sync", "yellow"),
        ("single_replica", found.single_replica, "have one replica", "yellow"),
        ("not_preferred", found.not_preferred, "are led by another than the preferred", "yellow"),
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
    output.say(
        f"{output.count(found.partitions, 'partition')}, leader skew {found.leader_skew_percent} %"
        + (f", {len(found.moving)} moving" if found.moving else "")
    )
    for _, places, meaning, colour in _troubles(found):
        if places:
            named = ", ".join(map(str, places[:5])) + (", ..." if len(places) > 5 else "")
            count = output.count(len(places), "partition")
            output.say(f"  {count} {meaning}: {named}", mark="!", colour=colour)
    if found.is_well:
        output.say("  every partition has a leader, and all replicas are in sync", mark="ok")
    _advise(found)


def _row(node: NodeStatus, leader: int | None) -> tuple[output.Cell, ...]:
    state = "fenced" if node.fenced else "alive"
    if node.id == leader:
        state += ", active controller"
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
    if found.single_replica and len(brokers) > 1 and not found.moving:
        count = min(USUAL_REPLICAS, len(brokers))
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
    """Give the lead of each partition back to its preferred replica, if that is in sync.

    Clients of a partition that moves wait for a moment and go on. Brokers do this by themselves
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
            f"{output.count(len(waiting), 'partition')} are led by another than the preferred "
            "replica, which is not in sync."
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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show which brokers would get what.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Give partitions more replicas, while they are in use.

    What has as many already is left alone. The cluster goes on with what has begun if this command
    is stopped; the same command goes on with the rest.
    """
    count = _count(topics or [], to, everything)
    with at.connection() as cluster:
        moves = _moves(cluster, topics or None, count)
        if dry_run:
            _show_moves(moves, as_json=as_json)
            return
        done = _Raising(cluster, moves, topics or None, count).run()
    if as_json:
        output.answer_json({"raised": done, "to": count})
    elif not done:
        output.say(f"Every partition has {count} replicas or more.")
    else:
        output.say(f"{output.count(done, 'partition')} have {count} replicas now.")


def _count(topics: list[str], to: int | None, everything: int | None) -> int:
    if everything is not None and not topics and to is None:
        return everything
    if to is not None and topics and everything is None:
        return to
    raise Failure("Say --all N for all topics, or name topics and say --to N.")


def _moves(
    cluster: Connection, topics: list[str] | None, count: int
) -> dict[TopicPartition, list[int]]:
    racks = {broker.id: broker.rack for broker in Cluster(cluster).describe().brokers}
    return more_replicas(_partitions(cluster, topics), racks, count)


def _partitions(cluster: Connection, topics: list[str] | None) -> list[PartitionReplicas]:
    replicas = Replicas(cluster)
    return replicas.all() if topics is None else replicas.of(topics)


def _show_moves(moves: dict[TopicPartition, list[int]], *, as_json: bool) -> None:
    if as_json:
        output.answer_json({str(place): replicas for place, replicas in moves.items()})
        return
    rows: list[tuple[output.Cell, ...]] = [
        (place.topic, place.partition, ",".join(map(str, replicas)))
        for place, replicas in moves.items()
    ]
    output.table(("topic", "partition", "replicas"), rows)


class _Raising:
    """Hands moves to the cluster, some at a time, and waits until the new replicas are in sync."""

    def __init__(
        self,
        cluster: Connection,
        moves: dict[TopicPartition, list[int]],
        topics: list[str] | None,
        count: int,
    ) -> None:
        self._reassignments = Reassignments(cluster)
        self._cluster = cluster
        self._moves = moves
        self._topics = topics
        self._count = count

    def run(self) -> int:
        waiting = dict(self._moves)
        # Of a run that was stopped: they are under way, and only waited for.
        under_way = {each.place for each in self._reassignments.all()}
        others = {place for place in under_way if place not in waiting}
        mine = under_way - others
        for place in mine:
            waiting.pop(place, None)
        try:
            while waiting or mine:
                room = MOVES_AT_ONCE - len(mine)
                if waiting and room > 0:
                    some = {place: waiting.pop(place) for place in list(waiting)[:room]}
                    self._reassignments.move(some)
                    mine |= some.keys()
                self._tell(len(self._moves) - len(waiting) - len(mine))
                time.sleep(LOOK_AGAIN_S)
                mine &= {each.place for each in self._reassignments.all()}
        except KeyboardInterrupt:
            self._wipe()
            output.note("The cluster goes on with what has begun; the same command with the rest.")
            raise
        self._wipe()
        self._require_done()
        return len(self._moves)

    def _require_done(self) -> None:
        """Somebody else may have called a move off."""
        few = [
            each.place
            for each in _partitions(self._cluster, self._topics)
            if each.place in self._moves and len(each.replicas) < self._count
        ]
        if few:
            raise ClientError(
                f"{output.count(len(few), 'partition')} still have fewer than {self._count} "
                f"replicas, {few[0]} among them: their moves were called off."
            )

    def _tell(self, done: int) -> None:
        if sys.stderr.isatty():
            whole = len(self._moves)
            filled = 30 * done // whole
            bar = "█" * filled + "░" * (30 - filled)
            output.passing(f"{bar} {done:,} of {whole:,} partitions have their replicas")

    def _wipe(self) -> None:
        if sys.stderr.isatty():
            output.passing("")
