"""`headrace consume`: read a topic from a chosen place, without joining a group.

It stops at the end the topic had when it started, unless told to --follow. On a terminal each
record shows where and when it was written; into a pipe or file go the values alone, as they are;
--format and --json choose otherwise (`record_views.py`).
"""

from __future__ import annotations

import re
import sys
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.options.cluster_options import At, cluster_options
from headrace.cli.options.completion import topic_names
from headrace.cli.records.record_views import SIGNS_IN_WORDS, writer
from headrace.client.lookup.record_reader import (
    BEGINNING,
    END,
    AtOffset,
    AtTime,
    Last,
    RecordReader,
    Start,
)

app = typer.Typer(add_completion=False, **output.LOOK)

AGO = re.compile(r"-(\d+)(ms|s|m|h|d)")
LAST = re.compile(r"-(\d+)")
UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@app.command()
@cluster_options
def consume(
    at: At,
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC",
            help="What to read.",
            show_default=False,
            autocompletion=topic_names,
        ),
    ],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="beginning, end, an offset, -5 for the last five of each partition, a time "
            "(2026-01-31T10:00), or -1h for an hour ago.",
        ),
    ] = "beginning",
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this many records.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new records.")
    ] = False,
    partition: Annotated[
        list[int],
        typer.Option("--partition", "-p", min=0, help="Only this partition. Repeat for more."),
    ] = [],
    headers: Annotated[bool, typer.Option("--headers", help="Show the records' headers.")] = False,
    pretty: Annotated[
        bool | None,
        typer.Option(
            "--pretty/--plain",
            help="Partition, offset, time, key and value, or the value alone (default: pretty on a "
            "terminal).",
            show_default=False,
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help=f"As kcat's: {SIGNS_IN_WORDS}."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Read a topic."""
    begin = parse_start(start, now=datetime.now().astimezone())
    if format is not None and (as_json or pretty is not None or headers):
        raise typer.BadParameter(
            "--format alone decides the output: leave --json, --pretty, --headers out."
        )
    if pretty is None:
        pretty = sys.stdout.isatty()
    write = writer(topic, as_json=as_json, pretty=pretty, headers=headers, format=format)
    with at.connection() as cluster:
        reader = RecordReader(
            cluster, topic, start=begin, partitions=partition or None, follow=follow
        )
        _say_if_past_the_end(reader, begin)
        try:
            for record in islice(reader.records(), count):
                write(record)
                if follow:
                    sys.stdout.flush()
            sys.stdout.flush()
        finally:
            reader.close()


def _say_if_past_the_end(reader: RecordReader, begin: Start) -> None:
    """Says why nothing is read; the command would otherwise end without a word."""
    if not isinstance(begin, AtOffset) or begin.offset <= 0 or not reader.ends_before(begin.offset):
        return
    then = "waiting for new records" if reader.follow else "nothing to read"
    output.note(
        f"{reader.topic} ends before offset {begin.offset} (at {reader.end_offset}): {then}."
    )


def parse_start(text: str, *, now: datetime) -> Start:
    """Where to begin. A time without a zone is meant where the person is."""
    if text == "beginning":
        return BEGINNING
    if text == "end":
        return END
    if text.isdigit():
        return AtOffset(int(text))
    if last := LAST.fullmatch(text):
        return Last(int(last[1]))
    if ago := AGO.fullmatch(text):
        back = timedelta(milliseconds=int(ago[1]) * UNIT_MS[ago[2]])
        return AtTime(_wall_ms(now - back))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a position: give beginning, end, an offset, "
            "-5 for the last five, a time such as 2026-01-31T10:00, or -1h for an hour ago.",
            param_hint="--from",
        ) from None
    return AtTime(_wall_ms(moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)))


def _wall_ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
