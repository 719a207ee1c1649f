"""`headrace lake`: topics as Delta or Iceberg tables, their compaction and their past."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import output
from headrace.cli.cluster import (
    Bootstrap,
    ClientConfig,
    ClientSettings,
    Json,
    Timeout,
    cluster_at,
)
from headrace.cli.failure import Failure
from headrace.cli.key_values import key_values
from headrace.pipelines import folder as folders
from headrace.pipelines.failure import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(
    help="Topics as lake tables: fill, compact, versions, show.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

Data = Annotated[
    Path,
    typer.Option(
        "--data",
        metavar="DIR",
        envvar="HEADRACE_PIPELINES",
        help="Where checkpoints and tables lie.",
    ),
]
HERE = Path(folders.DEFAULT)
TableName = Annotated[str, typer.Argument(metavar="TABLE", show_default=False)]
Master = Annotated[str, typer.Option(help="Where Spark computes, such as spark://host:7077.")]
Settings = Annotated[
    list[str], typer.Option("--spark", metavar="KEY=VALUE", help="A setting for Spark.")
]


@app.command()
def fill(
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
        bool, typer.Option("--once", help="Do everything that is there now, then stop.")
    ] = False,
    per_batch: Annotated[int | None, typer.Option(min=1, help="Records in one batch.")] = None,
    master: Master = "local[*]",
    spark: Settings = [],
    data: Data = HERE,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    x: ClientSettings = [],
    client_config: ClientConfig = None,
    timeout: Timeout = 10.0,
) -> None:
    """Write a topic into a table until interrupted; its columns grow with the values."""
    from headrace.pipelines.shipped.topic_to_lake import Lake, LakeRunner

    with cluster_at(bootstrap, x, client_config, timeout) as cluster:
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
            runner = LakeRunner(
                lake=lake,
                pipeline=lake.pipeline(),
                connection=cluster,
                data=data,
                say=output.say,
                note=output.note,
                master=master,
                spark_settings=key_values(spark, option="--spark"),
            )
            runner.stream(once=once)
        except PipelineError as failure:
            raise Failure(str(failure)) from failure
    if as_json:
        folder = folders.Folder(data, runner.pipeline.name)
        output.answer_json({"name": folder.name, **(folder.progress() or {})})


@app.command()
def compact(
    table: TableName,
    forget: Annotated[
        int | None,
        typer.Option(
            metavar="HOURS", min=168, help="Remove what only versions older than this need."
        ),
    ] = None,
    master: Master = "local[*]",
    spark: Settings = [],
    data: Data = HERE,
    as_json: Json = False,
) -> None:
    """Write few large files in place of many small ones."""
    from headrace.pipelines.shipped import lake_tables

    place = folders.table_place(data, table)
    try:
        lake_tables.format_of(place)
        session = _spark(master, spark)
        with lake_tables.explained():
            done = lake_tables.compact(session, place)
            if forget is not None:
                lake_tables.forget(session, place, hours=forget)
    except PipelineError as failure:
        raise Failure(str(failure)) from failure
    if as_json:
        output.answer_json(done)
    else:
        output.say(f"{table}: {done.files_before:,} files before, {done.files_after:,} now")


@app.command()
def versions(
    table: TableName,
    master: Master = "local[*]",
    spark: Settings = [],
    data: Data = HERE,
    as_json: Json = False,
) -> None:
    """List the states of a table that can be read."""
    from headrace.pipelines.shipped import lake_tables

    place = folders.table_place(data, table)
    try:
        lake_tables.format_of(place)
        session = _spark(master, spark)
        with lake_tables.explained():
            found = lake_tables.versions(session, place)
    except PipelineError as failure:
        raise Failure(str(failure)) from failure
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
        str | None, typer.Option(metavar="TIME", help="As it was at this moment.")
    ] = None,
    order: Annotated[str | None, typer.Option(metavar="COLUMN,...", help="Sort by them.")] = None,
    rows: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 20,
    master: Master = "local[*]",
    spark: Settings = [],
    data: Data = HERE,
    as_json: Json = False,
) -> None:
    """Show rows of a table, now or as it was."""
    from headrace.pipelines.shipped import lake_tables

    if version is not None and at is not None:
        raise Failure("Give --version or --at, not both.")
    place = folders.table_place(data, table)
    try:
        lake_tables.format_of(place)
        session = _spark(master, spark)
        with lake_tables.explained():
            found = lake_tables.rows_of(session, place, version=version, at=at)
            if order is not None:
                found = found.orderBy(*order.split(","))
            names = found.columns
            texts = [[_shown(cell) for cell in row] for row in found.limit(rows).collect()]
    except PipelineError as failure:
        raise Failure(str(failure)) from failure
    if as_json:
        output.answer_json([dict(zip(names, row, strict=True)) for row in texts])
    else:
        output.table(names, texts)


def _shown(cell: Any) -> str | int | None:
    if cell is None or (isinstance(cell, int) and not isinstance(cell, bool)):
        return cell
    if isinstance(cell, bytes | bytearray):
        return bytes(cell).decode("utf-8", "backslashreplace")
    return str(cell)


def _spark(master: str, given: list[str]) -> SparkSession:
    from headrace.pipelines import session

    return session.start("lake", master=master, given=key_values(given, option="--spark"))


def _text(given: str | None) -> str | None:
    """As it is, or what the file holds."""
    if given is None or not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise Failure(f"Cannot read {given[1:]}: {failure}.") from None
