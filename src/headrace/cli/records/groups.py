"""`headrace groups`: who reads, how far they are, and putting a group elsewhere.

A reset shows what it would do and does it only with --execute; it refuses while the group has
members, because they would go on from where they are.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.cli.options.completion import group_names
from headrace.cli.records import reset_targets
from headrace.client.admin import groups as client
from headrace.client.admin.groups import Groups, Move, Place
from headrace.client.admin.share_groups import SHARE
from headrace.operations.group_resets import (
    NothingCommitted,
    Reset,
    Way,
    perform_reset,
    plan_reset,
)
from headrace.operations.groups import known_lag
from headrace.operations.partition_runs import run_in_digits, runs_of

app = typer.Typer(
    help="List, describe, reset and delete groups: consumer, share and streams groups.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="GROUP", help="The group.", show_default=False, autocompletion=group_names
    ),
]
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="GROUP...", help="The groups.", show_default=False, autocompletion=group_names
    ),
]

STATES = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Stable",
    "Dead",
)
TYPES = ("classic", "consumer", "share", "streams")

# How many offsets that were moved to an edge are told one by one.
TOLD_ONE_BY_ONE = 3


@app.command("list")
@cluster_options
def list_groups(
    at: At,
    state: Annotated[
        list[str],
        typer.Option(
            "--state", metavar="STATE", help="Only groups in this state. Repeat for more."
        ),
    ] = [],
    kind: Annotated[
        str | None,
        typer.Option(
            "--type", metavar="TYPE", help="Only of this type: classic, consumer, share, streams."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the groups of the cluster."""
    states = {_one_of(STATES, each, "--state") for each in state}
    types = set() if kind is None else {_one_of(TYPES, kind, "--type")}
    with at.connection() as cluster:
        found = [
            group
            for group in Groups(cluster).all()
            if (not states or group.state in states) and (not types or group.type in types)
        ]
    if as_json:
        output.answer_json(found)
    elif not found:
        output.note("There are no such groups." if states or types else "There are no groups.")
    else:
        rows = [(group.group, group.state, group.type) for group in found]
        output.table(("group", "state", "type"), rows)


def _one_of(known: tuple[str, ...], said: str, option: str) -> str:
    for each in known:
        if each.lower() == said.lower():
            return each
    raise typer.BadParameter(f"{said!r} is not one of {', '.join(known)}.", param_hint=option)


