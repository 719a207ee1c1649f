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
from headrace.cli.cluster_options import At, Json, cluster_options
from headrace.cli.failure import Failure
from headrace.contract import logs as log_contract
from headrace.contract import metrics as metric_contract
from headrace.installation import command_to_add

if TYPE_CHECKING:
    from headrace.services.shipping.shipper import Shipper

app = typer.Typer(
    help="Ship log files and this machine's numbers into topics.",
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
    str | None, typer.Option(metavar="NAME", help="This machine, if not by its own name.")
]


@app.command()
@cluster_options
def logs(
    at: At,
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Files and patterns ('**' too), - for the pipe."),
    ],
    topic: Annotated[str, typer.Option(help="Where lines go.")] = log_contract.TOPIC,
    service: Annotated[
        str | None, typer.Option(metavar="NAME", help="Without it: the file's name.")
    ] = None,
    host: Host = None,
    format: Annotated[
        str, typer.Option(metavar="FORMAT", help="auto, json, logfmt, web or text.")
    ] = "auto",
    zone: Annotated[str, typer.Option(help="Of times that name none.")] = "UTC",
    state: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where positions are kept.")
    ] = None,
    start: Annotated[
        str, typer.Option(metavar="WHERE", help="New files: from their beginning or end.")
    ] = "beginning",
    once: Annotated[bool, typer.Option("--once", help="To the end of what is there.")] = False,
    max_line: Annotated[
        int, typer.Option(min=1024, max=LONGEST_LINE, help="Bytes; longer ones are cut.")
    ] = 64 * 1024,
    compression: Annotated[str, typer.Option(help="zstd, lz4, snappy, gzip or none.")] = "zstd",
    metrics: MetricsAt = None,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds to write what was read, at the end.")
    ] = 30.0,
    as_json: Json = False,
) -> None:
    """Follow files through rotation and write each line, until interrupted."""
    from headrace.services.shipping.counters import rendered
    from headrace.services.shipping.formats import FORMATS
    from headrace.services.shipping.main import numbers_at, stopped_by_signals
    from headrace.services.shipping.positions import StateError, StateFolder
    from headrace.services.shipping.records import Origin
    from headrace.services.shipping.shipper import Settings, Shipper
    from headrace.services.shipping.topic import must_be_there

    _one_of("--format", format, FORMATS)
    _one_of("--start", start, ("beginning", "end"))
    _one_of("--compression", compression, ("zstd", "lz4", "snappy", "gzip", "none"))
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
        stdin=sys.stdin.fileno() if STDIN in paths else None,
        from_end=start == "end",
        once=once,
        grace_s=grace,
        compression=compression,
    )
    with at.connection() as cluster:
        must_be_there(cluster, topic)
        try:
            folder = None
            if patterns:
                folder = StateFolder(state or _state_folder(cluster.bootstrap, topic, patterns))
            shipper = Shipper(cluster, settings, folder, output.note)
            where = f", positions in {folder.path}" if folder else ""
            output.note(f"Shipping to {topic} at {cluster.bootstrap}{where}.")

            def numbers() -> str:
                return rendered(shipper.counters, shipper.gauges())

            with (
                numbers_at(_address(metrics), numbers, output.note),
                stopped_by_signals(shipper),
                _progress(lambda: _standing(shipper)),
            ):
                shipper.run()
        except StateError as refusal:
            raise Failure(str(refusal)) from refusal
        except OSError as taken:
            raise Failure(f"Cannot serve the numbers: {taken.strerror or taken}.") from None
    _tell(shipper, as_json)


@app.command()
@cluster_options
def metrics(
    at: At,
    topic: Annotated[str, typer.Option(help="Where numbers go.")] = metric_contract.TOPIC,
    host: Host = None,
    every: Annotated[float, typer.Option(min=1, max=3600, help="Seconds between samples.")] = 10.0,
    process: Annotated[
        list[str], typer.Option(metavar="NAME", help="Watch processes of this name. Repeat.")
    ] = [],
    scrape: Annotated[
        list[str],
        typer.Option(metavar="URL", help="Read this Prometheus endpoint too. Repeat, 20 at most."),
    ] = [],
    samples: Annotated[int | None, typer.Option(min=1, help="So many, then end.")] = None,
    as_json: Json = False,
) -> None:
    """Write this machine's numbers (processors, memory, disks, network) until interrupted."""
    if importlib.util.find_spec("psutil") is None:
        raise Failure(f"The agent needs psutil: {command_to_add('metrics')}")
    from headrace.services.shipping.agent import Agent, Settings
    from headrace.services.shipping.main import stopped_by_signals
    from headrace.services.shipping.topic import must_be_there

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
        with stopped_by_signals(agent):
            agent.run()
    counts = agent.counters
    if as_json:
        output.answer_json(counts)
    else:
        output.note(f"{counts.samples:,} samples, {counts.written:,} records written.")
    if lost := counts.lost + counts.dropped:
        raise Failure(f"{lost:,} records of numbers were not written: {counts.last_failure}.")


def _must_be_urls(given: list[str]) -> None:
    if len(given) > MOST_ENDPOINTS:
        raise Failure(f"No more than {MOST_ENDPOINTS} endpoints are read by one agent.")
    for url in given:
        if not url.startswith(("http://", "https://")):
            raise Failure(f"{url} is no URL, such as http://127.0.0.1:9100/metrics.")


def _tell(shipper: Shipper, as_json: bool) -> None:
    counts = shipper.counters
    if as_json:
        output.answer_json(counts)
        return
    more = [
        f"{count:,} {words}"
        for count, words in (
            (counts.bad, "not in their format or not UTF-8"),
            (counts.cut, "cut because of their length"),
            (counts.shortened, "shortened for the topic"),
            (counts.rewritten, "files emptied"),
            (counts.files_lost, "files gone before their end"),
            (shipper.unwritten, "not written yet: they are sent again"),
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
    base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    about = "\n".join([bootstrap, topic, *sorted(patterns)]).encode()
    return base / "headrace" / f"ship-logs-{hashlib.blake2b(about, digest_size=6).hexdigest()}"


def _must_match(patterns: list[str]) -> None:
    import glob

    for pattern in patterns:
        if not glob.glob(pattern, recursive=True):
            raise Failure(f"There is no file {pattern}.")


def _one_of(option: str, given: str, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise Failure(f"{option} is one of {', '.join(allowed)}, not {given}.")


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Failure(f"{name!r} is no time zone: write one such as Europe/Berlin.") from None


def _address(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise Failure(f"{text} is not HOST:PORT, such as 127.0.0.1:9110.")
    return host.strip("[]"), int(port)
