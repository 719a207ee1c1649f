"""`headrace pipeline`: run a pipeline on Spark as a stream or over history, and see what runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.cli.options.key_values import key_values
from headrace.cli.options.listen_address import under_older_name
from headrace.cli.options.local_folder import local_folder
from headrace.operations.pipelines import facts_of
from headrace.pipelines.declaration import NAME
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.pipeline_names import load, pipelines_in
from headrace.pipelines.spark.session import ZONE, start
from headrace.pipelines.stream import folder as folders
from headrace.pipelines.stream import span as spans
from headrace.pipelines.stream.folder import Folder
from headrace.wire.contract import durations

if TYPE_CHECKING:
    from headrace.cli.applications.pipeline_bar import Bar

app = typer.Typer(
    help="Data pipelines on Spark: run, list, status, stop, reset, report, new.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

Data = Annotated[
    Path,
    typer.Option(
        "--data",
        metavar="DIR",
        parser=local_folder,
        envvar="HEADRACE_PIPELINES",
        help="The folder of checkpoints and tables.",
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
HERE = Path(folders.DEFAULT)
LOOK_EVERY_S = 0.5


@app.command()
@cluster_options
def run(
    at: At,
    which: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE.py:NAME", help="Such as shop.py:revenue.", show_default=False
        ),
    ],
    once: Annotated[
        bool, typer.Option("--once", help="Handle all records up to now, then stop.")
    ] = False,
    backfill: Annotated[
        bool,
        typer.Option(
            "--backfill",
            help="Handle the records before the stream first, then continue as a stream.",
        ),
    ] = False,
    history: Annotated[
        str | None,
        typer.Option(
            metavar="FROM..TO", help="Run once over this span instead, in UTC; see the guide."
        ),
    ] = None,
    into: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Where --history writes instead.")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Start a batch every 30s or 5m (default: as soon as one is done).",
        ),
    ] = None,
    real_time: Annotated[
        bool,
        typer.Option(
            "--real-time",
            help="Write each row to a topic as its record arrives; at least once.",
        ),
    ] = False,
    compact_every: Annotated[
        int | None,
        typer.Option(
            "--compact-every",
            metavar="BATCHES",
            min=0,
            help="Compact the table's small files after this many batches; 0: never (default: as "
            "declared, or 100).",
        ),
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE", help="The time zone of days: Europe/Berlin (default: as declared)."
        ),
    ] = None,
    master: Annotated[
        str, typer.Option(help="The Spark master, such as spark://host:7077.")
    ] = "local[*]",
    spark: Annotated[
        list[str], typer.Option("--spark", metavar="KEY=VALUE", help="A setting for Spark.")
    ] = [],
    py_files: Annotated[
        list[Path],
        typer.Option(
            "--py-files",
            metavar="FILE",
            exists=True,
            help="A .py or .zip that your functions import, for the workers of a cluster.",
        ),
    ] = [],
    accept_change: Annotated[
        bool,
        typer.Option(
            "--accept-change",
            help="Continue with a changed function, if its state allows it; see the guide.",
        ),
    ] = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics", metavar="HOST:PORT", help="Serve /metrics here while the stream runs."
        ),
    ] = None,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help="Show Spark's errors with their stacks; otherwise they are in a file."
        ),
    ] = False,
    window: Annotated[str | None, typer.Option("--window", hidden=True)] = None,
    data: Data = HERE,
    as_json: Json = False,
) -> None:
    """Run a pipeline as a stream until interrupted, or once, or over history."""
    from headrace.cli.applications.pipeline_bar import Lines
    from headrace.pipelines.metrics import served
    from headrace.pipelines.stream.runner import Runner

    if history is not None and (once or backfill):
        raise Failure("--history runs once anyway: leave --once and --backfill out.")
    if into is not None and history is None:
        raise Failure("--into goes with --history.")
    if accept_change and history is not None:
        raise Failure("--accept-change is for a stream: --history keeps no checkpoint.")
    if every is not None and (history is not None or once):
        raise Failure("--every is for a stream: leave it out with --once and --history.")
    if real_time and (once or backfill or history is not None or every is not None):
        raise Failure(
            "--real-time has no batches: leave --once, --backfill, --history and --every out."
        )
    with at.connection() as cluster, _bar() as bar:
        try:
            settings = key_values(spark, option="--spark")
            early = _log_of(which, data)  # a file may ask for Spark while it is loaded
            loaded = load(
                which,
                lambda: start(which, master=master, given=settings, log=early, debug=debug),
            )
            if zone is not None and settings.setdefault(ZONE, zone) != zone:
                raise Failure(f"--zone says {zone}, --spark {settings[ZONE]}: leave one out.")
            runner = Runner(
                pipeline=loaded,
                connection=cluster,
                data=data,
                say=_above(bar, output.note if as_json else output.say),
                note=_above(bar, output.note),
                draw=Lines(output.note).draw if bar is None else bar.draw,
                master=master,
                spark_settings=settings,
                py_files=tuple(py_files),
                every_ms=0 if every is None else _milliseconds(every),
                compact_every=compact_every,
                real_time=real_time,
                accept_change=accept_change,
                debug=debug,
            )
            if history is not None:
                runner.history(spans.parse(history), into=into)
            else:
                folder = _folder(data, loaded.name)
                try:
                    with served(folder, under_older_name(metrics, window, "--window", "--metrics")):
                        runner.stream(once=once, backfill=backfill)
                except PipelineError as failure:
                    # Not of one that is refused because another process runs it.
                    if folder.described() and folder.runner() is None:
                        folder.keep_failure(str(failure), time.time_ns() // 1_000_000)
                    raise
        except PipelineError as failure:
            raise Failure(str(failure)) from failure
    if as_json:
        output.answer_json(_state(_folder(data, loaded.name)))


def _log_of(which: str, data: Path) -> Path:
    """As `Runner.log`, before the pipeline's own name is known."""
    name = Path(which.rpartition(":")[2].replace("_", "-")).name
    return data.absolute() / "logs" / f"{name}.log"


