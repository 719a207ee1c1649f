"""`headrace delay`: which topics take delayed messages, what waits, and changing one's mind.

Cancelling and rescheduling are records like those of any client and work wherever the service runs;
listing, showing and statistics ask the running instances, on the machine where they run.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli import output
from headrace.cli.delayed import pending_view, rejected_view, stats_view
from headrace.cli.delayed.moments import away, clock, moment_ms
from headrace.cli.delayed.options import Cron, CronZone, Delay, DeliverAt, when_of
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.cli.options.listen_address import address_of, under_older_name
from headrace.cli.options.local_folder import local_folder
from headrace.client.connection import ClientSettings
from headrace.client.delay import pending_rows
from headrace.client.delay.delayed_topics import DelayedTopics
from headrace.client.delay.instances import DelayInstances
from headrace.client.delay.schedules import When
from headrace.client.producer.producer import Producer
from headrace.installation import how_to_add
from headrace.operations.delayed import LOOK_AGAIN_S, report_of, waiting_message
from headrace.private_files import keep_new_files_private
from headrace.wire.contract import headers as contract_headers
from headrace.wire.contract.delay_topics import GROUP

app = typer.Typer(
    help="Delayed messages: enable them for topics, list, show, cancel, reschedule.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)]
Names = Annotated[
    list[str], typer.Argument(metavar="TOPIC...", help="The topics.", show_default=False)
]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of the message.", show_default=False)]
Key = Annotated[
    str | None,
    typer.Option(
        "--key", metavar="TEXT", help="The key of the message: it gives the partition of the id."
    ),
]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="The partition it is in.")
]
PAGE = 20
LARGEST_PAGE = 1000
ADMIN_PORT = 9095


@app.command()
@cluster_options
def enable(
    at: At,
    names: Names,
    as_json: Json = False,
) -> None:
    """Let topics take delayed messages: makes their companions and registers them."""
    with at.connection() as cluster:
        enabled = [DelayedTopics(cluster).enable(name) for name in names]
    if as_json:
        output.answer_json(enabled)
        return
    for pair in enabled:
        output.say(f"{pair.target} takes delayed messages: send them to {pair.companion}, or with")
        output.say(f"  headrace produce {pair.target} --delay 10s")


@app.command()
@cluster_options
def disable(
    at: At,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
    as_json: Json = False,
) -> None:
    """Deliver no more messages of a topic. Waiting messages stay until it is enabled again."""
    if not yes and sys.stdin.isatty() and sys.stdout.isatty():
        question = f"Deliver no more delayed messages to {name}? Waiting messages stay."
        if not output.confirmed(question):
            raise Failure("Nothing was changed.")
    with at.connection() as cluster:
        pair = DelayedTopics(cluster).disable(name)
    said = (
        f"{name} takes no delayed messages any more; {pair.companion} keeps the waiting messages."
    )
    _tell(as_json, {"topic": name, "enabled": False}, said)


@app.command("list")
@cluster_options
def list_pending(
    at: At,
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="Only messages of this topic."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="TEXT", help="Only messages with this key.")
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Only messages with this id.")
    ] = None,
    partition: Partition = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Due then or later: 2026-01-31T10:00, +10m."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Due before that: +1h, now.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=LARGEST_PAGE, help="Messages on one page.")
    ] = PAGE,
    after: Annotated[
        str | None, typer.Option("--after", metavar="PLACE", help="The page after this place.")
    ] = None,
    values: Annotated[
        bool, typer.Option("--values", help="With --json: values and headers, too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List waiting messages by due time, a page at a time."""
    now_ms = time.time_ns() // 1_000_000
    due = {
        "from": None if from_ is None else moment_ms(from_, now_ms=now_ms, option="--from"),
        "to": None if to is None else moment_ms(to, now_ms=now_ms, option="--to"),
    }
    with at.connection() as cluster:
        if topic is not None:
            DelayedTopics(cluster).require(topic)
        page = DelayInstances(cluster).pending(
            limit=limit,
            topic=topic,
            key=key,
            id=id,
            partition=partition,
            after=after,
            values="1" if values else None,
            **due,
        )
    if as_json:
        output.answer_json(page)
        return
    if page.rows:
        pending_view.show_many(page.rows, page.now_ms)
    elif page.next is None:
        output.note("Nothing waits." if after is None else "There are no more.")
    if page.missing:
        partitions = output.count(page.missing, "partition")
        output.note(f"What waits in {partitions} is not known yet: `headrace delay stats`.")
    if page.next is not None:
        output.note(f"There may be more: the same command with --after {page.next}")


