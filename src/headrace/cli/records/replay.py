"""`headrace replay`: have records read again, with a plan first and a way back.

`group` has the same group read again, `copy` writes records into another topic or cluster, `undo`
puts a group back, `list` shows what was done. Nothing is changed without --execute.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from headrace.app.triggers.filters import FilterRefused
from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.cli.options.completion import group_names, topic_names
from headrace.cli.options.key_values import key_values
from headrace.cli.options.numbers import finite
from headrace.cli.records import reset_targets
from headrace.cli.records.dead_letters import moment, whoever
from headrace.cli.replayed.views import (
    copy_object,
    report_copy,
    show_copy_plan,
    show_group_plan,
    show_undo,
)
from headrace.client.admin.groups import Groups
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings, connection
from headrace.services.replay import journal
from headrace.services.replay.group_moves import GroupMoves, targets_from
from headrace.services.replay.journal import GroupEntry
from headrace.services.replay.pace import Pace
from headrace.services.replay.retried import require_retry_topic, retried
from headrace.services.replay.selection import Selection
from headrace.services.replay.topic_copy import Copying, CopyPlan, CopyRequest

app = typer.Typer(
    help="Replay records: to a group, or into another topic.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC[:P,P...]",
        help="The topic, or some of its partitions (0-3,7).",
        show_default=False,
        autocompletion=topic_names,
    ),
]
Group = Annotated[
    str,
    typer.Argument(
        metavar="GROUP", help="The group.", show_default=False, autocompletion=group_names
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="WHEN", help="Not older than 2026-01-31T12:00, or than 30m, 12h or 7d ago."
    ),
]
Until = Annotated[str | None, typer.Option(metavar="WHEN", help="Older than this.")]
FromOffset = Annotated[
    int | None, typer.Option("--from-offset", min=0, metavar="N", help="From this offset on.")
]
ToOffset = Annotated[
    int | None, typer.Option("--to-offset", min=0, metavar="N", help="Up to, without, this offset.")
]
Key = Annotated[str | None, typer.Option(help="Only records with this key.")]
Header = Annotated[
    list[str],
    typer.Option("--header", metavar="NAME=VALUE", help="Only with this header. Repeat for more."),
]
Where = Annotated[
    str | None,
    typer.Option(metavar="EXPRESSION", help="Only records that match: value.amount > 100."),
]
Error = Annotated[str | None, typer.Option(help="Only dead letters whose error contains this.")]
Rate = Annotated[float | None, typer.Option(min=0.001, help="Records per second at most.")]
Speed = Annotated[
    float | None,
    typer.Option(min=0.001, help="Their original pace times this: 10 is an hour in 6 minutes."),
]
Name = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="This replay's name (default: made from its options)."),
]
Execute = Annotated[
    bool,
    typer.Option("--execute/--dry-run", help="Execute it; --dry-run, the default, only shows it."),
]
Reason = Annotated[str, typer.Option(help="The reason, for the journal.")]
By = Annotated[str | None, typer.Option(help="Your name for the journal (default: your user).")]

LONGEST_NAME = 100
# Copies that `headrace backlog` makes have such names.
OF_BACKLOGS = ("widen/", "expire/", "bring-back/")


# ---- another topic


@app.command()
@cluster_options
def copy(
    at: At,
    topic: Topic,
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="The topic to write to.")],
    since: Since = None,
    until: Until = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    key: Key = None,
    header: Header = [],
    where: Where = None,
    error: Error = None,
    rate: Rate = None,
    speed: Speed = None,
    longest_wait: Annotated[
        str, typer.Option(metavar="TIME", help="With --speed: between two records at most.")
    ] = "1h",
    to_bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Write to another cluster.")
    ] = None,
    to_client_config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Client settings of that cluster.")
    ] = None,
    times: Annotated[
        str, typer.Option(metavar="kept|now", help="The times of the copies: their own, or now.")
    ] = "kept",
    name: Name = None,
    by: By = None,
    execute: Execute = False,
    as_json: Json = False,
) -> None:
    """Copy records into another topic, each once, in the order of their times.

    The same command continues a copy that was stopped or killed.
    """
    if times not in ("kept", "now"):
        raise typer.BadParameter(f"{times!r} is neither kept nor now.", param_hint="--times")
    pace = _pace(rate, speed, longest_wait)
    source, partitions = reset_targets.topic_and_partitions(topic)
    asked = (source, partitions, to, to_bootstrap, since, until, from_offset, to_offset, key)
    chosen = name or _name_of((*asked, header, where, error))
    with at.connection() as cluster:
        target = cluster
        if to_bootstrap is not None or to_client_config is not None:
            target = connection(
                bootstrap=to_bootstrap, config_file=to_client_config, timeout_s=at.timeout_s
            )
        request = CopyRequest(
            _checked_name(chosen),
            source,
            to,
            _selection(since, until, key, header, where, error),
            partitions=partitions or None,
            from_offset=from_offset,
            to_offset=to_offset,
            times_now=times == "now",
            by=by or whoever(),
        )
        copying = Copying(cluster, target)
        plan = _planned(copying, request)
        if plan.entry is None:
            copying.require_kept(plan)
        if not execute:
            show_copy_plan(plan, as_json=as_json)
            return
        report_copy(copying.copy(plan, pace), as_json=as_json)
        if pace.shortened:
            output.note(
                f"{output.count(pace.shortened, 'wait')} between records would have been longer "
                f"than {longest_wait}: --longest-wait."
            )


def _planned(copying: Copying, request: CopyRequest) -> CopyPlan:
    try:
        return copying.plan(request)
    except FilterRefused as refused:
        raise typer.BadParameter(f"{refused}.", param_hint="--where") from None


# ---- the same group


@app.command()
@cluster_options
def group(
    at: At,
    name: Group,
    topic: Annotated[
        list[str],
        typer.Option("--topic", metavar="TOPIC[:P,P...]", help="The topic to read again."),
    ],
    since: Since = None,
    until: Until = None,
    from_offset: FromOffset = None,
    key: Key = None,
    header: Header = [],
    where: Where = None,
    rate: Rate = None,
    as_new: Annotated[
        bool,
        typer.Option("--as-new", help="Chosen records get new ids, so once= does not skip them."),
    ] = False,
    assume_rate: Annotated[
        float | None,
        typer.Option(min=0.001, help="Records per second that the group handles, for the plan."),
    ] = None,
    replay_name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="This replay's name: under one name records are sent once.",
        ),
    ] = None,
    reason: Reason = "",
    by: By = None,
    execute: Execute = False,
    as_json: Json = False,
) -> None:
    """Let a group read records again.

    By --since or --from-offset alone its offsets go back, while it has no members. With a
    condition (--key, --header, --where, --until) an app's group handles just those records again.
    """
    if since is None and from_offset is None:
        raise typer.BadParameter("Give a start: --since or --from-offset.")
    chosen = _selection(since, until, key, header, where, None)
    parsed = [reset_targets.topic_and_partitions(each) for each in topic]
    with at.connection() as cluster:
        if not chosen.takes_whole_spans:
            if len(parsed) != 1:
                raise typer.BadParameter("With a condition name one --topic.")
            asked = (name, topic, since, until, from_offset, key, header, where, as_new)
            called = _checked_name(replay_name or _name_of(asked))
            request = _Retried(
                name, *parsed[0], chosen, from_offset, as_new, called, by or whoever()
            )
            _have_retried(cluster, request, _pace(rate, None), execute=execute, as_json=as_json)
            return
        moves = GroupMoves(cluster)
        targets = targets_from(cluster, parsed, since_ms=chosen.since_ms, from_offset=from_offset)
        plan = moves.plan(name, targets)
        if execute:
            moves.execute(plan, by=by or whoever(), reason=reason)
        show_group_plan(plan, assume_rate or plan.rate, executed=execute, as_json=as_json)


@dataclass(slots=True)
class _Retried:
    """Records that a group handles again, one by one."""

    group: str
    topic: str
    partitions: list[int]
    selection: Selection
    from_offset: int | None
    as_new: bool
    name: str
    by: str


def _have_retried(
    cluster: ClientSettings, asked: _Retried, pace: Pace, *, execute: bool, as_json: bool
) -> None:
    counts = {each.name: each.partitions for each in Topics(cluster).all()}
    to_topic = require_retry_topic(asked.topic, asked.group, counts)
    copying = Copying(cluster, cluster)
    request = CopyRequest(
        asked.name,
        asked.topic,
        to_topic,
        asked.selection,
        partitions=asked.partitions or None,
        from_offset=asked.from_offset,
        by=asked.by,
    )
    plan = _planned(copying, request)
    committed = {
        partition: offset
        for (topic, partition), offset in Groups(cluster).committed(asked.group).items()
        if topic == asked.topic
    }
    if not execute:
        show_copy_plan(plan, as_json=as_json)
        return
    dress = retried(
        plan.topic_id, to_topic, committed, new_ids=asked.name if asked.as_new else None
    )
    report_copy(copying.copy(plan, pace, dress), as_json=as_json)


@app.command()
@cluster_options
def undo(
    at: At,
    name: Group,
    reason: Reason = "",
    by: By = None,
    execute: Execute = False,
    as_json: Json = False,
) -> None:
    """Restore a group's offsets from before its last replay (or undo)."""
    with at.connection() as cluster:
        moves = GroupMoves(cluster)
        plan = moves.undo_plan(name)
        if execute:
            moves.undo(plan, by=by or whoever(), reason=reason)
    entry = plan.entry
    if as_json:
        output.answer_json(
            {"group": name, "executed": execute, "entry": entry, "partitions": plan.partitions}
        )
        return
    output.note(f"{entry.action} by {entry.by} at {moment(entry.at_ms)} {entry.reason}".rstrip())
    show_undo(plan)
    if entry.parking:
        output.note("Records that this move had parked are not brought back any more.")
    if execute:
        output.note(f"Group {name} is where it was.")
    else:
        output.note("A dry run: nothing was changed. Add --execute to do it.")


