"""`headrace cluster restart --rolling`: restarts the brokers of `--brokers N` one after the other.

Works on the machine of the cluster: the process of a broker is the one that holds the lock of its
folder. SIGTERM stops it cleanly, so that it hands its leaderships over; the parent starts it again,
and each one reads its file of settings and its certificates then. Before each step, and after the
last, the cluster must be well: every replica in sync, every broker and controller alive. The active
controller is the last one. What was begun is continued by the same command: a file in the folder of
broker 1 names the processes that are to be replaced.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.cluster.replica_moves import LOOK_AGAIN_S, SAY_WHY_AFTER_S
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.cli.options.local_folder import local_folder
from headrace.client.admin.cluster import Cluster
from headrace.client.admin.cluster_status import ClusterStatus, read_status
from headrace.client.admin.placement.replicas import PartitionReplicas, Replicas
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.records import TopicPartition
from headrace.node.process.folders.lock_holder import lock_holder
from headrace.private_files import write_private

DEFAULT_DATA = "headrace-data"
FILE_NAME = "headrace-restart.json"
MOST_NAMED = 3


@dataclass(slots=True)
class LocalNodes:
    """The brokers of one parent, and the processes that run them now."""

    cluster_id: str
    parent: int
    folders: dict[int, str]
    lock: str  # of the parent, in the folder of broker 1

    @property
    def parent_runs(self) -> bool:
        return lock_holder(self.folders[min(self.folders)], self.lock) == self.parent

    def process_of(self, node: int) -> int | None:
        return lock_holder(self.folders[node])


@dataclass(slots=True)
class Restart:
    """The processes that are to be replaced."""

    parent: int
    before: dict[int, int]
    done: list[int] = field(default_factory=list)

    def look(self, now: Mapping[int, int | None]) -> None:
        """A broker is done when another process has its folder."""
        self.done = [node for node, pid in self.before.items() if now[node] not in (None, pid)]


@cluster_options
def restart(
    at: At,
    rolling: Annotated[
        bool, typer.Option("--rolling", help="One broker after the other; there is no other way.")
    ] = False,
    data: Annotated[
        Path,
        typer.Option(metavar="DIR", parser=local_folder, help="The data folder of broker 1."),
    ] = Path(DEFAULT_DATA),
    again: Annotated[
        bool, typer.Option("--again", help="Begin with all brokers, also after a part was done.")
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; else the plan is shown only.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Restart the brokers of `headrace start --brokers N` one by one, while clients work.

    Run it on their machine. If it is stopped, the same command does the rest.
    """
    if not rolling:
        raise Failure(
            "Add --rolling. To stop all brokers at once, end `headrace start` with Ctrl-C."
        )
    nodes = find_nodes(str(data))
    with at.connection() as cluster:
        described = Cluster(cluster).describe()
        if described.id != nodes.cluster_id:
            raise Failure(
                f"{data} is the folder of the cluster {nodes.cluster_id}, and {described.id} "
                "answers: name its address with -b."
            )
        # The broker that was named is restarted too.
        servers = ",".join(f"{broker.host}:{broker.port}" for broker in described.brokers)
        cluster = replace(cluster, settings=cluster.settings | {"bootstrap.servers": servers})
        begun = _begin(nodes, str(data), again=again)
        status = read_status(cluster)
        steps = order_of(begun, status.leader)
        alone = {node: only_there(node, Replicas(cluster).all()) for node in steps}
        if not as_json:
            _show(nodes, status, begun, steps, alone)
        if execute:
            _carry_out(cluster, nodes, begun, str(data))
    if as_json:
        remaining = [] if execute else steps
        output.answer_json(
            {
                "restarted": begun.done,
                "remaining": remaining,
                "not_available_meanwhile": {str(node): len(those) for node, those in alone.items()},
                "executed": execute,
            }
        )
    elif execute:
        output.say(f"{output.count(len(begun.done), 'broker')} restarted; all replicas in sync.")
    else:
        output.note("Nothing was changed: add --execute to do it.")


def find_nodes(data: str) -> LocalNodes:
    # Half of a node: the other commands of `headrace cluster` need none of it.
    from headrace.node.process.folders.real_disk import RealDisk
    from headrace.node.process.local_cluster.cluster import LOCK
    from headrace.node.process.local_cluster.plan import folder_of, read_plan
    from headrace.node.process.settings.settings import CannotStart

    try:
        plan = read_plan(RealDisk(), data)
    except CannotStart as refusal:
        raise Failure(str(refusal)) from refusal
    if plan is None:
        raise Failure(
            f"{data} is not the folder of broker 1 of a cluster that `headrace start --brokers` "
            "has started: name it with --data."
        )
    try:
        parent = lock_holder(data, LOCK)
    except OSError as problem:
        raise Failure(f"The lock of {data} cannot be read: {problem.strerror}.") from None
    if not parent:
        raise Failure(
            f"No cluster runs in {data} on this machine, or not for this user: run the command "
            "where `headrace start --brokers` runs."
        )
    folders = {node.id: folder_of(data, node.id) for node in plan.nodes}
    return LocalNodes(plan.cluster_id, parent, folders, LOCK)


def order_of(begun: Restart, active: int | None) -> list[int]:
    """Those that remain; the active controller last, so that it changes once. Pure."""
    remaining = [node for node in begun.before if node not in begun.done]
    return sorted(remaining, key=lambda node: (node == active, node))


