"""Checks whether a Kafka broker answers at the address, or the port is free for one."""

from __future__ import annotations

import socket

from headrace.client.connection import ClientSettings, addresses, reach
from headrace.client.errors import Unreachable
from headrace.operations.checkup.finding import Finding, good, wrong

CONNECT_TIMEOUT_S = 2.0


def check_cluster(connection: ClientSettings, *, expected: bool) -> Finding:
    """`expected`: the user named a cluster; otherwise a free port is fine too."""
    where = connection.bootstrap
    listening = any(_listens(address) for address in addresses(where))
    if listening:
        return _ask(connection)
    if expected:
        return wrong(
            "cluster",
            f"nothing listens at {where}",
            "Check the address, or start a node with `headrace start`.",
        )
    return good("port", f"{where} is free; `headrace start` can listen there")


def _ask(connection: ClientSettings) -> Finding:
    try:
        return check_brokers(connection)
    except Unreachable:
        return wrong(
            "port",
            f"something listens at {connection.bootstrap}, but gives no Kafka answer",
            "Stop that program, choose another port with `headrace start --listen`, "
            "or give its security settings with -X.",
        )


def check_brokers(connection: ClientSettings) -> Finding:
    """Check the brokers. Raises `Unreachable` if none answers."""
    metadata = reach(connection.admin(), connection)
    brokers = ", ".join(f"{b.id} at {b.host}:{b.port}" for b in metadata.brokers.values())
    return good(
        "cluster", f"{metadata.cluster_id} answers at {connection.bootstrap}; brokers: {brokers}"
    )


def _listens(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True