# ---- what was done


@app.command("list")
@cluster_options
def list_replays(at: At, as_json: Json = False) -> None:
    """Show the replays of the last 90 days: copies with their progress, offset resets of groups."""
    with at.connection() as cluster:
        found, secured = journal.read_journal(cluster), cluster.is_secured
    if as_json:
        output.answer_json(
            {
                "copies": [copy_object(each) for each in found.copies.values()],
                "moves": found.moves,
            }
        )
        return
    if not found.copies and not found.moves:
        output.note("No replays yet" + (", or none that this user may see." if secured else "."))
        return
    if found.copies:
        rows: list[tuple[output.Cell, ...]] = [
            (each.name, each.topic, each.to_topic, each.state, each.copied, each.left, each.by,
             moment(each.at_ms))
            for each in found.copies.values()
        ]  # fmt: skip
        output.table(
            ("replay", "from", "to", "state", "copied", "left", "by", "last written"), rows
        )
    if found.moves:
        output.table(
            ("group", "action", "partitions", "by", "at", "reason"),
            [_move_row(each) for each in found.moves],
        )


def _move_row(entry: GroupEntry) -> tuple[output.Cell, ...]:
    moved = len(entry.former)
    return (entry.group, entry.action, moved, entry.by, moment(entry.at_ms), entry.reason or None)


