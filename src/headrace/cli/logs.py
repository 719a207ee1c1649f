"""`headrace logs`: look for lines, in the topic or in the table that `logs` makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.cluster_options import At, Json, cluster_options
from headrace.cli.failure import Failure
from headrace.contract.logs import LEVELS, TOPIC
from headrace.contract.tracking import time_text

if TYPE_CHECKING:
    from headrace.services.shipping.search import Found, Wanted

app = typer.Typer(
    help="Look for lines of logs, in their topic or their table.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

# Clocks of hosts differ: a record may have been written so long before the time it names.
AHEAD_MS = 5 * 60_000


@app.callback()
def about() -> None:
    """Look for lines of logs, in their topic or their table."""


@app.command()
@cluster_options
def search(
    at: At,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="In a message or field, in any case.")
    ] = None,
    service: Annotated[str | None, typer.Option(metavar="NAME", help="Of this one only.")] = None,
    level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="Of this level or worse, such as ERROR.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Not older, such as 10m or a time.")
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="TIME", help="Older than this.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The newest so many.")] = 100,
    topic: Annotated[str, typer.Option(help="Where lines are.")] = TOPIC,
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="In this table instead (Spark).")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where tables lie, for --table.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find lines by time, service, level and text."""
    from headrace.services.shipping.search import Found, Wanted

    wanted = Wanted(
        from_ms=_moment(since), to_ms=_moment(to), service=service, level=_level(level), text=text
    )
    found = Found(limit)
    if table is None:
        _in_topic(at, topic, wanted, found)
    else:
        _in_table(table, data, wanted, found)
    _tell(found, as_json)


def _in_topic(at: At, topic: str, wanted: Wanted, found: Found) -> None:
    from headrace.client.reading import BEGINNING, AtTime, RecordReader, Start

    start: Start = BEGINNING
    if wanted.from_ms is not None:
        start = AtTime(max(0, wanted.from_ms - AHEAD_MS))
    with at.connection() as cluster:
        reader = RecordReader(cluster, topic, start=start)
        try:
            for record in reader.records():
                found.look(record.value, wanted)
        finally:
            reader.close()


def _in_table(name: str, data: Path | None, wanted: Wanted, found: Found) -> None:
    from headrace.pipelines import folder
    from headrace.pipelines.failure import PipelineError
    from headrace.pipelines.shipped.log_search import newest
    from headrace.services.shipping.search import worse_than

    levels = None if wanted.level is None else worse_than(wanted.level)
    try:
        matched, rows = newest(
            Path(data or folder.DEFAULT),
            name,
            most=found.most,
            from_ms=wanted.from_ms,
            to_ms=wanted.to_ms,
            service=wanted.service,
            levels=levels,
            text=wanted.text,
        )
    except PipelineError as refusal:
        raise Failure(str(refusal)) from refusal
    for row in rows:
        at_ms = int(row["time"])
        found.add({**row, "time": time_text(at_ms)}, at_ms)
    found.matched = matched


def _tell(found: Found, as_json: bool) -> None:
    records = list(found.records)
    if as_json:
        output.answer_json({"matched": found.matched, "records": records})
        return
    for record in records:
        first, _, rest = str(record.get("message", "")).partition("\n")
        head = " ".join(
            str(record.get(name) or "-") for name in ("time", "level", "service", "host")
        )
        output.write_line(first, dim=f"{head}  ")
        for line in rest.splitlines():
            output.write_line(f"    {line}")
    more = f", the newest {len(records):,} are shown" if found.matched > len(records) else ""
    output.note(f"{_count(found.matched, 'line')} found{more}.")
    if found.unreadable:
        output.note(f"{_count(found.unreadable, 'record')} of the topic are no log records.")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _level(word: str | None) -> str | None:
    from headrace.contract.logs import level_of

    if word is None:
        return None
    if (level := level_of(word)) is None:
        raise Failure(f"{word} is no level: {', '.join(LEVELS)}.")
    return level


def _moment(text: str | None) -> int | None:
    import time

    from headrace.contract import durations
    from headrace.services.shipping.moments import moment_ms

    if text is None:
        return None
    if (at_ms := moment_ms(text)) is not None:
        return at_ms
    try:
        return int(time.time() * 1000) - durations.parse(text)
    except ValueError:
        raise Failure(f"{text!r} is no time: 10m for ten minutes ago, or 2026-01-31T12:00Z.") from (
            None
        )