def only_there(node: int, partitions: Iterable[PartitionReplicas]) -> list[TopicPartition]:
    """The partitions that have no other replica in sync: they have no leader meanwhile. Pure."""
    return [each.place for each in partitions if each.isr == [node]]


def reasons_to_wait(status: ClusterStatus) -> list[str]:
    """Why no broker may be stopped now; none: one may. Pure."""
    reasons = []
    if status.no_controller is not None:
        reasons.append("no controller answers")
    for node in status.nodes:
        if "broker" in node.roles and node.fenced:
            reasons.append(f"broker {node.id} is not back yet")
        elif "controller" in node.roles and (node.silent or node.metadata_lag is None):
            reasons.append(f"the quorum does not hear of controller {node.id}")
    for places, what in (
        (status.offline, "without a leader"),
        (status.under_replicated, "with a replica that is not in sync"),
        (status.moving, "being moved"),
    ):
        if places:
            named = ", ".join(map(str, places[:MOST_NAMED]))
            more = ", ..." if len(places) > MOST_NAMED else ""
            reasons.append(f"{output.count(len(places), 'partition')} {what} ({named}{more})")
    return reasons


def _begin(nodes: LocalNodes, data: str, *, again: bool) -> Restart:
    """What was begun before with these processes, or all of them."""
    begun = None if again else _read(data)
    now = {node: nodes.process_of(node) for node in nodes.folders}
    if begun is None or begun.parent != nodes.parent or begun.before.keys() != now.keys():
        # A broker that is being started has no process yet, and needs no restart.
        begun = Restart(nodes.parent, {node: pid or 0 for node, pid in now.items()})
    begun.look(now)
    return begun


def _read(data: str) -> Restart | None:
    try:
        found = json.loads(Path(data, FILE_NAME).read_text())
        before = {int(node): int(pid) for node, pid in found["before"].items()}
        return Restart(int(found["parent"]), before)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # a restart of all is always right


def _show(
    nodes: LocalNodes,
    status: ClusterStatus,
    begun: Restart,
    steps: list[int],
    alone: Mapping[int, list[TopicPartition]],
) -> None:
    leads = {node.id: node.leads for node in status.nodes}
    rows: list[tuple[output.Cell, ...]] = [
        (
            number,
            node,
            nodes.process_of(node),
            leads.get(node),
            len(alone[node]),
            "active controller" if node == status.leader else None,
        )
        for number, node in enumerate(steps, start=1)
    ]
    columns = ("step", "broker", "process", "leads", "not available", "")
    output.table(columns, rows)
    if begun.done:
        done = ", ".join(map(str, begun.done))
        output.say(f"Restarted before: broker {done}; --again begins with all.")
    if any(alone.values()):
        output.note(
            "Partitions with no other replica in sync are not available while their broker "
            "restarts: `headrace cluster raise-replication --all 3`."
        )
    for reason in reasons_to_wait(status):
        output.note(f"The first step waits: {reason}.")


def _carry_out(cluster: ClientSettings, nodes: LocalNodes, begun: Restart, data: str) -> None:
    before = {str(node): pid for node, pid in begun.before.items()}
    path = Path(data, FILE_NAME)
    write_private(path, json.dumps({"parent": begun.parent, "before": before}))
    try:
        while True:
            status = _await_well(cluster)
            begun.look({node: nodes.process_of(node) for node in nodes.folders})
            steps = order_of(begun, status.leader)
            if not steps:
                break
            _replace(nodes, begun, steps[0])
    except KeyboardInterrupt:
        output.note("A broker that was stopped is started again; the same command does the rest.")
        raise
    path.unlink(missing_ok=True)


def _replace(nodes: LocalNodes, begun: Restart, node: int) -> None:
    """Stop a broker, and wait until the parent has started it again."""
    before = begun.before[node]
    output.note(f"Broker {node}: stops (process {before}), and is started again.")
    if before and nodes.process_of(node) == before:
        try:
            os.kill(before, signal.SIGTERM)
        except ProcessLookupError:
            pass  # it has ended by itself
        except PermissionError:
            raise Failure(f"Broker {node} runs as another user: run this command as it.") from None
    since = time.monotonic()
    while (now := nodes.process_of(node)) in (None, before):
        if not nodes.parent_runs:
            raise Failure("`headrace start --brokers` has ended, so no broker is started again.")
        if time.monotonic() - since > SAY_WHY_AFTER_S:
            since = time.monotonic()
            output.note(
                f"Broker {node} stops: it hands its leaderships over, then it flushes."
                if now == before
                else f"Broker {node} has stopped and does not start: its output says why."
            )
        time.sleep(LOOK_AGAIN_S)


def _await_well(cluster: ClientSettings) -> ClusterStatus:
    said_at = time.monotonic()
    while True:
        try:
            status = read_status(cluster)
            reasons = reasons_to_wait(status)
        except ClientError as failure:  # the broker that was asked has just been stopped
            reasons = [str(failure).rstrip(".")]
        if not reasons:
            return status
        if time.monotonic() - said_at > SAY_WHY_AFTER_S:
            said_at = time.monotonic()
            output.note(f"Waiting: {'; '.join(reasons)}.")
        time.sleep(LOOK_AGAIN_S)
