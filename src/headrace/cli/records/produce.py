"""`headrace produce`: each line of standard input or of a file becomes one record.

Records go out as the Java client sends them: keys hashed with murmur2, acks=all, idempotent. The
command ends with 0 only if the cluster has acknowledged every one. A line's ending is not part of
the record; an empty line is an empty record. A tombstone is a key without a value: it deletes the
key where a topic is compacted. With --delay and its kin records go to the topic's companion, and
the delay service delivers them when they are due.
"""

from __future__ import annotations

import io
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from headrace.cli import output
from headrace.cli.delayed.options import Cron, CronZone, Delay, DeliverAt, when_of
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.cli.options.completion import topic_names
from headrace.cli.options.key_values import key_values
from headrace.cli.options.near_names_there import near_topic
from headrace.client.connection import ClientSettings
from headrace.client.delay.registry import KnownCompanions
from headrace.client.delay.schedules import schedule_headers, to_companion
from headrace.client.errors import ClientError
from headrace.client.producer.record_writer import ANY_PARTITION, RecordWriter
from headrace.client.records import Outgoing, header_list

app = typer.Typer(add_completion=False, **output.LOOK)


class Compression(StrEnum):
    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


# Below this a file is through before a bar could be drawn.
WORTH_A_BAR_BYTES = 1 << 20
LINES_PER_STEP_OF_THE_BAR = 2_000


@app.command()
@cluster_options
def produce(
    at: At,
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC",
            help="The topic to write to.",
            show_default=False,
            autocompletion=topic_names,
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Lines to write (default: standard input)."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", "-k", metavar="TEXT", help="The key of every record."),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", metavar="TEXT", help="The text that ends the key in a line."
        ),
    ] = None,
    tombstone: Annotated[
        bool,
        typer.Option(
            "--tombstone",
            help="No value: each line is a key; with --key one record, and nothing is read.",
        ),
    ] = False,
    header: Annotated[
        list[str],
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header for every record."),
    ] = [],
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Write to this partition only.")
    ] = None,
    delay: Delay = None,
    deliver_at: DeliverAt = None,
    id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Names a delayed record, to replace or cancel it."),
    ] = None,
    cron: Cron = None,
    cron_zone: CronZone = None,
    compression: Annotated[
        Compression | None, typer.Option("--compression", "-z", help="The compression of batches.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write lines to a topic, one record each."""
    started = time.monotonic()
    headers = header_list(key_values(header, option="--header"))
    if key is not None and key_separator:
        raise typer.BadParameter("Give --key or --key-separator, not both.")
    if tombstone and key_separator:
        raise typer.BadParameter("With --tombstone a line is a key: leave --key-separator out.")
    if tombstone and key is not None and file is not None:
        raise typer.BadParameter("--tombstone with --key writes one record: leave the file out.")
    form = Form(
        key=None if key is None else key.encode(),
        separator=key_separator.encode() if key_separator else None,
        tombstone=tombstone,
    )
    when = when_of(delay, deliver_at, cron, cron_zone, id)
    # What every record has in common.
    common: Outgoing[bytes, bytes] = Outgoing(topic, None, headers=headers)
    if when:
        common = to_companion(common, schedule_headers(when))
    with at.connection() as cluster:
        _require_meant(cluster, topic)
    with (
        at.connection() as cluster,
        _writer(cluster, common.topic, target=topic, compression=compression) as writer,
        _source(file, reads=not form.is_whole) as lines,
        _progress(lines, quiet=as_json) as advance,
    ):
        for line in advance(lines):
            its_key, value = form.record_of(line)
            if id is not None:
                _require_place_for_id(writer, its_key, partition)
            writer.write(
                value,
                key=its_key,
                headers=common.headers,
                partition=ANY_PARTITION if partition is None else partition,
            )
    seconds = time.monotonic() - started
    if as_json:
        told = {"topic": topic, "records": writer.written, "bytes": writer.bytes_written}
        output.answer_json(told | {"seconds": round(seconds, 3)})
    else:
        records = output.count(writer.written, "record")
        amount = output.size(writer.bytes_written)
        output.note(f"Wrote {records} ({amount}) to {writer.topic} in {seconds:.1f} s.")


def _require_meant(cluster: ClientSettings, topic: str) -> None:
    """Ask, or warn where no person can answer, if the name is one letter from an existing topic.

    A cluster with auto.create.topics.enable would create the mistyped topic without a word.
    """
    with suppress(ClientError):  # a user without the right to list topics may still write
        near = near_topic(topic, cluster)
        if near is None:
            return
        warning = f"There is no topic {topic}. Did you mean {near}?"
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            output.note(f"headrace: {warning} It is created if the cluster creates topics itself.")
        elif not output.confirmed(f"{warning} Write to {topic} anyway?"):
            raise typer.Abort


def _writer(
    cluster: ClientSettings, topic: str, *, target: str, compression: str | None
) -> RecordWriter:
    """Delayed records go to the companion of their target, which must be registered."""
    if topic != target:
        KnownCompanions(cluster).require(target)
    return RecordWriter(cluster, topic, compression=compression)


def _require_place_for_id(writer: RecordWriter, key: bytes | None, partition: int | None) -> None:
    if writer.taken:
        raise Failure("An id names one record, and a second line came: it would replace the first.")
    if key is None and partition is None and writer.partitions > 1:
        raise Failure(
            "An id is known within its partition: give the record a key (--key tom), or a "
            "--partition."
        )


@dataclass(slots=True)
class Form:
    """The key and the value of a line."""

    key: bytes | None = None  # of every record
    separator: bytes | None = None  # without it in a line, the line has no key
    tombstone: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it says a record by itself, and no line is needed."""
        return self.tombstone and self.key is not None

    def record_of(self, line: bytes) -> tuple[bytes | None, bytes | None]:
        if line.endswith(b"\n"):
            line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
        if self.tombstone:
            return (line if self.key is None else self.key), None
        if self.separator is None:
            return self.key, line
        key, found, value = line.partition(self.separator)
        return (key, value) if found else (None, line)


@contextmanager
def _source(file: Path | None, *, reads: bool) -> Iterator[BinaryIO]:
    if not reads:
        yield io.BytesIO(b"\n")
        return
    if file is None or str(file) == "-":
        if sys.stdin.isatty():
            output.note("Type one record per line; Ctrl-D ends.")
        yield sys.stdin.buffer
        return
    try:
        with file.open("rb") as opened:
            yield opened
    except OSError as failure:
        raise Failure(f"Cannot read {file}: {failure.strerror}.") from failure


Advance = Callable[[Iterable[bytes]], Iterator[bytes]]


@contextmanager
def _progress(source: BinaryIO, *, quiet: bool) -> Iterator[Advance]:
    """A bar on standard error while a long file passes, if somebody watches."""
    total = _length(source)
    if quiet or total < WORTH_A_BAR_BYTES or not sys.stderr.isatty():
        yield iter
        return

    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("writing", total=total)

        def advance(lines: Iterable[bytes]) -> Iterator[bytes]:
            passed = 0
            for number, line in enumerate(lines):
                passed += len(line)
                if number % LINES_PER_STEP_OF_THE_BAR == 0:
                    bar.update(task, completed=passed)
                yield line

        yield advance


def _length(source: BinaryIO) -> int:
    """How much is to come; 0 if that is unknown (a pipe, a terminal)."""
    try:
        about = os.fstat(source.fileno())
    except (OSError, ValueError):
        return 0
    return about.st_size if stat.S_ISREG(about.st_mode) else 0
