"""`headrace outbox`: make the tables, run a relay, look at what waits and at what was parked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.cli.options.listen_address import address_of
from headrace.cli.options.log_level import LogLevel
from headrace.foreign_text import escaped_bytes
from headrace.log_lines import log_to_stderr
from headrace.operations import outboxes
from headrace.wire.contract import durations

if TYPE_CHECKING:
    from headrace.services.outbox.store import ParkedRow, Store

app = typer.Typer(
    help="A database change and its message as one: tables, relay, parked rows.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

DatabaseUrl = Annotated[
    str,
    typer.Argument(
        metavar="DATABASE_URL",
        envvar="HEADRACE_DATABASE_URL",
        help="Such as postgresql://user@host/name, mariadb://..., sqlite:///file.db.",
        show_default=False,
    ),
]
LARGEST_ID = 2**63 - 1  # of a bigint
Ids = Annotated[
    list[int], typer.Argument(metavar="ID...", min=0, max=LARGEST_ID, show_default=False)
]
SHORTEST_LEASE_MS = 100


@app.command()
def init(
    database_url: DatabaseUrl,
    shards: Annotated[
        int | None,
        typer.Option(min=1, help="The most relays that can share the work; it never changes."),
    ] = None,
    show: Annotated[bool, typer.Option("--print", help="Only print the SQL.")] = False,
    as_json: Json = False,
) -> None:
    """Make the tables where they are missing."""
    with _database(database_url, makes_file=True) as store:
        from headrace.services.outbox import schema

        if show:  # nothing is asked of the database
            chosen = schema.SHARDS if shards is None else shards
            for statement in schema.statements(store.engine.dialect.name, chosen):
                output.say(f"{statement};")
            return
        connection = store.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        with connection as db:
            facts = schema.create(db, shards)
    if as_json:
        output.answer_json({"outbox": facts.outbox_id, "shards": facts.shards})
    else:
        output.say(f"The outbox {facts.outbox_id} is there, with {facts.shards} shards.")


@app.command()
@cluster_options
def relay(
    at: At,
    database_url: DatabaseUrl,
    name: Annotated[
        str | None, typer.Option(help="This relay's name in `status` (default: the machine's).")
    ] = None,
    on_poison: Annotated[
        str,
        typer.Option(
            metavar="skip|wait",
            help="Later rows of a parked row's key: send them, or let them wait behind it.",
        ),
    ] = "skip",
    keep: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to keep sent rows: 7d, or forever.")
    ] = "0ms",
    lease: Annotated[
        str, typer.Option(metavar="DURATION", help="How long after a crash other relays take over.")
    ] = "10s",
    rows: Annotated[int, typer.Option(min=1, max=50_000, help="Rows in one transaction.")] = 5000,
    resends: Annotated[
        int,
        typer.Option(
            min=0, max=1000, help="Times a message is sent again if it is not confirmed in time."
        ),
    ] = 3,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve /metrics and /health here.")
    ] = None,
    log_level: LogLevel = "info",
    as_json: Annotated[bool, typer.Option("--json", help="Log in JSON, one line each.")] = False,
) -> None:
    """Send rows to Kafka until interrupted; start several, and they share the shards."""
    if on_poison not in ("skip", "wait"):
        raise Failure(f"--on-poison is skip or wait, not {on_poison}.")
    window = None if metrics is None else address_of(metrics, "--metrics", "127.0.0.1:9096")
    log_to_stderr(level=log_level, as_json=as_json, anew=True)
    with _database(database_url) as store, at.connection() as cluster:
        from headrace.services.outbox.main import serve
        from headrace.services.outbox.relay import Settings

        lease_ms = _milliseconds(lease, "--lease")
        if lease_ms < SHORTEST_LEASE_MS:
            raise Failure("--lease must be at least 100ms, or no relay keeps a shard.")
        settings = Settings(
            lease_ms=lease_ms,
            rows=rows,
            blocks=on_poison == "wait",
            keep_ms=None if keep == "forever" else _milliseconds(keep, "--keep"),
            relay=name,
            resends=resends,
        )
        try:
            serve(store.engine, cluster, settings, window)
        except OSError as taken:
            raise Failure(f"Cannot listen on {metrics}: {taken.strerror or taken}.") from None


@app.command()
def status(database_url: DatabaseUrl, as_json: Json = False) -> None:
    """Show waiting rows and their age, the relay of each shard, and what holds rows up."""
    with _database(database_url) as store:
        from headrace.services.outbox.status import status_of

        found = status_of(store)
    if as_json:
        output.answer_json(found)
        return
    output.table(
        ("shard", "relay", "sent to", "rows/s", "waiting", "oldest", "parked"),
        [
            (
                each.shard,
                each.owner,
                each.sent_id,
                round(each.rows_per_s),
                each.waiting,
                None if each.oldest_ms is None else durations.write(each.oldest_ms // 1000 * 1000),
                each.parked,
            )
            for each in found.shards
        ],
    )
    output.say(f"The table takes {found.table_bytes / 1e6:,.1f} MB.")
    for each in found.shards:
        if each.problem:
            output.say(f"shard {each.shard}: {each.problem}")
    if found.confirmations_open:
        waiting = output.count(found.confirmations_open, "message")
        output.say(f"{waiting} sent and not confirmed yet.")
    if found.unconfirmed:
        vain = output.count(found.unconfirmed, "message")
        output.say(f"{vain} never confirmed: `headrace outbox list` has them.")
    if not found.relays:
        output.note("No relay is running: `headrace outbox relay DATABASE_URL` starts one.")
    if found.held_up_by:
        output.note(f"Rows wait for {found.held_up_by}.")


@app.command("list")
def list_(
    database_url: DatabaseUrl,
    limit: Annotated[int, typer.Option(min=1, help="How many rows.")] = 100,
    as_json: Json = False,
) -> None:
    """Rows that were parked because they cannot be sent, and messages that were not confirmed."""
    with _database(database_url) as store:
        parked = outboxes.set_aside(store, None, limit)
    if as_json:
        output.answer_json([_described(each) for each in parked])
        return
    output.table(
        ("id", "topic", "key", "state", "reason"),
        [
            (each.row.id, each.row.topic, escaped_bytes(each.row.key), each.state, each.reason)
            for each in parked
        ],
    )


@app.command()
def show(
    database_url: DatabaseUrl,
    row_id: Annotated[int, typer.Argument(metavar="ID", min=0, max=LARGEST_ID, show_default=False)],
    as_json: Json = False,
) -> None:
    """All of one parked row, or of a message that was not confirmed."""
    with _database(database_url) as store:
        found = outboxes.set_aside(store, row_id, 1)
    if not found:
        raise Failure(f"No row {row_id} is parked; `headrace outbox list` has those that are.")
    described = _described(found[0])
    if as_json:
        output.answer_json(described)
        return
    for name, value in described.items():
        output.say(f"{name}: {value}")


@app.command()
def retry(
    database_url: DatabaseUrl,
    ids: Annotated[
        list[int] | None,
        typer.Argument(metavar="[ID...]", min=0, max=LARGEST_ID, show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    topic: Annotated[str | None, typer.Option(help="All that are for this topic.")] = None,
    as_json: Json = False,
) -> None:
    """Let the relay send parked rows and unconfirmed messages again."""
    many = everything or topic is not None
    if many == bool(ids):
        raise Failure("Name rows by their ids, or give --all or --topic TOPIC.")
    with _database(database_url) as store:
        count = outboxes.retry_all(store, topic) if many else outboxes.retry(store, ids or [])
    _say_count(count, len(ids or []), "to be sent again", as_json)


@app.command()
def discard(
    database_url: DatabaseUrl,
    ids: Ids,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Delete parked rows and unconfirmed messages: they will never be sent."""
    if not yes and not output.confirmed(f"Delete {output.count(len(ids), 'row')} for good?"):
        raise typer.Abort
    with _database(database_url) as store:
        count = outboxes.discard(store, ids)
    _say_count(count, len(ids), "deleted", as_json)