@app.command()
@cluster_options
def describe(
    at: At,
    names: Names,
    members: Annotated[
        bool,
        typer.Option("--members", help="The members and their partitions, instead of the lag."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show state and lag of groups, or their members.

    The lag is shown for each partition and in total.
    """
    with at.connection() as cluster:
        found = Groups(cluster).describe(names)
    if as_json:
        output.answer_json([_as_object(group) for group in found])
        return
    for group in found:
        output.say(_summary(group))
        if members:
            _show_members(group)
        else:
            _show_progress(group)


def _as_object(group: client.GroupDescription) -> dict[str, object]:
    return {
        "group": group.group,
        "state": group.state,
        "type": group.type,
        "protocol": group.protocol,
        "coordinator": group.coordinator,
        "lag": known_lag(group).lag,
        "unknown_partitions": len(group.unknown),
        "members": group.members,
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "committed": one.committed,
                "end_offset": one.end_offset,
                "lag": one.lag,
                "unread": one.unread,
                "member": one.member,
            }
            for one in group.progress
        ],
    }


def _summary(group: client.GroupDescription) -> str:
    """One line: what one wants to know first."""
    words = [group.state, output.count(len(group.members), "member")]
    idle = sum(not member.assigned for member in group.members)
    if idle:
        words[-1] += f" ({idle:,} without partitions)"
    words += [group.type, group.protocol, _lag(group)]
    return f"{group.group}: {', '.join(word for word in words if word)}"


def _lag(group: client.GroupDescription) -> str:
    known = known_lag(group)
    if known.lag is None and group.type == SHARE:
        return "nothing read yet"
    if known.lag is None:
        return "nothing committed yet, so no lag is known"
    said = f"lag {known.lag:,}"
    if known.without_commit:
        records = output.count(known.unread, "record")
        said += f" and unknown in {output.count(known.without_commit, 'partition')}"
        said += f" without a commit ({records})"
    if known.without_leader:
        said += f", unknown in {output.count(known.without_leader, 'partition')} without a leader"
    return said


def _show_progress(group: client.GroupDescription) -> None:
    rows: list[tuple[output.Cell, ...]] = [
        (one.topic, one.partition, one.committed, one.end_offset, one.lag, one.member)
        for one in group.progress
    ]
    if rows and group.type == SHARE:
        output.table(("topic", "partition", "start", "end", "lag"), [row[:-1] for row in rows])
    elif rows:
        output.table(("topic", "partition", "committed", "end", "lag", "member"), rows)


def _show_members(group: client.GroupDescription) -> None:
    rows: list[tuple[output.Cell, ...]] = [
        (
            member.id,
            member.instance_id,
            member.client_id,
            member.host,
            len(member.assigned),
            spans(member.assigned) or None,
        )
        for member in group.members
    ]
    if rows:
        output.table(("member", "instance", "client", "host", "partitions", "which"), rows)


def spans(places: list[Place]) -> str:
    """`bills:0 orders:0-3,7`, as `reset --topic` takes it."""
    return " ".join(
        f"{topic}:" + ",".join(map(run_in_digits, runs)) for topic, runs in runs_of(places).items()
    )


@app.command()
@cluster_options
def reset(
    at: At,
    group: Name,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic",
            metavar="TOPIC[:P,P...]",
            help="A topic, or some of its partitions (0-3,7). Repeat for more.",
        ),
    ] = [],
    all_topics: Annotated[
        bool,
        typer.Option("--all-topics", help="All topics for which the group has committed offsets."),
    ] = False,
    to_beginning: Annotated[
        bool, typer.Option("--to-beginning", "--to-earliest", help="The first record.")
    ] = False,
    to_end: Annotated[
        bool, typer.Option("--to-end", "--to-latest", help="After the last record.")
    ] = False,
    to_current: Annotated[
        bool,
        typer.Option("--to-current", help="The committed offset, or the end if there is none."),
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="N", help="This offset.")
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time",
            "--to-datetime",
            metavar="TIME",
            help="The first record since 2026-01-31T12:00.",
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option("--by-duration", metavar="AGO", help="The time 30m, 12h or 7d ago."),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="N records on, or -N back.")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", metavar="FILE", help="Lines of topic,partition,offset."),
    ] = None,
    execute: Annotated[
        bool,
        typer.Option(
            "--execute/--dry-run", help="Execute it; --dry-run, the default, only shows it."
        ),
    ] = False,
    export: Annotated[
        bool, typer.Option("--export", help="Show it as lines for --from-file.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Reset a group's offsets; a dry run unless --execute is given.

    For a share group this sets the start offsets: records before them count as done, all
    others are delivered again.
    """
    said: dict[str, tuple[Way, int] | None] = {
        "--to-beginning": (Way.BEGINNING, 0) if to_beginning else None,
        "--to-end": (Way.END, 0) if to_end else None,
        "--to-current": (Way.CURRENT, 0) if to_current else None,
        "--to-offset": None if to_offset is None else (Way.OFFSET, to_offset),
        "--to-time": None if to_time is None else (Way.TIME, reset_targets.moment_ms(to_time)),
        "--by-duration": None if by_duration is None else (Way.TIME, _ago_ms(by_duration)),
        "--shift-by": None if shift_by is None else (Way.SHIFT, shift_by),
        "--from-file": None if from_file is None else (Way.OFFSETS, 0),
    }
    chosen = [each for each in said.values() if each is not None]
    if len(chosen) != 1:
        raise typer.BadParameter(f"Choose one new offset: {', '.join(said)}.")
    if from_file is not None and (topic or all_topics):
        raise typer.BadParameter("The file names the topics: leave out --topic and --all-topics.")
    if from_file is None and bool(topic) == all_topics:
        raise typer.BadParameter("Name the topics: --topic or --all-topics.")
    if export and as_json:
        raise typer.BadParameter("Give --export or --json, not both.")
    topics = [reset_targets.topic_and_partitions(each) for each in topic]
    filed = {} if from_file is None else reset_targets.read_places(from_file, group)
    wanted = Reset(group, *chosen[0], topics, filed)
    with at.connection() as cluster:
        try:
            plan = plan_reset(cluster, wanted) if not execute else None
            moves = perform_reset(cluster, wanted) if plan is None else plan.moves
        except NothingCommitted as refusal:
            raise Failure(f"{str(refusal)[:-1]}: name topics with --topic.") from refusal
    _tell_moves(group, moves, executed=execute, as_json=as_json, export=export)
    if plan is not None and plan.is_new:
        output.note(f"There is no group {group} yet: --execute creates it.")


def _ago_ms(text: str) -> int:
    return int(time.time() * 1000) - reset_targets.duration_ms(text)


def _tell_moves(
    group: str, moves: list[Move], *, executed: bool, as_json: bool, export: bool
) -> None:
    if as_json:
        output.answer_json({"group": group, "executed": executed, "partitions": moves})
        return
    if export:
        for line in reset_targets.exported(moves).splitlines():
            output.write_line(line)
    else:
        rows: list[tuple[output.Cell, ...]] = [
            (move.topic, move.partition, move.current, move.target) for move in moves
        ]
        output.table(("topic", "partition", "now", "new"), rows)
    _tell_edges([move for move in moves if move.target != move.wanted])
    if executed:
        output.note(f"Group {group} continues from there.")
    else:
        output.note("A dry run: nothing was changed. Add --execute to do it.")


def _tell_edges(moved: list[Move]) -> None:
    for move in moved[:TOLD_ONE_BY_ONE]:
        edge = "the first record" if move.wanted < move.target else "the end"
        output.note(
            f"{move.topic}-{move.partition} holds no offset {move.wanted}: "
            f"{edge}, {move.target}, is taken."
        )
    if len(moved) > TOLD_ONE_BY_ONE:
        output.note(f"The same holds for {len(moved) - TOLD_ONE_BY_ONE:,} more.")


@app.command()
@cluster_options
def delete(
    at: At,
    names: Names,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
    as_json: Json = False,
) -> None:
    """Delete groups without members, with all their offsets. On a terminal it asks first."""
    names = list(dict.fromkeys(names))
    with at.connection() as cluster:
        groups = Groups(cluster)
        for name in names:  # all or none, as far as one can see beforehand
            if not groups.is_there(name):
                raise client.no_such_group(name)
            groups.require_inactive(name)
        if not yes and sys.stdin.isatty() and sys.stdout.isatty():
            question = f"Delete {', '.join(names)} with all offsets?"
            if not output.confirmed(question):
                raise Failure("Nothing was deleted.")
        for name in names:
            groups.delete(name)
    if as_json:
        output.answer_json({"deleted": names})
    else:
        output.say(f"Deleted {', '.join(names)}.")
