"""`headrace start --brokers N`: a cluster on this machine, in the foreground."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import headrace
from headrace.cli.failure import Failure
from headrace.node.process.local_cluster.cluster import (
    MOST_BROKERS,
    OpenCluster,
    Wanted,
    open_cluster,
    run,
)
from headrace.node.process.local_cluster.parent import ClusterFailed


def start_cluster(
    wanted: Wanted,
    *,
    say: Callable[[list[str]], None],
    log: Callable[[str], None],
    as_json: bool,
    command: str,
    browse: Callable[[str], str | None] = lambda bootstrap: None,
) -> None:
    """`say` shows lines when all nodes are ready, `log` takes each line that a node writes,
    `browse` starts a console and tells its address, if there shall be one."""
    if (wanted.brokers or 1) > MOST_BROKERS:
        raise Failure(f"At most {MOST_BROKERS} brokers run on one machine.")
    cluster = open_cluster(wanted, randomness=os.urandom, wall_ms=time.time_ns() // 1_000_000)

    def show(about: dict[int, dict[str, Any]]) -> None:
        addresses = ",".join(str(told["address"]) for _, told in sorted(about.items()))
        console = browse(addresses)
        if as_json:
            say([_as_json(cluster, about, console)])
        else:
            say(welcome(cluster, about, command, console))

    try:
        run(cluster, show, log, coloured=sys.stderr.isatty())
    except ClusterFailed as failure:
        raise Failure(str(failure)) from failure


def _as_json(cluster: OpenCluster, about: dict[int, dict[str, Any]], console: str | None) -> str:
    brokers = [
        {"id": node, "address": told["address"], "pid": told["pid"]}
        for node, told in sorted(about.items())
    ]
    ready = {
        "address": ",".join(str(broker["address"]) for broker in brokers),
        "data": os.path.abspath(cluster.orders[1].data),
        "pid": os.getpid(),
        "brokers": brokers,
        "controllers": cluster.plan.controller_addresses(),
    }
    if left_out := _left_out(cluster, about):
        ready["not_started"] = left_out
    return json.dumps(ready if console is None else {**ready, "console": console})


def _left_out(cluster: OpenCluster, about: dict[int, dict[str, Any]]) -> list[int]:
    """Nodes whose data folders are damaged."""
    return sorted(set(cluster.orders) - set(about))


def welcome(
    cluster: OpenCluster,
    about: dict[int, dict[str, Any]],
    command: str,
    console: str | None = None,
) -> list[str]:
    addresses = [str(told["address"]) for _, told in sorted(about.items())]
    folder = os.path.abspath(cluster.orders[1].data)
    controllers = len(cluster.plan.controllers)
    values = cluster.orders[1].settings().values
    replicas = values["default.replication.factor"]
    at = "" if addresses[0] == "localhost:9092" else f" -b {addresses[0]}"
    if cluster.orders[1].secure is not None:
        at += f" --client-config {os.path.join(cluster.orders[1].secure, 'admin.properties')}"
    last = len(cluster.orders)
    brokers = "one" if last == 1 else f"{last} brokers"
    left_out = _left_out(cluster, about)
    alive = max(about)
    beside = {1: "", 2: ", and beside it -2"}.get(last, f", and beside it -2 to -{last}")
    survives = "nothing is lost, and " if replicas > 1 else ""
    return [
        f"Headrace {headrace.__version__}, a Kafka cluster of {brokers}",
        "",
        f"brokers      {', '.join(addresses)}",
        *(
            f"NOT STARTED  broker {node}, its data folder is damaged: see above"
            for node in left_out
        ),
        f"controllers  {_controllers(controllers, folder)}",
        f"             {', '.join(cluster.plan.controller_addresses())}",
        f"data         {folder}{beside}",
        f"new topics   {replicas} replica{'' if replicas == 1 else 's'}, acknowledged by "
        f"{values['min.insync.replicas']} at least",
        *([] if console is None else [f"console      {console}"]),
        "",
        "Try, in another terminal:",
        f"  {command} cluster status{at}",
        f"  echo 'hello, world' | {command} produce greetings{at}",
        f"  kill -9 {about[alive]['pid']}    # broker {alive}: {survives}it comes back",
        "",
        "Ctrl-C ends it.",
    ]


def _controllers(count: int, folder: str) -> str:
    if count == 1:
        return f"one, in broker 1: if {folder} is lost, the cluster is lost"
    return f"{count}, in the first {count} brokers: one may be lost"