def _milliseconds(every: str) -> int:
    try:
        return durations.parse(every)
    except ValueError as wrong:
        raise Failure(f"--every: {wrong}.") from wrong


@app.command(name="list")
def list_(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE.py", help="The pipelines of this file.", show_default=False),
    ] = None,
    data: Data = HERE,
    as_json: Json = False,
) -> None:
    """List the pipelines that have run here and those that come with it, or those of a file."""
    try:
        if file is None:
            rows = [_state(folder) for folder in folders.known(data)]
            rows += _not_run_yet({str(row["name"]) for row in rows})
        else:
            found = pipelines_in(file).values()
            rows = [{"name": one.name, **one.describe()} for one in found]
    except PipelineError as failure:
        raise Failure(str(failure)) from failure
    if as_json:
        output.answer_json(rows)
        return
    columns = ["name", "source", "sink", "kind", *(["process", "batch"] if file is None else [])]
    output.table(columns, [[row.get(column) for column in columns] for row in rows])
    if file is None:
        output.note("And any topic as a lake table: headrace lake fill TOPIC.")


@app.command()
def new(name: Name, as_json: Json = False) -> None:
    """Write a small project: a pipeline, and a test that runs it on a broker and a Spark."""
    from headrace.pipelines.new import write_project

    try:
        made = write_project(name, Path())
    except PipelineError as failure:
        raise Failure(str(failure)) from failure
    if as_json:
        output.answer_json([str(path) for path in made])
        return
    for path in made:
        output.say(str(path))


@app.command()
def status(
    name: Name,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again with each batch, until Ctrl-C.")
    ] = False,
    data: Data = HERE,
    as_json: Json = False,
) -> None:
    """Show whether a pipeline runs and what its last batch with rows did."""
    folder = _folder(data, name)
    if not folder.described():
        raise Failure(f"No pipeline {name} has run in {data}.")
    _show_state(_state(folder), as_json=as_json)
    before = _state(folder)
    while watch and before["process"] is not None:
        time.sleep(LOOK_EVERY_S)
        if (now := _state(folder)) != before:
            before = now
            if not as_json:
                output.say("")
            _show_state(now, as_json=as_json)


def _show_state(state: dict[str, str | int | None], *, as_json: bool) -> None:
    if as_json:
        output.answer_json(state)
        return
    for part, value in state.items():
        output.say(f"{part:<16}{'-' if value is None else value}")


