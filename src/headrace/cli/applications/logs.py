"""`headrace logs`: look for lines, in the topic or in the table that `logs` makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.cli.options.local_folder import local_folder
from headrace.wire.contract.logs import LEVELS, TOPIC
from headrace.wire.contract.tracking import time_text

if TYPE_CHECKING:
    from headrace.services.shipping.search import Found, Wanted


class Conditions(TypedDict):
    """The filter for the files of a table."""

    from_ms: int | None
    to_ms: int | None
    service: str | None
    levels: tuple[str, ...] | None


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
        str | None,
        typer.Argument(metavar="[TEXT]", help="Text in a message or field, upper or lower case."),
    ] = None,
    service: Annotated[str | None, typer.Option(metavar="NAME", help="Only this service.")] = None,
    level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="This level or worse, such as ERROR.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Since then: 10m ago, or a time.")
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="TIME", help="Before then.")] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, help="At most this many, the newest.")
    ] = 100,
    topic: Annotated[str, typer.Option(help="The topic of the lines.")] = TOPIC,
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="In this table instead.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=local_folder,
            envvar="HEADRACE_PIPELINES",
            help="The folder of tables, for --table.",
        ),
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
    from headrace.client.lookup.record_reader import BEGINNING, AtTime, RecordReader, Start

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
    """By what is in the files; a table that only Spark can read, by Spark."""
    from headrace.pipelines.failure import PipelineError
    from headrace.pipelines.shipped import log_search
    from headrace.pipelines.stream import folder
    from headrace.services.shipping.search import worse_than

    folder_of_tables = Path(data or folder.DEFAULT)
    about: Conditions = {
        "from_ms": wanted.from_ms,
        "to_ms": wanted.to_ms,
        "service": wanted.service,
        "levels": None if wanted.level is None else worse_than(wanted.level),
    }
    try:
        if (files := log_search.without_spark(folder_of_tables, name)) is None:
            matched, rows = log_search.newest(
                folder_of_tables, name, most=found.most, text=wanted.text, **about
            )
            for row in rows:
                found.add({**row, "time": time_text(int(row["time"]))}, int(row["time"]))
            found.matched = matched
            return
        for row, at_ms in log_search.scanned(files, **about):
            if wanted.matches(row, at_ms):
                found.add({**row, "time": time_text(at_ms)}, at_ms)
    except PipelineError as refusal:
        raise Failure(str(refusal)) from refusal


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
    less = "" if found.is_exact else " or fewer: too many to recognize repeats"
    output.note(f"{output.count(found.matched, 'line')} found{less}{more}.")
    if found.unreadable:
        output.note(f"{output.count(found.unreadable, 'record')} of the topic are not log records.")


def _level(word: str | None) -> str | None:
    from headrace.wire.contract.logs import level_of

    if word is None:
        return None
    if (level := level_of(word)) is None:
        raise Failure(f"{word} is not a level: {', '.join(LEVELS)}.")
    return level


def _moment(text: str | None) -> int | None:
    import time

    from headrace.services.shipping.moments import moment_ms
    from headrace.wire.contract import durations

    if text is None:
        return None
    if (at_ms := moment_ms(text)) is not None:
        return at_ms
    try:
        return int(time.time() * 1000) - durations.parse(text)
    except ValueError:
        raise Failure(
            f"{text!r} is not a time: 10m for ten minutes ago, or 2026-01-31T12:00Z."
        ) from (None)
