"""`headrace ship`: lines of log files and numbers of this machine, into topics."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.cli.options.listen_address import address_of
from headrace.cli.options.local_folder import local_folder
from headrace.installation import how_to_add
from headrace.private_files import state_folder
from headrace.wire.contract import logs as log_contract
from headrace.wire.contract import metrics as metric_contract

if TYPE_CHECKING:
    from headrace.services.shipping.shipper import Shipper

app = typer.Typer(
    help="Ship log files and host metrics into topics.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

STDIN = "-"
LONGEST_LINE = 128 * 1024
PROGRESS_EVERY_S = 1.0
MOST_ENDPOINTS = 20

MetricsAt = Annotated[
    str | None,
    typer.Option("--metrics", metavar="HOST:PORT", help="Where /metrics and /health are served."),
]
Host = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The name of this machine (default: its host name)."),
]


@app.command()
@cluster_options
def logs(
    at: At,
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Files and patterns ('**' too), - for the pipe."),
    ],
    topic: Annotated[str, typer.Option(help="The topic of the lines.")] = log_contract.TOPIC,
    service: Annotated[
        str | None, typer.Option(metavar="NAME", help="The service's name (default: the file's).")
    ] = None,
    host: Host = None,
    format: Annotated[
        str, typer.Option(metavar="FORMAT", help="auto, json, logfmt, web or text.")
    ] = "auto",
    zone: Annotated[str, typer.Option(help="The time zone of times without one.")] = "UTC",
    state: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", parser=local_folder, help="Where positions are kept."),
    ] = None,
    start: Annotated[
        str, typer.Option(metavar="WHERE", help="New files: from their beginning or end.")
    ] = "beginning",
    once: Annotated[bool, typer.Option("--once", help="Stop at the end of the files.")] = False,
    max_line: Annotated[
        int, typer.Option(min=1024, max=LONGEST_LINE, help="Bytes; longer ones are cut.")
    ] = 64 * 1024,
    compression: Annotated[str, typer.Option(help="zstd, lz4, snappy, gzip or none.")] = "zstd",
    metrics: MetricsAt = None,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds to write what was read, at shutdown.")
    ] = 30.0,
    max_deleted: Annotated[
        int, typer.Option(min=0, metavar="MIB", help="Deleted files held until they are read.")
    ] = 1024,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Continue from positions of another topic or cluster.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Follow files through rotation and write each line, until interrupted."""
    from headrace.prometheus_text import render
    from headrace.services.shipping.counters import shipper_families
    from headrace.services.shipping.formats import FORMATS
    from headrace.services.shipping.main import (
        AddressRefused,
        allow_many_files,
        collect_rarely,
        numbers_at,
    )
    from headrace.services.shipping.positions import StateError, StateFolder
    from headrace.services.shipping.records import Origin
    from headrace.services.shipping.shipper import Settings, Shipper
    from headrace.services.shipping.topic import largest_batch, must_be_there
    from headrace.stop_signals import stopped_by_signals

    _one_of("--format", format, FORMATS)
    _one_of("--start", start, ("beginning", "end"))
    _one_of("--compression", compression, ("zstd", "lz4", "snappy", "gzip", "none"))
    window = None if metrics is None else address_of(metrics, "--metrics", "127.0.0.1:9110")
    patterns = [os.path.abspath(one) for one in paths if one != STDIN]
    if once:
        _must_match(patterns)
    origin = Origin(
        host=host or socket.gethostname(), service=service, form=format, zone=_zone(zone)
    )
    settings = Settings(
        patterns=patterns,
        topic=topic,
        origin=origin,
        max_line=max_line,
        stdin=_stdin() if STDIN in paths else None,
        from_end=start == "end",
        once=once,
        grace_s=grace,
        compression=compression,
        most_deleted_bytes=max_deleted * 1024**2,
    )
    allow_many_files()
    collect_rarely()
    with at.connection() as cluster:
        target = {"topic": topic, "cluster": must_be_there(cluster, topic)}
        settings.batch_bytes = largest_batch(cluster, topic)
        try:
            folder = None
            if patterns:
                folder_name = state or _state_folder(cluster.bootstrap, topic, patterns)
                folder = StateFolder(folder_name, target, adopts=adopt)
            shipper = Shipper(cluster, settings, folder, output.note)
            where = f", positions in {folder.path}" if folder else ""
            output.note(f"Shipping to {topic} at {cluster.bootstrap}{where}.")

            def numbers() -> str:
                return render(shipper_families(shipper.counters, shipper.gauges()))

            with (
                numbers_at(window, numbers, output.note),
                stopped_by_signals(shipper.stop),
                _progress(lambda: _standing(shipper)),
            ):
                shipper.run()
        except (StateError, AddressRefused) as refusal:
            raise Failure(str(refusal)) from refusal
    _tell(shipper, as_json)