@app.command()
@cluster_options
def show(
    at: At,
    topic: Name,
    id: Id,
    key: Key = None,
    partition: Partition = None,
    as_json: Json = False,
) -> None:
    """Show one waiting message, with its value and headers."""
    with at.connection() as cluster:
        row, now_ms = _found(cluster, topic, id, key, partition)
    if as_json:
        output.answer_json(row)
    else:
        pending_view.show_one(row, now_ms)


@app.command()
@cluster_options
def cancel(
    at: At,
    topic: Name,
    id: Id,
    key: Key = None,
    partition: Partition = None,
    as_json: Json = False,
) -> None:
    """Cancel a message and wait for the outcome; ends with 1 unless it is cancelled.

    Without --key or --partition the running service is asked where the id is.
    """
    with at.connection() as cluster:
        if key is None and partition is None:
            partition = _found(cluster, topic, id, None, None)[0]["partition"]
        done = DelayedTopics(cluster).cancel(topic, id, key=key, partition=partition)
    words = {
        contract_headers.CANCELLED: f"Cancelled: {id} will not be delivered.",
        contract_headers.TOO_LATE: f"Too late: {id} was delivered.",
        contract_headers.UNKNOWN: (
            f"Unknown: no message with the id {id} and this key waits in {topic}."
        ),
    }
    _tell(as_json, {"topic": topic, "id": id, "outcome": done.outcome}, words[done.outcome])
    if not done.in_time:
        raise typer.Exit(1)


@app.command()
@cluster_options
def rejected(
    at: At,
    topic: Name,
    as_json: Json = False,
) -> None:
    """List the delayed messages of a topic that were refused, and why."""
    with at.connection() as cluster:
        DelayedTopics(cluster).require(topic)
        rows = rejected_view.rows_of(cluster, topic)
    if as_json:
        output.answer_json(rows)
    elif not rows:
        output.note(f"No delayed message of {topic} was refused.")
    else:
        rejected_view.show(rows)


@app.command()
@cluster_options
def reschedule(
    at: At,
    topic: Name,
    id: Id,
    delay: Delay = None,
    deliver_at: DeliverAt = None,
    cron: Cron = None,
    cron_zone: CronZone = None,
    key: Key = None,
    partition: Partition = None,
    as_json: Json = False,
) -> None:
    """Give a waiting message another time: it is sent again with its id, which replaces it."""
    when = when_of(delay, deliver_at, cron, cron_zone, id)
    if when.keys() == {"id"}:
        raise typer.BadParameter("Give a time: --delay, --deliver-at or --cron.")
    with at.connection() as cluster:
        row, _ = _found(cluster, topic, id, key, partition)
        _send_again(cluster, row, when)
        anew = _found_anew(cluster, row, at.timeout_s)
    was = clock(row["due_ms"])
    if anew is None:
        said = f"{id} was due at {was}. The new time is written; the service has not read it yet."
        _tell(as_json, {"topic": topic, "id": id, "was_ms": row["due_ms"], "due_ms": None}, said)
        return
    due_ms, now_ms = anew
    left = away(due_ms, now_ms)
    _tell(
        as_json,
        {"topic": topic, "id": id, "was_ms": row["due_ms"], "due_ms": due_ms},
        f"{id} is due at {clock(due_ms)}, {left}; it was {was}.",
    )