# ---- what the options mean


def _selection(
    since: str | None,
    until: str | None,
    key: str | None,
    header: list[str],
    where: str | None,
    error: str | None,
) -> Selection:
    return Selection(
        since_ms=reset_targets.when_ms(since, option="--since"),
        until_ms=reset_targets.when_ms(until, option="--until"),
        key=None if key is None else key.encode(),
        headers=key_values(header, option="--header"),
        where=where,
        error=error,
    )


def _pace(rate: float | None, speed: float | None, longest_wait: str | None = None) -> Pace:
    if rate is not None and speed is not None:
        raise typer.BadParameter("Give --rate or --speed, not both.")
    wait_s = reset_targets.duration_ms(longest_wait or "1h", option="--longest-wait") / 1000
    return Pace(finite(rate, "--rate"), finite(speed, "--speed"), longest_wait_s=wait_s)


def _name_of(asked: object) -> str:
    """The same words make the same name, so the same command goes on with what was begun."""
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]


def _checked_name(name: str) -> str:
    if not name or len(name) > LONGEST_NAME or name.startswith(OF_BACKLOGS):
        raise Failure(
            f"A replay's name has 1 to {LONGEST_NAME} characters, and does not begin with "
            f"{' or '.join(OF_BACKLOGS)}."
        )
    return name