@app.command()
@cluster_options
def metrics(
    at: At,
    topic: Annotated[str, typer.Option(help="The topic of the samples.")] = metric_contract.TOPIC,
    host: Host = None,
    every: Annotated[float, typer.Option(min=1, max=3600, help="Seconds between samples.")] = 10.0,
    process: Annotated[
        list[str], typer.Option(metavar="NAME", help="Watch processes of this name. Repeat.")
    ] = [],
    scrape: Annotated[
        list[str],
        typer.Option(metavar="URL", help="Read this Prometheus endpoint too. Repeat, 20 at most."),
    ] = [],
    samples: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many samples.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write this machine's numbers (processors, memory, disks, network) until interrupted."""
    if importlib.util.find_spec("psutil") is None:
        raise Failure(how_to_add("The agent needs", "psutil", "metrics"))
    from headrace.services.shipping.agent import Agent, Settings
    from headrace.services.shipping.topic import must_be_there
    from headrace.stop_signals import stopped_by_signals

    _must_be_urls(scrape)
    settings = Settings(
        topic=topic,
        host=host or socket.gethostname(),
        every_s=every,
        processes=process,
        endpoints=scrape,
        samples=samples,
    )
    with at.connection() as cluster:
        must_be_there(cluster, topic)
        agent = Agent(cluster, settings, output.note)
        output.note(f"Numbers of {settings.host} every {every:g} s to {topic}.")
        with stopped_by_signals(agent.stop):
            agent.run()
    counts = agent.counters
    if as_json:
        output.answer_json(counts)
    else:
        more = [
            f"{count:,} {words}"
            for count, words in (
                (counts.missed, "samples missed because the one before took too long"),
                (counts.scrapes_failed, "scrapes failed"),
                (counts.left_out, "lines of endpoints left out"),
                (counts.unread, "times that a part of this machine could not be read"),
            )
            if count
        ]
        said = [f"{counts.samples:,} samples, {counts.written:,} records written", *more]
        output.note("; ".join(said) + ".")
    if lost := counts.lost + counts.dropped:
        raise Failure(f"{lost:,} records of numbers were not written: {counts.last_failure}.")


def _must_be_urls(given: list[str]) -> None:
    if len(given) > MOST_ENDPOINTS:
        raise Failure(f"No more than {MOST_ENDPOINTS} endpoints are read by one agent.")
    for url in given:
        if not url.startswith(("http://", "https://")):
            raise Failure(f"{url} is not a URL, such as http://127.0.0.1:9100/metrics.")


def _tell(shipper: Shipper, as_json: bool) -> None:
    counts = shipper.counters
    if as_json:
        output.answer_json(counts)
    else:
        _note_counts(shipper)
    if counts.pipe_lost:
        raise Failure(f"{output.count(counts.pipe_lost, 'record')} of the pipe were not written.")


def _note_counts(shipper: Shipper) -> None:
    counts = shipper.counters
    more = [
        f"{count:,} {words}"
        for count, words in (
            (counts.bad, "not in their format, not UTF-8 or with a wrong time"),
            (counts.cut, "cut because of their length"),
            (counts.shortened, "shortened for the topic"),
            (counts.rewritten, "files emptied"),
            (counts.files_lost, "files gone before their end"),
            (shipper.to_send_again, "not written yet: the next run sends them"),
        )
        if count
    ]
    output.note("; ".join([f"{counts.written:,} records written", *more]) + ".")


def _standing(shipper: Shipper) -> str:
    counts, gauges = shipper.counters, shipper.gauges()
    opened, behind = gauges["files_open"][1], gauges["bytes_behind"][1]
    return f"{counts.written:,} records written, {opened:,.0f} files, {behind:,.0f} bytes behind"


@contextmanager
def _progress(standing: Callable[[], str]) -> Iterator[None]:
    """One line on a terminal that is drawn again and again."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()

    def draw() -> None:
        while not done.wait(PROGRESS_EVERY_S):
            output.passing(standing())

    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        output.passing("")


def _state_folder(bootstrap: str, topic: str, patterns: list[str]) -> Path:
    """One for each cluster, topic and set of patterns."""
    base = state_folder()
    if base is None:
        raise Failure("This user has no home folder: name a state folder with --state.")
    about = "\n".join([bootstrap, topic, *sorted(patterns)]).encode()
    return base / f"ship-logs-{hashlib.blake2b(about, digest_size=6).hexdigest()}"


def _stdin() -> int:
    if sys.stdin is None or sys.stdin.closed:
        raise Failure("Standard input is closed: pipe something into it, or leave out the -.")
    return sys.stdin.fileno()


def _must_match(patterns: list[str]) -> None:
    from headrace.services.shipping.files import matching

    for pattern in patterns:
        if not any(True for _ in matching(pattern)):
            raise Failure(f"There is no file {pattern}.")


def _one_of(option: str, given: str, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise Failure(f"{option} is one of {', '.join(allowed)}, not {given}.")


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Failure(f"{name!r} is not a time zone such as Europe/Berlin.") from None