@app.command()
@cluster_options
def stats(
    at: At,
    as_json: Json = False,
) -> None:
    """Show waiting messages per topic, lateness, and the instances with their partitions."""
    with at.connection() as cluster:
        registered = [pair.target for pair in DelayedTopics(cluster).all()]
        if not registered:
            raise Failure(
                "No topic takes delayed messages yet. Enable one with `headrace delay enable "
                "TOPIC`, or make one with `headrace topics create TOPIC --delayed`."
            )
        answers = DelayInstances(cluster).stats()
    document = stats_view.as_document(report_of(answers, registered))
    if as_json:
        output.answer_json(document)
    else:
        stats_view.show(document)


@app.command()
@cluster_options
def serve(
    at: At,
    store: Annotated[
        Path,
        typer.Option(
            "--store",
            metavar="DIR",
            parser=local_folder,
            help="The folder of the store of pending messages; a cache.",
        ),
    ] = Path("headrace-delay"),
    instance: Annotated[
        str | None,
        typer.Option("--instance", metavar="NAME", help="Its name in the group (default: host)."),
    ] = None,
    group: Annotated[
        str, typer.Option("--group", metavar="GROUP", help="Instances of a group share the work.")
    ] = GROUP,
    listen: Annotated[
        str,
        typer.Option(
            "--listen", metavar="HOST:PORT", help="The address that `headrace delay` asks."
        ),
    ] = f"127.0.0.1:{ADMIN_PORT}",
    admin: Annotated[str | None, typer.Option("--admin", hidden=True)] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON when it runs.")
    ] = False,
) -> None:
    """Run the delay service for a cluster, in the foreground. `headrace start` runs its own.

    Several instances share the partitions of a group: give each its own name and store.
    """
    listen = under_older_name(listen, admin, "--admin", "--listen")
    host, port = address_of(listen, "--listen", f"127.0.0.1:{ADMIN_PORT}")

    def tell(service: Any, window: Any) -> None:
        if as_json:
            said = {"instance": service.instance, "group": group, "address": window.address}
            output.write_json_line({**said, "pid": os.getpid()})
            sys.stdout.flush()

    keep_new_files_private()
    with at.connection() as cluster:
        try:
            from headrace.services.delay.main import serve as run
        except ModuleNotFoundError as missing:
            raise Failure(how_to_add("The delay service needs", missing.name, "delay")) from missing
        run(
            cluster,
            folder=store,
            group=group,
            instance=instance,
            admin_host=host,
            admin_port=port,
            on_ready=tell,
        )


# ---- parts of the commands


def _found(
    cluster: ClientSettings, topic: str, id: str, key: str | None, partition: int | None
) -> tuple[dict[str, Any], int]:
    """The one message that waits under an id, and the service's time."""
    DelayedTopics(cluster).require(topic)
    return waiting_message(cluster, topic, id, key=key, partition=partition)


def _send_again(cluster: ClientSettings, row: dict[str, Any], when: When) -> None:
    with Producer(cluster) as producer:
        pending_rows.reschedule(producer, row, when).result(cluster.timeout_s)


def _found_anew(
    cluster: ClientSettings, before: dict[str, Any], timeout_s: float
) -> tuple[int, int] | None:
    """The new due time and the service's own, once it knows; None if that takes too long."""
    instances = DelayInstances(cluster)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = instances.pending(
            limit=1, topic=before["topic"], id=before["id"], partition=before["partition"]
        )
        if found.rows and found.rows[0]["offset"] > before["offset"]:
            return found.rows[0]["due_ms"], found.now_ms
        time.sleep(LOOK_AGAIN_S)
    return None


def _tell(as_json: bool, fact: Mapping[str, object], sentence: str) -> None:
    if as_json:
        output.answer_json(fact)
    else:
        output.say(sentence)