@app.command()
def stop(name: Name, data: Data = HERE, as_json: Json = False) -> None:
    """Tell the process that runs a pipeline on this machine to stop."""
    try:
        process = _folder(data, name).stop()
    except PipelineError as failure:
        raise Failure(str(failure)) from failure
    if as_json:
        output.answer_json({"name": name, "told": process})
    else:
        output.say(f"Asked process {process} to stop {name}.")


@app.command()
def reset(
    name: Name,
    table: Annotated[bool, typer.Option("--table", help="Remove its table too.")] = False,
    keep_rows: Annotated[
        bool,
        typer.Option("--keep-rows", help="Let the next run add to the rows that are there."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data: Data = HERE,
    as_json: Json = False,
) -> None:
    """Delete the checkpoint of a pipeline: its next run starts from the beginning."""
    if table and keep_rows:
        raise Failure("--table removes the rows that --keep-rows keeps: leave one out.")
    what = "its checkpoint and its table" if table else "its checkpoint"
    folder = _folder(data, name)
    try:
        effects = folder.effects_of_reset(table=table, keep_rows=keep_rows)
        for sentence in effects:
            output.note(sentence)
        if not yes and not output.confirmed(f"Remove {what} of {name}?"):
            raise typer.Exit(1)
        folder.reset(table=table, keep_rows=keep_rows)
    except PipelineError as failure:
        raise Failure(str(failure)) from failure
    if as_json:
        output.answer_json({"name": name, "table_removed": table, "effects": effects})
    else:
        output.say(f"{name} starts from the beginning.")


@app.command()
def report(
    name: Name,
    html: Annotated[Path, typer.Option("--html", metavar="FILE", help="Where to write the page.")],
    day: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="The day, such as 2026-01-31 (default: the newest)."),
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="The time zone of the day (default: the pipeline's)."),
    ] = None,
    data: Data = HERE,
    as_json: Json = False,
) -> None:
    """Draw a day of a pipeline that comes with it as one HTML page; needs no Spark."""
    from headrace.pipelines.report.day_report import report as drawn

    try:
        found = drawn(data, name, day=day, zone=zone)
    except PipelineError as failure:
        raise Failure(str(failure)) from failure
    except OSError as failure:
        raise Failure(f"Cannot read the table below {data}: {failure.strerror}.") from failure
    try:
        html.write_text(found.html, "utf-8")
    except OSError as failure:
        raise Failure(f"Cannot write {html}: {failure.strerror}.") from failure
    if as_json:
        day_of = {"day": found.day.date.isoformat(), "zone": found.day.zone}
        output.answer_json(
            {"file": str(html), "rows": found.rows, "charts": found.charts, **day_of}
        )
    else:
        rows = "1 row" if found.rows == 1 else f"{found.rows:,} rows"
        output.say(f"{html}: {found.day.date} ({found.day.zone}), {rows} of {found.table}")


def _folder(data: Path, name: str) -> Folder:
    if not NAME.fullmatch(name):
        raise Failure(f"{name!r} is not a name of a pipeline.")
    return Folder(data, name)


def _not_run_yet(ran: set[str]) -> list[dict[str, str | int | None]]:
    from headrace.pipelines.shipped import SHIPPED

    return [{"name": name, **one.describe()} for name, one in SHIPPED.items() if name not in ran]


def _state(folder: Folder) -> dict[str, str | int | None]:
    facts = facts_of(folder)
    known = {part: value for part, value in facts.described.items() if part != "id"}
    failure = facts.failure.get("sentence")
    state = {"name": facts.name, **known, "process": facts.process, "batch": None, **facts.progress}
    state |= {part: value for part, value in facts.compaction.items() if part != "vacuumed_s"}
    return state if failure is None else {**state, "last_failure": str(failure)}


@contextmanager
def _bar() -> Iterator[Bar | None]:
    """A line on standard error while Spark starts or is at history, if somebody watches."""
    if not sys.stderr.isatty():
        yield None
        return

    from headrace.cli.applications.pipeline_bar import Bar

    with Bar() as bar:
        yield bar


def _above(bar: Bar | None, write: Callable[[str], None]) -> Callable[[str], None]:
    return write if bar is None else bar.above(write)
