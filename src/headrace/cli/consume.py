"""`headrace consume`: read a topic from a chosen place, without joining a group.

It stops at the end the topic had when it started, unless told to --follow. On a terminal each
record shows where and when it was written; into a pipe or file go the values alone, as they are;
--json writes one object per line. Bytes that are no UTF-8 show as escapes, and as base64 in JSON.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated, Any

import typer

from headrace.cli import output
from headrace.cli.cluster import (
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    ClientConfig,
    ClientSettings,
    Timeout,
    cluster_at,
)
from headrace.client.reading import BEGINNING, END, AtOffset, AtTime, Record, RecordReader, Start

app = typer.Typer(add_completion=False, **output.LOOK)

AGO = re.compile(r"-(\d+)(ms|s|m|h|d)")
UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@app.command()
def consume(
    topic: Annotated[str, typer.Argument(help="What to read.", show_default=False)],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="beginning, end, an offset, a time (2026-01-31T10:00), or -1h for an hour ago.",
        ),
    ] = "beginning",
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after so many records.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is written from now on.")
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
            help="Where, when, key and value; or the value alone (default: pretty on a terminal).",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    bootstrap: Bootstrap = None,
    x: ClientSettings = [],
    client_config: ClientConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Read a topic."""
    place = parse_start(start, now=datetime.now().astimezone())
    if pretty is None:
        pretty = sys.stdout.isatty()
    write = _writer(topic, as_json=as_json, pretty=pretty, headers=headers)
    with cluster_at(bootstrap, x, client_config, timeout) as cluster:
        reader = RecordReader(
            cluster, topic, start=place, partitions=partition or None, follow=follow
        )
        try:
            for record in islice(reader.records(), count):
                write(record)
                if follow:
                    sys.stdout.flush()
            sys.stdout.flush()
        finally:
            reader.close()


def parse_start(text: str, *, now: datetime) -> Start:
    """Where to begin. A time without a zone is meant where the person is."""
    if text == "beginning":
        return BEGINNING
    if text == "end":
        return END
    if text.isdigit():
        return AtOffset(int(text))
    if ago := AGO.fullmatch(text):
        back = timedelta(milliseconds=int(ago[1]) * UNIT_MS[ago[2]])
        return AtTime(_wall_ms(now - back))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no place to read from: say beginning, end, an offset, "
            "a time such as 2026-01-31T10:00, or -1h for an hour ago.",
            param_hint="--from",
        ) from None
    return AtTime(_wall_ms(moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)))


def _wall_ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _writer(
    topic: str, *, as_json: bool, pretty: bool, headers: bool
) -> Callable[[Record], object]:
    """How one record is written to standard output."""
    out = sys.stdout
    if as_json:
        return lambda record: out.write(output.json_line(as_object(topic, record)) + "\n")
    if pretty:
        dim, plain = ("\x1b[2m", "\x1b[0m") if out.isatty() else ("", "")
        return lambda record: out.write(pretty_text(topic, record, headers, dim, plain) + "\n")

    def write_value(record: Record) -> None:
        if headers:
            shown = ",".join(f"{name}={text(value)}" for name, value in record.headers)
            out.buffer.write(shown.encode() + b"\t")
        out.buffer.write((record.value or b"") + b"\n")
        if not record.offset % 1000:
            out.buffer.flush()

    return write_value


def as_object(topic: str, record: Record) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
    }
    shown |= _as_field("key", record.key) | _as_field("value", record.value)
    shown["headers"] = [{"name": n} | _as_field("value", v) for n, v in record.headers]
    return shown


def _as_field(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def pretty_text(topic: str, record: Record, headers: bool, dim: str, plain: str) -> str:
    """`orders-0@17  2026-01-31 10:00:00.123  key  value`; a missing key or value shows as null."""
    when = "-"
    if record.timestamp_ms is not None:
        moment = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC).astimezone()
        when = moment.isoformat(sep=" ", timespec="milliseconds")[:23]
    where = f"{topic}-{record.partition}@{record.offset}"
    line = f"{dim}{where}  {when}{plain}  {text(record.key)}  {text(record.value)}"
    if headers:
        line += "".join(f"\n    {dim}{name}:{plain} {text(v)}" for name, v in record.headers)
    return line


def text(value: bytes | None) -> str:
    """Bytes for a person to read; control characters cannot reach the terminal."""
    if value is None:
        return "null"
    try:
        words = value.decode()
    except UnicodeDecodeError:
        return repr(value)
    if words.isprintable():
        return words
    return "".join(
        c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in words
    )
