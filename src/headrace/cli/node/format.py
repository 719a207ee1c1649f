"""`headrace format`: makes the data folder of a node, as Apache's `kafka-storage format` does.

`headrace start` formats a folder of its own as a cluster of one; this is for nodes whose cluster or
quorum is named beforehand.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import Json
from headrace.cli.options.key_values import key_values
from headrace.cli.options.local_folder import local_folder
from headrace.node.broker.folders.identity import Identity
from headrace.node.process.folders.folder_format import (
    format_folder,
    format_other_folders,
    initial_controllers,
    levels_of,
)
from headrace.node.process.folders.folder_locks import FolderLocks
from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.process.settings.settings import CannotStart, Settings, load_settings
from headrace.wire.protocol import uuids

app = typer.Typer(add_completion=False, **output.LOOK)


@app.command("format")
def format_(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="The node's server.properties file."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=local_folder,
            help="The data folder (default: what the file says).",
        ),
    ] = None,
    set_: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE", help="A broker setting. Repeat for more."),
    ] = [],
    cluster_id: Annotated[
        str | None,
        typer.Option(
            "--cluster-id", "-t", metavar="ID", help="The same for all nodes (default: a new one)."
        ),
    ] = None,
    standalone: Annotated[
        bool, typer.Option("--standalone", help="Begin a quorum of this controller alone.")
    ] = False,
    initial: Annotated[
        str | None,
        typer.Option(
            "--initial-controllers",
            metavar="LIST",
            help="Begin a quorum of these: ID@HOST:PORT:DIRECTORY-ID, with commas between.",
        ),
    ] = None,
    no_initial: Annotated[
        bool,
        typer.Option("--no-initial-controllers", help="This controller joins an existing quorum."),
    ] = False,
    feature: Annotated[
        list[str],
        typer.Option("--feature", metavar="NAME=LEVEL", help="A feature level. Repeat for more."),
    ] = [],
    ignore_formatted: Annotated[
        bool,
        typer.Option("--ignore-formatted", help="Accept a folder that is already formatted."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Format the data folder of a node: its identity and its first quorum."""
    if standalone + (initial is not None) + no_initial > 1:
        raise Failure(
            "Give one of --standalone, --initial-controllers and --no-initial-controllers."
        )
    try:
        settings = load_settings(
            config_file=config,
            overrides=key_values(set_, option="--set"),
            data=data,
            insecure=True,  # nobody listens yet
        )
        _require_a_way(settings, standalone or initial is not None or no_initial)
        locks = FolderLocks(settings.log_dir, settings.log_dirs)
        try:
            identity = format_folder(
                RealDisk(),
                settings,
                cluster_id=cluster_id,
                standalone=standalone,
                controllers=(
                    initial and initial_controllers(initial, settings.cluster.controller_listener)
                )
                or None,
                levels=levels_of(key_values(feature, option="--feature")),
                randomness=os.urandom,
                wall_ms=time.time_ns() // 1_000_000,
            )
            _require_new(settings, identity, ignore_formatted=ignore_formatted)
            others = format_other_folders(RealDisk(), settings, identity, os.urandom)
        finally:
            locks.release()
    except CannotStart as refusal:
        raise Failure(str(refusal)) from refusal
    about = {
        "data": settings.log_dir,
        "cluster_id": identity.cluster_id,
        "node_id": identity.node_id,
        "directory_id": uuids.to_text(identity.directory_id),
        "formatted": identity.is_new,
        "others": others,
    }
    if as_json:
        output.answer_json(about)
        return
    done = "Formatted" if identity.is_new else "Formatted before, and not touched:"
    output.say(f"{done} {settings.log_dir}")
    output.say(f"  cluster    {identity.cluster_id}")
    output.say(f"  node       {identity.node_id}")
    output.say(f"  directory  {about['directory_id']}")
    for path in others:
        output.say(f"Formatted {path}")


def _require_new(settings: Settings, identity: Identity, *, ignore_formatted: bool) -> None:
    if not identity.is_new and not ignore_formatted:
        raise Failure(
            f"{settings.log_dir} was formatted already, for node {identity.node_id} of the cluster "
            f"{identity.cluster_id}; --ignore-formatted accepts it as it is."
        )


def _require_a_way(settings: Settings, is_said: bool) -> None:
    cluster = settings.cluster
    if cluster.is_controller and not cluster.static_voters and not is_said:
        raise Failure(
            "How does the quorum begin? --standalone: with this controller alone. "
            "--initial-controllers LIST: with these. --no-initial-controllers: it exists already."
        )
