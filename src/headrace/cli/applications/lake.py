"""`headrace lake`: topics as Delta or Iceberg tables, their compaction and their past."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.cli.options.key_values import key_values
from headrace.cli.options.listen_address import under_older_name
from headrace.cli.options.local_folder import local_folder
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.stream import folder as folders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipelines.shipped.delta_without_spark import DeltaFiles
    from headrace.pipelines.spark.bar import Draw

app = typer.Typer(
    help="Topics as lake tables: fill, compact, versions, show; made-up customers to try it.",
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
HERE = Path(folders.DEFAULT)
TableName = Annotated[str, typer.Argument(metavar="TABLE", show_default=False)]
Master = Annotated[str, typer.Option(help="The Spark master, such as spark://host:7077.")]
Settings = Annotated[
    list[str], typer.Option("--spark", metavar="KEY=VALUE", help="A setting for Spark.")
]


@app.command()
@cluster_options
def fill(
    at: At,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="The table; without it named as the topic.")
    ] = None,
    format: Annotated[str, typer.Option(help="delta or iceberg.")] = "delta",
    upsert: Annotated[
        bool,
        typer.Option(
            "--upsert", help="Keep the last value of each key; a null value deletes (Delta)."
        ),
    ] = False,
    values: Annotated[
        str, typer.Option(help="json, avro, or confluent-avro (behind Confluent's header).")
    ] = "json",
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT|@FILE",
            help='Types of columns, such as "amount DOUBLE"; for Avro its schema.',
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Handle all records up to now, then stop.")
    ] = False,
    per_batch: Annotated[int | None, typer.Option(min=1, help="Records in one batch.")] = None,
    compact_every: Annotated[
        int | None,
        typer.Option(
            "--compact-every",
            metavar="BATCHES",
            min=0,
            help="Compact the table's small files after so many batches, 0 never; otherwise 100.",
        ),
    ] = None,
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
    master: Master = "local[*]",
    spark: Settings = [],
    data: Data = HERE,
    as_json: Json = False,
) -> None:
    """Write a topic into a table until interrupted; its columns grow with the values."""
    from headrace.pipelines.metrics import served
    from headrace.pipelines.shipped.topic_to_lake import Lake
    from headrace.pipelines.stream.runner import Runner

    with at.connection() as cluster:
        try:
            lake = Lake(
                topic=topic,
                table=table,
                format=format,
                upsert=upsert,
                values=values,
                schema=_text(schema),
                per_batch=per_batch,
            )
            runner = Runner(
                growth=lake.growth(),
                pipeline=lake.pipeline(),
                connection=cluster,
                data=data,
                say=output.say,
                note=output.note,
                draw=_draw(),
                master=master,
                spark_settings=key_values(spark, option="--spark"),
                compact_every=compact_every,
                debug=debug,
            )
            with served(
                folders.Folder(data, runner.pipeline.name),
                under_older_name(metrics, window, "--window", "--metrics"),
            ):
                runner.stream(once=once)
        except PipelineError as failure:
            raise Failure(str(failure)) from failure
    if as_json:
        folder = folders.Folder(data, runner.pipeline.name)
        output.answer_json({"name": folder.name, **(folder.progress() or {})})


@app.command()
@cluster_options
def generate(
    at: At,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    records: Annotated[int, typer.Option(min=1, max=10_000_000, help="How many.")] = 1000,
    customers: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many customers.")] = 100,
    seed: Annotated[int, typer.Option(help="The same seed, the same records.")] = 1,
    bad: Annotated[
        float, typer.Option(min=0, max=100, help="Percent of records that are not JSON.")
    ] = 0.0,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of a new topic.")] = 3,
    as_json: Json = False,
) -> None:
    """Write made-up customers into a compacted topic: changed, deleted, with ever more fields."""
    from headrace.client.admin.topics import Topics
    from headrace.client.producer.producer import Producer
    from headrace.pipelines.shipped.customers import generate as made_up

    deletes = 0
    with at.connection() as cluster:
        topics = Topics(cluster)
        if topic not in topics.cluster.topics:
            topics.create(topic, partitions=partitions, settings={"cleanup.policy": "compact"})
            output.note(f"Made the topic {topic}, compacted.")
        with Producer[bytes, bytes](cluster) as producer:
            for key, value in made_up(
                records=records, customers=customers, seed=seed, bad_percent=bad
            ):
                producer.send_one_way(topic, value, key=key)
                deletes += value is None
        if producer.one_way_failures:
            raise Failure(f"{producer.one_way_failures:,} records were not written.")
    if as_json:
        output.answer_json({"records": records, "deletes": deletes})
    else:
        output.say(f"{records:,} to {topic}, {deletes:,} of them deletes")


@app.command()
def compact(
    table: TableName,
    forget: Annotated[
        int | None,
        typer.Option(
            metavar="HOURS", min=168, help="Remove files that only versions older than this need."
        ),
    ] = None,
    master: Master = "local[*]",
    spark: Settings = [],
    data: Data = HERE,
    as_json: Json = False,
) -> None:
    """Write few large files in place of many small ones."""
    from headrace.pipelines.shipped import lake_tables

    with _explained():
        files = _without_spark(table, data, spark)
        done = None if files is None else files.compact_if_free(forget_hours=forget)
    if done is None:
        with _table(table, data, master, spark) as (session, location):
            done = lake_tables.compact(session, location)
            if forget is not None:
                done.removed = lake_tables.forget(session, location, hours=forget)
    if as_json:
        output.answer_json(done)
        return
    removed = "" if done.removed is None else f", {done.removed:,} old ones removed"
    output.say(f"{table}: {done.files_before:,} files before, {done.files_after:,} now{removed}")


@app.command()
def versions(
    table: TableName,
    master: Master = "local[*]",
    spark: Settings = [],
    data: Data = HERE,
    as_json: Json = False,
) -> None:
    """List the states that a table has had."""
    from headrace.pipelines.shipped import lake_tables

    with _explained():
        files = _without_spark(table, data, spark)
        found = None if files is None else files.versions()
    if found is None:
        with _table(table, data, master, spark) as (session, location):
            found = lake_tables.versions(session, location)
    if as_json:
        output.answer_json(found)
    else:
        rows = [(one.version, one.time, one.operation) for one in found]
        output.table(("version", "time", "operation"), rows)


@app.command()
def show(
    table: TableName,
    version: Annotated[int | None, typer.Option(help="As it was at this version.")] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="As it was at this moment, in UTC.")
    ] = None,
    order: Annotated[str | None, typer.Option(metavar="COLUMN,...", help="Sort by them.")] = None,
    rows: Annotated[int, typer.Option(min=1, max=10_000, help="At most this many.")] = 20,
    master: Master = "local[*]",
    spark: Settings = [],
    data: Data = HERE,
    as_json: Json = False,
) -> None:
    """Show rows of a table, now or as it was."""
    from headrace.pipelines.shipped import lake_tables

    if version is not None and at is not None:
        raise Failure("Give --version or --at, not both.")
    columns = [] if order is None else order.split(",")
    with _explained():
        files = _without_spark(table, data, spark)
        if files is not None:
            names, cells, nested = files.rows(limit=rows, order=columns, version=version, at=at)
    if files is None:
        with _table(table, data, master, spark) as (session, location):
            found = lake_tables.rows_of(session, location, version=version, at=at)
            if columns:
                found = found.orderBy(*columns)
            shown, nested = lake_tables.for_people(found.limit(rows))
            names, cells = shown.columns, [list(row) for row in shown.collect()]
    if as_json:
        output.answer_json([_document(names, row, nested) for row in cells])
    else:
        output.table(names, [[_text_of(cell) for cell in row] for row in cells])


def _document(names: list[str], row: list[Any], nested: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, cell in zip(names, row, strict=True):
        if name in nested and cell is not None:
            found[name] = json.loads(cell)
        elif isinstance(cell, bool) or (isinstance(cell, float) and math.isfinite(cell)):
            found[name] = cell
        else:
            found[name] = _text_of(cell)
    return found


def _text_of(cell: Any) -> str | int | None:
    if cell is None or (isinstance(cell, int) and not isinstance(cell, bool)):
        return cell
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, bytes | bytearray):
        return bytes(cell).decode("utf-8", "backslashreplace")
    return str(cell)


def _without_spark(table: str, data: Path, spark: list[str]) -> DeltaFiles | None:
    """The table, if it needs no Spark and the person did not ask for one by its settings."""
    from headrace.pipelines.shipped import delta_without_spark, lake_tables

    location = folders.table_location(data, table)
    lake_tables.must_be_there(location)
    return None if spark else delta_without_spark.found(location)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except PipelineError as failure:
        raise Failure(str(failure)) from failure


@contextmanager
def _table(
    name: str, data: Path, master: str, given: list[str]
) -> Iterator[tuple[SparkSession, str]]:
    """Gives a Spark and the table's place; a failure becomes one sentence."""
    from headrace.pipelines.shipped import lake_tables
    from headrace.pipelines.spark import bar, session

    location = folders.table_location(data, name)
    try:
        lake_tables.must_be_there(location)
        with bar.waiting(_draw(), f"Spark starts on {master}"), _aside():
            settings = key_values(given, option="--spark")
            spark = session.start("lake", master=master, given=settings, note=output.note)
        with lake_tables.explained():
            yield spark, location
    except PipelineError as failure:
        raise Failure(str(failure)) from failure


@contextmanager
def _aside() -> Iterator[None]:
    """Output of child processes, such as Delta's messages about VACUUM, goes to standard error:
    standard output is for the answer."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _text(given: str | None) -> str | None:
    """As it is, or what the file holds."""
    if given is None or not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise Failure(f"Cannot read {given[1:]}: {failure}.") from None


def _draw() -> Draw:
    """On standard error: a line that moves on a terminal, else lines now and then."""
    from headrace.cli.applications.pipeline_bar import Bar, Lines

    return Bar().draw if sys.stderr.isatty() else Lines(output.note).draw
