"""`headrace groups`: who reads, how far they are, and putting a group elsewhere.

A reset shows what it would do and does it only with --execute; it refuses while the group has
members, because they would go on from where they are.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
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
from headrace.client import groups as client
from headrace.client.groups import Groups, Move, Place

app = typer.Typer(
    help="List, describe, reset and delete consumer groups.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", show_default=False)]
Names = Annotated[
    list[str], typer.Argument(metavar="GROUP...", help="The groups.", show_default=False)
]

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"(\d+)([smhdw])")


@app.command("list")
def list_groups(
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    x: ClientSettings = [],
    client_config: ClientConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List the groups of the cluster."""
    with cluster_at(bootstrap, x, client_config, timeout) as cluster:
        found = Groups(cluster).all()
    if as_json:
        output.answer_json(found)
    elif not found:
        output.note("There are no groups.")
    else:
        rows = [(group.group, group.state, group.type) for group in found]
        output.table(("group", "state", "type"), rows)


@app.command()
def describe(
    names: Names,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    x: ClientSettings = [],
    client_config: ClientConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show members, and the lag of each partition and in all."""
    with cluster_at(bootstrap, x, client_config, timeout) as cluster:
        found = Groups(cluster).describe(names)
    if as_json:
        output.answer_json([_as_object(group) for group in found])
        return
    for group in found:
        _show(group)


def _as_object(group: client.GroupDescription) -> dict[str, object]:
    return {
        "group": group.group,
        "state": group.state,
        "protocol": group.protocol,
        "coordinator": group.coordinator,
        "lag": group.lag,
        "members": group.members,
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "committed": one.committed,
                "end_offset": one.end_offset,
                "lag": one.lag,
                "member": one.member,
            }
            for one in group.progress
        ],
    }


def _show(group: client.GroupDescription) -> None:
    members = output.count(len(group.members), "member")
    protocol = f", {group.protocol}" if group.protocol else ""
    output.say(f"{group.group}: {group.state}, {members}{protocol}, lag {group.lag:,} in all")
    rows: list[tuple[output.Cell, ...]] = [
        (one.topic, one.partition, one.committed, one.end_offset, one.lag, one.member)
        for one in group.progress
    ]
    if rows:
        output.table(("topic", "partition", "committed", "end", "lag", "member"), rows)


@app.command()
def reset(
    group: Name,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic",
            metavar="TOPIC[:P,P...]",
            help="A topic, or some of its partitions. Repeat for more.",
        ),
    ] = [],
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All that the group has committed.")
    ] = False,
    to_beginning: Annotated[bool, typer.Option("--to-beginning", help="The first record.")] = False,
    to_end: Annotated[bool, typer.Option("--to-end", help="Behind the last record.")] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="N", help="This offset.")
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option("--to-time", metavar="TIME", help="The first record since 2026-01-31T12:00."),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option("--by-duration", metavar="AGO", help="As long ago as 30m, 12h or 7d."),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="N records on, or -N back.")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", metavar="FILE", help="Lines of topic,partition,offset."),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; without this it is only shown.")
    ] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    x: ClientSettings = [],
    client_config: ClientConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Put a group elsewhere; a dry run unless --execute is given."""
    said = {
        "--to-beginning": to_beginning or None,
        "--to-end": to_end or None,
        "--to-offset": to_offset,
        "--to-time": to_time,
        "--by-duration": by_duration,
        "--shift-by": shift_by,
        "--from-file": from_file,
    }
    where = [(name, value) for name, value in said.items() if value is not None]
    if len(where) != 1:
        raise typer.BadParameter(f"Say where to, in one way: {', '.join(said)}.")
    if from_file is None and bool(topic) == all_topics:
        raise typer.BadParameter("Say which topics: --topic or --all-topics.")
    with cluster_at(bootstrap, x, client_config, timeout) as cluster:
        groups = Groups(cluster)
        if from_file is not None:
            targets: Mapping[Place, int] = read_places(from_file)
        else:
            places = _places(groups, group, topic)
            targets = _targets(groups, group, places, *where[0])
        groups.require_inactive(group)
        moves = groups.plan(group, targets)
        if execute and moves:
            groups.move(group, moves)
    _tell_moves(group, moves, executed=execute, as_json=as_json)


def _places(groups: Groups, group: str, topics: list[str]) -> list[Place]:
    if not topics:
        found = sorted(groups.committed(group))
        if not found:
            raise Failure(f"Group {group} has committed nothing: name topics with --topic.")
        return found
    places: list[Place] = []
    for said in topics:
        name, _, partitions = said.partition(":")
        everything = groups.partitions_of(name)
        places += (
            [(name, int(part)) for part in partitions.split(",")] if partitions else everything
        )
    return places


def _targets(
    groups: Groups, group: str, places: list[Place], way: str, value: object
) -> Mapping[Place, int]:
    if way == "--to-beginning":
        return groups.beginnings(places)
    if way == "--to-end":
        return groups.ends(places)
    if way == "--to-time":
        return groups.at_time(places, time_in_ms(str(value)))
    if way == "--by-duration":
        return groups.at_time(places, time_ago_ms(str(value)))
    number = int(str(value))
    if way == "--to-offset":
        return dict.fromkeys(places, number)
    committed = groups.committed(group)
    missing = [place for place in places if place not in committed]
    if missing:
        raise Failure(f"Group {group} has committed nothing in {missing[0][0]}-{missing[0][1]}.")
    return {place: max(committed[place] + number, 0) for place in places}


def time_in_ms(text: str) -> int:
    """ISO 8601; without a zone it is the time of this machine."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError as wrong:
        raise typer.BadParameter(f"{text} is no time such as 2026-01-31T12:00.") from wrong


def time_ago_ms(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{text} is no duration such as 30m, 12h or 7d.")
    ago = timedelta(**{_UNITS[match[2]]: int(match[1])})
    return int((datetime.now(UTC) - ago).timestamp() * 1000)


def read_places(path: Path) -> dict[Place, int]:
    try:
        text = path.read_text("utf-8")
    except OSError as failure:
        raise Failure(f"Cannot read {path}: {failure.strerror}.") from failure
    found: dict[Place, int] = {}
    for number, line in enumerate(csv.reader(text.splitlines()), start=1):
        if not line:
            continue
        try:
            topic, partition, offset = line
            found[topic, int(partition)] = int(offset)
        except ValueError as wrong:
            raise Failure(f"Line {number} of {path} is not topic,partition,offset.") from wrong
    return found


def _tell_moves(group: str, moves: list[Move], *, executed: bool, as_json: bool) -> None:
    if as_json:
        output.answer_json({"group": group, "executed": executed, "partitions": moves})
        return
    rows: list[tuple[output.Cell, ...]] = [
        (move.topic, move.partition, move.current, move.target) for move in moves
    ]
    output.table(("topic", "partition", "now", "new"), rows)
    if executed:
        output.note(f"Group {group} goes on from there.")
    else:
        output.note("A dry run: nothing was changed. Add --execute to do it.")


@app.command()
def delete(
    names: Names,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    x: ClientSettings = [],
    client_config: ClientConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete groups without members, with all their offsets. On a terminal it asks first."""
    if not yes and sys.stdin.isatty() and sys.stdout.isatty():
        question = f"Delete {', '.join(names)} with all offsets?"
        if not typer.confirm(question):
            raise Failure("Nothing was deleted.")
    with cluster_at(bootstrap, x, client_config, timeout) as cluster:
        groups = Groups(cluster)
        for name in names:
            groups.delete(name)
    if as_json:
        output.answer_json({"deleted": names})
    else:
        output.say(f"Deleted {', '.join(names)}.")
