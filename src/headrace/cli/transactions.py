"""`headrace transactions`: what is open, for how long, and ending one that hangs.

`abort` shows what it would end and does it only with --execute: records of the transaction are lost
to readers of committed records for good.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.cluster import (
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    ClientConfig,
    ClientSettings,
    Json,
    Timeout,
    cluster_at,
)
from headrace.cli.failure import Failure
from headrace.client.transactional_ids import (
    OpenTransaction,
    TransactionalIds,
    TransactionDescription,
)

app = typer.Typer(
    help="List, describe and abort transactions.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
DRY_RUN = "Nothing was done. Say --execute to abort."


@app.command("list")
def list_transactions(
    only_open: Annotated[
        bool, typer.Option("--open", help="Only those that are not ended yet.")
    ] = False,
    longer_than: Annotated[
        float | None,
        typer.Option("--longer-than", metavar="SECONDS", min=0, help="Begun before so long."),
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    x: ClientSettings = [],
    client_config: ClientConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List the transactional ids of the cluster."""
    with cluster_at(bootstrap, x, client_config, timeout) as cluster:
        found = TransactionalIds(cluster).all(
            OPEN_STATES if only_open else (),
            longer_than_ms=None if longer_than is None else int(longer_than * 1000),
        )
    if as_json:
        output.answer_json(found)
    elif not found:
        output.note("There are none.")
    else:
        output.table(
            ("transactional id", "state", "producer", "coordinator"),
            [(t.transactional_id, t.state, t.producer_id, t.coordinator) for t in found],
        )


@app.command()
def describe(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The ids.", show_default=False)],
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    x: ClientSettings = [],
    client_config: ClientConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show state, producer, age and partitions of transactional ids."""
    with cluster_at(bootstrap, x, client_config, timeout) as cluster:
        known = TransactionalIds(cluster)
        found = [known.describe(each) for each in ids]
    if as_json:
        output.answer_json(found)
        return
    for each in found:
        _show(each)


def _show(found: TransactionDescription) -> None:
    output.say(
        f"{found.transactional_id}: {found.state}, producer {found.producer_id} "
        f"epoch {found.producer_epoch}, time-out {found.timeout_ms / 1000:g} s, "
        f"coordinator {found.coordinator}"
    )
    if found.started_ms is not None:
        output.say(f"the last one began {_when(found.started_ms)}")
    if found.partitions:
        output.table(("topic", "partition"), found.partitions)


def _when(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")


@app.command()
def abort(
    transactional_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Whose transaction.", show_default=False),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Where one hangs that no coordinator knows.")
    ] = None,
    partition: Annotated[int, typer.Option("--partition", min=0)] = 0,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", help="Which one there; default: all.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    x: ClientSettings = [],
    client_config: ClientConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Abort the open transaction of an id, or one that hangs in a partition."""
    if (transactional_id is None) == (topic is None):
        raise Failure("Name a transactional id, or a partition with --topic and --partition.")
    with cluster_at(bootstrap, x, client_config, timeout) as cluster:
        known = TransactionalIds(cluster)
        if transactional_id is not None:
            _abort_id(known, transactional_id, execute=execute, as_json=as_json)
        elif topic is not None:
            found = [
                each
                for each in known.open_in(topic, partition)
                if start_offset in (None, each.start_offset)
            ]
            _abort_hanging(known, topic, partition, found, execute=execute, as_json=as_json)


def _abort_id(
    known: TransactionalIds, transactional_id: str, *, execute: bool, as_json: bool
) -> None:
    found = known.describe(transactional_id)
    if found.state != "Ongoing":
        raise Failure(f"{transactional_id} has no open transaction: it is {found.state}.")
    if execute:
        known.abort(transactional_id)
    if as_json:
        output.answer_json({"aborted": execute, "transaction": found})
        return
    _show(found)
    output.note("Aborted; its producer is fenced." if execute else DRY_RUN)


def _abort_hanging(
    known: TransactionalIds,
    topic: str,
    partition: int,
    found: list[OpenTransaction],
    *,
    execute: bool,
    as_json: bool,
) -> None:
    if not found:
        raise Failure(f"No such transaction is open in {topic}-{partition}.")
    if execute:
        for each in found:
            known.abort_in(topic, partition, each)
    if as_json:
        output.answer_json({"aborted": execute, "transactions": found})
        return
    output.table(
        ("producer", "epoch", "start offset", "last record"),
        [
            (e.producer_id, e.producer_epoch, e.start_offset, _when(e.last_timestamp_ms))
            for e in found
        ],
    )
    output.note("Aborted." if execute else DRY_RUN)
