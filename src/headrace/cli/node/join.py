"""`headrace start --join HOST:PORT`: a node of another machine becomes a part of a cluster.

Asks a broker for the cluster's id, members and controllers, chooses the node's id, keeps all that
in the folder (`joined_node.py`) and formats it. A folder that has joined is started with what it
keeps. The node is a broker; with `--controller-listen` a controller too, which votes when an
operator adds it (`headrace cluster add-voter`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.failure import Failure
from headrace.edge.host_names import is_loopback
from headrace.node.metadata.config_definitions.definition import BadValue
from headrace.node.metadata.config_definitions.network import SECURITY_PROTOCOLS
from headrace.node.process.folders.folder_format import format_folder, levels_of
from headrace.node.process.folders.folder_locks import FolderLocks
from headrace.node.process.folders.joined_node import JoinedNode, read_joined, write_joined
from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.process.listeners.addresses import bracketed, parse_address
from headrace.node.process.local_cluster.folders import identity_in
from headrace.node.process.local_cluster.plan import lives_in, replication_of
from headrace.node.process.settings import java_properties
from headrace.node.process.settings.settings import CannotStart, Settings, load_settings

if TYPE_CHECKING:
    from headrace.client.admin.cluster_members import ClusterMembers
    from headrace.client.connection import ClientSettings

DEFAULT_LISTEN = "localhost:9092"


@dataclass(slots=True)
class Joining:
    """The options of the command."""

    data: str
    at: str | None  # of a broker; None: the folder has joined before
    node_id: int | None = None
    listen: str | None = None
    controller_listen: str | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    config_file: Path | None = None
    client_config: Path | None = None
    metrics: str | None = None
    insecure: bool = False


def joined_settings(joining: Joining) -> Settings:
    """The settings of a node that joins, or has joined; its folder is formatted afterwards.
    CannotStart: the reason in a sentence."""
    disk = RealDisk()
    joined = None if joining.at is not None else read_joined(disk, joining.data)
    if joined is None:
        joined = _ask(disk, joining)
    elif joining.node_id not in (None, joined.node_id):
        raise CannotStart(
            f"{joining.data} is the folder of node {joined.node_id}: leave --node-id out."
        )
    else:
        _set_listeners(joining, joined)
    settings = _load(joining, joined, _given(joining))
    _format(disk, joining, joined, settings)
    return settings


def _ask(disk: RealDisk, joining: Joining) -> JoinedNode:
    from headrace.client.admin.cluster_members import read_members, require_controller
    from headrace.client.connection import connection
    from headrace.client.errors import ClientError

    assert joining.at is not None
    if lives_in(joining.data):
        raise CannotStart(
            f"{joining.data} belongs to a cluster that was started there: name another folder with "
            "--data."
        )
    try:
        address = parse_address(joining.at, "--join")
    except BadValue as fault:
        raise CannotStart(str(fault)) from None
    _require_reachable(joining, address[0])
    try:
        client = connection(bootstrap=joining.at, config_file=joining.client_config)
        members = read_members(client, address)
        if not members.controllers:
            require_controller(client, members)  # says what to do
        given = _given(joining)
        joined = JoinedNode(members.id, _node_id(disk, joining, given, members))
        joined.settings = _settings(given, members, joined.node_id)
        _set_listeners(joining, joined)
        settings = _load(joining, joined, given)
        if settings.cluster.controller_protocol == "PLAINTEXT":
            require_controller(_plain(client), members)
    except ClientError as failure:
        raise CannotStart(str(failure)) from failure
    return joined


def _plain(client: ClientSettings) -> ClientSettings:
    from headrace.client.connection import ClientSettings

    bootstrap = {"bootstrap.servers": client.bootstrap}
    return ClientSettings(bootstrap, client.timeout_s, quiet=True)


def _require_reachable(joining: Joining, host: str) -> None:
    """A node that registers as "localhost" cannot be reached from other machines."""
    if is_loopback(host) or joining.config_file is not None:
        return
    if joining.listen is None or is_loopback(parse_address(joining.listen, "--listen")[0]):
        raise CannotStart(
            "--join on another machine needs --listen HOST:PORT, the address by which clients and "
            "the other nodes reach this one."
        )


def _given(joining: Joining) -> dict[str, str]:
    """What a file and `--set` say, by name; `load_settings` reports errors of the file."""
    given: dict[str, str] = {}
    if joining.config_file is not None:
        try:
            entries = java_properties.parse(joining.config_file.read_bytes())
        except (OSError, java_properties.MalformedProperties):
            load_settings(config_file=joining.config_file)
            raise
        given = {entry.name: entry.value for entry in entries}
    return given | dict(joining.overrides)


def _node_id(
    disk: RealDisk, joining: Joining, given: Mapping[str, str], members: ClusterMembers
) -> int:
    from headrace.client.admin.cluster_members import free_node_id

    identity = identity_in(disk, joining.data)
    if identity is not None and identity.cluster_id != members.id:
        raise CannotStart(
            f"{joining.data} belongs to the cluster {identity.cluster_id}, and at {joining.at} is "
            f"{members.id}: name another folder with --data."
        )
    before = None
    with suppress(CannotStart):  # it is written again
        before = read_joined(disk, joining.data)
    named = joining.node_id
    if named is None and given.get("node.id", "").strip().isdecimal():
        named = int(given["node.id"])
    own = identity.node_id if identity is not None else None
    if own is not None and named not in (None, own):
        raise CannotStart(f"{joining.data} is the folder of node {own}: leave --node-id out.")
    if own is not None:
        return own
    if named is None and before is not None and before.cluster_id == members.id:
        named = before.node_id  # a start that was interrupted
    if named is None:
        return free_node_id(members.nodes)
    if named in members.nodes:
        raise CannotStart(
            f"The cluster has a node {named} already (its nodes: "
            f"{', '.join(map(str, sorted(members.nodes)))}): leave --node-id out, or choose "
            "another number."
        )
    return named


def _settings(given: Mapping[str, str], members: ClusterMembers, node_id: int) -> dict[str, str]:
    settings = {
        "node.id": str(node_id),
        "process.roles": "broker",
        "controller.listener.names": (
            members.controllers[0].listener if members.controllers else "CONTROLLER"
        ),
        "controller.quorum.bootstrap.servers": ",".join(map(str, members.controllers)),
    }
    settings |= replication_of(len(members.brokers | {node_id}))
    if "listeners" not in given:
        settings["listeners"] = f"PLAINTEXT://{DEFAULT_LISTEN}"
    return settings


def _set_listeners(joining: Joining, joined: JoinedNode) -> None:
    """By `--listen` and `--controller-listen`; what is not named stays as it was."""
    if joining.listen is None and joining.controller_listen is None:
        return
    if "listeners" in _given(joining):
        raise CannotStart(
            "The listeners are in the settings of this node: leave --listen and "
            "--controller-listen out."
        )
    name = joined.settings["controller.listener.names"]
    kept = joined.settings["listeners"].split(",")
    entries = dict(entry.split("://", 1) for entry in kept)
    try:
        if joining.listen is not None:
            entries["PLAINTEXT"] = _text(*parse_address(joining.listen, "--listen"))
        if joining.controller_listen is not None:
            host, port = parse_address(joining.controller_listen, "--controller-listen")
            if not port:
                raise CannotStart("--controller-listen needs a port that the other nodes know.")
            entries[name] = _text(host, port)
    except BadValue as fault:
        raise CannotStart(str(fault)) from None
    joined.settings["listeners"] = ",".join(f"{each}://{at}" for each, at in entries.items())
    if name in entries:
        joined.settings["process.roles"] = "broker,controller"
        maps = [*(f"{each}:{each}" for each in SECURITY_PROTOCOLS), f"{name}:PLAINTEXT"]
        joined.settings["listener.security.protocol.map"] = ",".join(maps)


def _text(host: str, port: int) -> str:
    return f"{bracketed(host)}:{port}"


def _load(joining: Joining, joined: JoinedNode, given: Mapping[str, str]) -> Settings:
    weakest = {name: text for name, text in joined.settings.items() if name not in given}
    overrides = {**weakest, **joining.overrides, "node.id": str(joined.node_id)}
    return load_settings(
        config_file=joining.config_file,
        overrides=overrides,
        data=None if "log.dirs" in overrides else joining.data,
        metrics=joining.metrics,
        insecure=joining.insecure,
    )


def _format(disk: RealDisk, joining: Joining, joined: JoinedNode, settings: Settings) -> None:
    locks = FolderLocks(settings.log_dir, settings.log_dirs)
    try:
        write_joined(disk, joining.data, joined)
        identity = format_folder(
            disk,
            settings,
            cluster_id=joined.cluster_id,
            standalone=False,
            controllers=None,
            levels=levels_of({}),
            randomness=os.urandom,
            wall_ms=time.time_ns() // 1_000_000,
        )
    finally:
        locks.release()
    if identity.cluster_id != joined.cluster_id:
        raise CannotStart(
            f"{joining.data} belongs to the cluster {identity.cluster_id}, not to "
            f"{joined.cluster_id}: name another folder with --data."
        )


def require_joining(*, node_id: int | None, client_config: Path | None) -> None:
    if node_id is not None:
        raise Failure("--node-id goes with --join; a node of its own takes --set node.id=NUMBER.")
    if client_config is not None:
        raise Failure("--client-config goes with --join: it says how to ask the cluster.")


def how_to_vote(settings: Settings) -> str | None:
    """A command for a controller that has just joined, and does not vote yet; None: a broker."""
    if not settings.cluster.is_controller:
        return None
    where = settings.controller_endpoint
    return (
        f"headrace cluster add-voter {settings.node_id} --at {_text(where.host, where.port)} "
        "--execute"
    )


def require_alone(*, brokers: int | None, secure: bool) -> None:
    if (brokers or 1) > 1:
        raise Failure("--join starts one node; start it once for each, without --brokers.")
    if secure:
        raise Failure(
            "--join and --secure do not go together: put the logins and certificates of the "
            "cluster's nodes into a file for --config, and name --client-config for the asking."
        )