@app.command()
@cluster_options
def resume(
    at: At,
    database_url: DatabaseUrl,
    shard: Annotated[int, typer.Option(help="Which one.")],
    after: Annotated[
        int, typer.Option(min=0, max=LARGEST_ID, help="Continue after the row with this id.")
    ],
    as_json: Json = False,
) -> None:
    """Set where a stopped shard continues: on a new cluster, after a restored backup."""
    with _database(database_url) as store, at.connection() as cluster:
        from headrace.services.outbox.resumption import resume as set_position

        set_position(store, cluster, shard, after=after)
    if as_json:
        output.answer_json({"shard": shard, "after": after})
    else:
        output.say(f"Shard {shard} continues after row {after}.")


def _say_count(count: int, asked: int, what: str, as_json: bool) -> None:
    if as_json:
        output.answer_json({"rows": count})
    else:
        output.say(f"{output.count(count, 'row')} {what}.")
    if count < asked:
        raise Failure(f"{output.count(asked - count, 'row')} of these are not parked.")


def _described(each: ParkedRow) -> dict[str, Any]:
    row = each.row
    return {
        "id": row.id,
        "shard": each.shard,
        "topic": row.topic,
        "key": escaped_bytes(row.key),
        "payload": escaped_bytes(row.payload),
        "headers": row.headers,
        "message_id": row.message_id,
        "created_ms": row.created_ms,
        "state": each.state,
        "reason": each.reason,
        "parked_ms": each.parked_ms,
    }


@contextmanager
def _database(url: str, *, makes_file: bool = False) -> Iterator[Store]:
    """An error inside ends the command with one sentence."""
    try:
        with outboxes.opened(url, makes_file=makes_file) as store:
            yield store
    except outboxes.OutboxFailed as failure:
        raise Failure(str(failure)) from failure


def _milliseconds(given: str, option: str) -> int:
    try:
        return durations.parse(given)
    except ValueError as wrong:
        raise Failure(f"{option}: {wrong}.") from None
