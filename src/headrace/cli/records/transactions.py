"""`headrace transactions`: what is open, for how long, and ending one that hangs.

`abort` shows what it would end and does it only with --execute: records of the transaction are lost
to readers of committed records for good. In a partition it ends only what no coordinator knows: a
marker against a transaction that may yet commit elsewhere would tear it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.client.admin.transactional_ids import (
    TransactionalIds,
    TransactionDescription,
    TransactionSummary,
)
from headrace.client.once.hanging import OpenInPartition, hanging
from headrace.operations.transactions import (
    OPEN_STATES,
    abort_hanging,
    hanging_in,
    open_transaction,
)
from headrace.wire.contract import durations

app = typer.Typer(
    help="List, describe and abort transactions.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

DRY_RUN = "A dry run: nothing was changed. Add --execute to abort."


@app.command("list")
@cluster_options
def list_transactions(
    at: At,
    only_open: Annotated[
        bool, typer.Option("--open", help="Only those that are not ended yet.")
    ] = False,
    longer_than: Annotated[
        float | None,
        typer.Option("--longer-than", metavar="SECONDS", min=0, help="Open for longer than this."),
    ] = None,
    only_hanging: Annotated[
        bool,
        typer.Option(
            "--hanging", help="Hanging transactions: open, and no coordinator will end them."
        ),
    ] = False,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="TOPIC", help="Look only in this topic."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List transactional ids, or hanging transactions."""
    if only_hanging and (only_open or longer_than is not None):
        raise typer.BadParameter("--hanging goes with --topic only.")
    if topic is not None and not only_hanging:
        raise typer.BadParameter("--topic goes with --hanging only.")
    with at.connection() as cluster:
        ids = TransactionalIds(cluster)
        if only_hanging:
            _show_hanging(hanging(ids, ids.led_partitions(topic)), as_json=as_json)
            return
        found = ids.all(
            OPEN_STATES if only_open else (),
            longer_than_ms=None if longer_than is None else int(longer_than * 1000),
        )
    _show_all(found, as_json=as_json)


def _show_all(found: list[TransactionSummary], *, as_json: bool) -> None:
    if as_json:
        output.answer_json(found)
    elif not found:
        output.note("There are none.")
    else:
        output.table(
            ("transactional id", "state", "producer", "coordinator"),
            [(t.transactional_id, t.state, t.producer_id, t.coordinator) for t in found],
        )


def _show_hanging(found: list[OpenInPartition], *, as_json: bool) -> None:
    if as_json:
        output.answer_json(found)
    elif not found:
        output.note("No hanging transactions.")
    else:
        _table_of(found)
        output.note("End one with `headrace transactions abort --topic T --partition N`.")


def _table_of(found: list[OpenInPartition]) -> None:
    output.table(
        ("topic", "partition", "start offset", "producer", "epoch", "last record"),
        [
            (
                each.topic,
                each.partition,
                each.start_offset,
                each.producer_id,
                each.producer_epoch,
                _when(each.last_timestamp_ms),
            )
            for each in found
        ],
    )


@app.command()
@cluster_options
def describe(
    at: At,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The ids.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Show state, producer, age and partitions of transactional ids."""
    with at.connection() as cluster:
        known = TransactionalIds(cluster)
        found = [known.describe(each) for each in dict.fromkeys(ids)]
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
        output.say(f"the last one began {_when(found.started_ms)}{_age(found)}")
    if found.partitions:
        output.table(("topic", "partition"), found.partitions)


def _age(found: TransactionDescription) -> str:
    """How long one is open that is."""
    if found.state not in OPEN_STATES or found.started_ms is None:
        return ""
    open_s = max(int(time.time()) - found.started_ms // 1000, 0)
    return f" and is open for {durations.write(open_s * 1000) if open_s else '0s'}"


def _when(wall_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(wall_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a producer may write any timestamp
        return str(wall_ms)
    return moment.isoformat(sep=" ", timespec="seconds")


@app.command()
@cluster_options
def abort(
    at: At,
    transactional_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Whose transaction.", show_default=False),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="TOPIC", help="The topic of a hanging transaction."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", metavar="N", min=0, help="In this partition of it.")
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset",
            metavar="N",
            help="The first offset of the transaction; default: all there.",
        ),
    ] = None,
    execute: Annotated[
        bool,
        typer.Option(
            "--execute/--dry-run", help="Execute it; --dry-run, the default, only shows it."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Abort the open transaction of an id, or one that hangs."""
    of_partition = (topic, partition, start_offset)
    if transactional_id is not None and of_partition != (None, None, None):
        raise typer.BadParameter("Name a transactional id or a partition, not both.")
    if transactional_id is None and (topic is None or partition is None):
        raise typer.BadParameter(
            "Name a transactional id, or a partition with --topic and --partition."
        )
    with at.connection() as cluster:
        ids = TransactionalIds(cluster)
        if transactional_id is not None:
            _abort_id(ids, transactional_id, execute=execute, as_json=as_json)
        elif topic is not None and partition is not None:
            found = hanging_in(ids, topic, partition, start_offset)
            _abort_hanging(ids, found, execute=execute, as_json=as_json)


def _abort_id(
    ids: TransactionalIds, transactional_id: str, *, execute: bool, as_json: bool
) -> None:
    found = open_transaction(ids, transactional_id)
    if execute:
        ids.abort(transactional_id)
    if as_json:
        output.answer_json({"aborted": execute, "transaction": found})
        return
    _show(found)
    output.note("Aborted; its producer is fenced." if execute else DRY_RUN)


def _abort_hanging(
    ids: TransactionalIds, found: list[OpenInPartition], *, execute: bool, as_json: bool
) -> None:
    if execute:
        abort_hanging(ids, found)
    if as_json:
        output.answer_json({"aborted": execute, "transactions": found})
        return
    _table_of(found)
    output.note("Aborted." if execute else DRY_RUN)
