"""`headrace track`: a collector of web events, and a generator of made-up ones."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.cli.options.listen_address import address_of, under_older_name
from headrace.installation import how_to_add

if TYPE_CHECKING:
    from headrace.client.connection import ClientSettings
    from headrace.pipelines.shipped.generator import Made

app = typer.Typer(
    help="Web tracking: a collector of events, a generator of made-up ones.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

# For connections to the cluster, files and pipes.
OTHER_DESCRIPTORS = 128

Partitions = Annotated[
    int, typer.Option(min=1, help="Partitions of the topics, where they are missing.")
]


@app.command()
@cluster_options
def serve(
    at: At,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where POST /track is taken.")
    ] = "127.0.0.1:8090",
    metrics: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where /health and /metrics are served."),
    ] = None,
    window: Annotated[str | None, typer.Option("--window", hidden=True)] = None,
    origin: Annotated[
        list[str],
        typer.Option(metavar="URL", help="Pages of this origin may send; * for all. Repeat."),
    ] = [],
    max_body: Annotated[int, typer.Option(min=1024, help="Bytes of a request.")] = 262_144,
    max_events: Annotated[int, typer.Option(min=1, help="Events in one request.")] = 500,
    rate: Annotated[float, typer.Option(min=0, help="Events per second; 0: any number.")] = 10_000,
    max_connections: Annotated[int, typer.Option(min=1, help="Connections at once.")] = 4096,
    queue: Annotated[
        int, typer.Option(min=1, help="Events that may wait for the cluster.")
    ] = 100_000,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds to write what waits, at shutdown.")
    ] = 30.0,
    partitions: Partitions = 3,
    as_json: Json = False,
) -> None:
    """Take events over HTTP until interrupted; then write what waits."""
    if importlib.util.find_spec("aiohttp") is None:
        raise Failure(how_to_add("The collector needs", "aiohttp", "app"))
    from headrace.services.tracking.collector import CollectorLimits
    from headrace.services.tracking.main import Settings, run
    from headrace.services.tracking.topics import make_topics

    metrics = under_older_name(metrics, window, "--window", "--metrics")
    limits = CollectorLimits(
        body_bytes=max_body,
        events=max_events,
        rate=rate,
        queue=queue,
        connections=_connections(max_connections),
    )
    settings = Settings(
        listen=address_of(listen, "--listen", "127.0.0.1:8090"),
        metrics=None if metrics is None else address_of(metrics, "--metrics", "127.0.0.1:8091"),
        origins=origin,
        grace_s=grace,
    )
    with at.connection() as cluster:
        for name in make_topics(cluster, partitions=partitions):
            output.note(f"Made the topic {name}.")
        try:
            ledger = run(cluster, limits, settings, output.note)
        except OSError as taken:
            raise Failure(f"Cannot listen: {taken.strerror or taken}.") from None
    if as_json:
        output.answer_json({"written": ledger.written, "lost": ledger.lost})
    else:
        output.note(f"{ledger.written:,} events written, {ledger.lost:,} lost.")
    if ledger.lost:
        raise Failure(
            f"{ledger.lost:,} events were accepted and not written: {ledger.last_failure}"
        )


@app.command()
@cluster_options
def generate(
    at: At,
    visitors: Annotated[int, typer.Option(min=1, max=100_000, help="How many.")] = 100,
    seed: Annotated[int, typer.Option(help="The same seed, the same events.")] = 1,
    days: Annotated[int, typer.Option(min=1, max=366, help="Over how many days.")] = 3,
    start: Annotated[
        str | None,
        typer.Option(metavar="DAY", help="The first day; without it events happen now."),
    ] = None,
    rate: Annotated[float, typer.Option(min=0, help="Events per second; 0: at once.")] = 0,
    late: Annotated[
        float, typer.Option(min=0, max=100, help="Percent of events that come hours late.")
    ] = 2.0,
    events: Annotated[int | None, typer.Option(min=1, help="At most this many.")] = None,
    collector: Annotated[
        str | None, typer.Option(metavar="URL", help="Send to this collector instead.")
    ] = None,
    partitions: Partitions = 3,
    as_json: Json = False,
) -> None:
    """Write the events of made-up visitors."""
    from headrace.pipelines.shipped import generator

    begin_ms = _day_ms(start) if start is not None else 0
    made = generator.generate(
        visitors=visitors, seed=seed, begin_ms=begin_ms, days=days, late_percent=late
    )
    paced = _paced(islice(made, events), rate, live=start is None)
    if collector is not None:
        if start is not None:
            raise Failure("A collector takes what happens now: leave --start out.")
        counts = _post(paced, collector, rate)
    else:
        with at.connection() as cluster:
            past_ms = None if start is None else int(time.time() * 1000) - begin_ms
            counts = _write(paced, cluster, partitions, past_ms)
    if as_json:
        output.answer_json(counts)
    else:
        for topic, count in sorted(counts.items()):
            output.say(f"{count:,} to {topic}")


def _paced(made: Iterator[Made], rate: float, *, live: bool) -> Iterator[Made]:
    """At `rate` events per second; live ones arrive when they are written."""
    from headrace.pipelines.shipped.generator import moved

    began = time.monotonic()
    for number, one in enumerate(made):
        if rate and (ahead := began + number / rate - time.monotonic()) > 0:
            time.sleep(ahead)
        yield moved(one, int(time.time() * 1000)) if live else one


def _write(
    made: Iterator[Made], cluster: ClientSettings, partitions: int, past_ms: int | None
) -> dict[str, int]:
    """Straight into the topics; what happened long ago is kept if the topics are made here."""
    from collections import Counter

    from headrace.client.producer.producer import Producer
    from headrace.services.tracking.topics import make_topics

    kept = {"retention.ms": "-1"} if past_ms is not None else None
    for name in make_topics(cluster, partitions=partitions, settings=kept):
        output.note(f"Made the topic {name}.")
    _say_what_is_too_old(cluster, past_ms or 0)
    counts: Counter[str] = Counter()
    with Producer[bytes, bytes](cluster) as producer:
        for one in made:
            producer.send_one_way(one.topic, one.value(), key=one.key, timestamp_ms=one.arrives_ms)
            counts[one.topic] += 1
    if producer.one_way_failures:
        raise Failure(f"{producer.one_way_failures:,} events were not written.")
    return dict(counts)


def _say_what_is_too_old(cluster: ClientSettings, past_ms: int) -> None:
    """Warns about older topics: a broker deletes what is older than their retention."""
    from headrace.client.admin.topics import Topics
    from headrace.wire.contract.tracking import KINDS

    for topic in (kind.topic for kind in KINDS.values()):
        keeps_ms = int(Topics(cluster).settings_of(topic)["retention.ms"].value)
        if 0 <= keeps_ms < past_ms:
            output.note(
                f"{topic} does not keep records that are so old: the broker will delete them. Keep "
                f"them with `headrace topics alter {topic} --config retention.ms=-1`."
            )


def _post(made: Iterator[Made], url: str, rate: float) -> dict[str, int]:
    """Through a collector, about five requests a second if there is a rate."""
    from collections import Counter

    from headrace.services.tracking.poster import NotTaken, Poster, together

    counts: Counter[str] = Counter()
    try:
        poster = Poster(url)
        for some in together(made, max(1, min(100, int(rate / 5))) if rate else 100):
            poster.post([one.posted() for one in some])
            counts.update(one.topic for one in some)
        poster.close()
    except NotTaken as refusal:
        raise Failure(str(refusal)) from refusal
    return dict(counts)


def _day_ms(text: str) -> int:
    try:
        return int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        raise Failure(f"{text!r} is not a day such as 2026-01-31.") from None


def _connections(wanted: int) -> int:
    """As many as this process may have, and some descriptors for the rest of it."""
    from headrace.node.process.folders.real_disk import raise_open_files_limit

    allowed = max(1, raise_open_files_limit() - OTHER_DESCRIPTORS)
    if allowed < wanted:
        output.note(f"No more than {allowed:,} connections at once: see `ulimit -n`.")
    return min(wanted, allowed)
