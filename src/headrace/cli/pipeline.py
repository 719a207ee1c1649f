"""`headrace pipeline`: run a pipeline on Spark as a stream or over history, and see what runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
from headrace.pipelines import span as spans
from headrace.pipelines.declaration import NAME
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.folder import Folder
from headrace.pipelines.loading import load, pipelines_in

app = typer.Typer(
    help="Data pipelines on Spark: run, list, status, stop, reset.",
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
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
HERE = Path(folders.DEFAULT)


@app.command()
def run(
    which: Annotated[
        str,
        typer.Argument(metavar="FILE.py:NAME", help="Such as shop.py:revenue.", show_default=False),
    ],
    once: Annotated[
        bool, typer.Option("--once", help="Do everything that is there now, then stop.")
    ] = False,
    history: Annotated[
        str | None,
        typer.Option(
            metavar="FROM..TO", help="Once over this time instead, in UTC; see the guide."
        ),
    ] = None,
    into: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Where --history writes instead.")
    ] = None,
    master: Annotated[
        str, typer.Option(help="Where Spark computes, such as spark://host:7077.")
    ] = "local[*]",
    spark: Annotated[
        list[str], typer.Option("--spark", metavar="KEY=VALUE", help="A setting for Spark.")
    ] = [],
    data: Data = HERE,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    x: ClientSettings = [],
    client_config: ClientConfig = None,
    timeout: Timeout = 10.0,
) -> None:
    """Run a pipeline as a stream until interrupted, or once, or over history."""
    from headrace.pipelines.running import Runner

    if history is not None and once:
        raise Failure("--history runs once anyway: leave --once out.")
    if into is not None and history is None:
        raise Failure("--into goes with --history.")
    with cluster_at(bootstrap, x, client_config, timeout) as cluster:
        try:
            loaded = load(which)
            runner = Runner(
                pipeline=loaded,
                connection=cluster,
                data=data,
                say=output.note if as_json else output.say,
                note=output.note,
                master=master,
                spark_settings=key_values(spark, option="--spark"),
            )
            if history is not None:
                runner.history(spans.parse(history), into=into)
            else:
                runner.stream(once=once)
        except PipelineError as failure:
            raise Failure(str(failure)) from failure
    if as_json:
        output.answer_json(_state(_folder(data, loaded.name)))


@app.command(name="list")
def list_(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE.py", help="Those of a file.", show_default=False)
    ] = None,
    data: Data = HERE,
    as_json: Json = False,
) -> None:
    """List the pipelines that have run here, or those of a file."""
    try:
        if file is None:
            rows = [_state(folder) for folder in folders.known(data)]
        else:
            found = pipelines_in(file).values()
            rows = [{"name": one.name, **one.describe()} for one in found]
    except PipelineError as failure:
        raise Failure(str(failure)) from failure
    if as_json:
        output.answer_json(rows)
        return
    columns = ["name", "topic", "sink", "kind", *(["process", "batch"] if file is None else [])]
    output.table(columns, [[row.get(column) for column in columns] for row in rows])


@app.command()
def status(name: Name, data: Data = HERE, as_json: Json = False) -> None:
    """Show whether a pipeline runs and what its last batch with rows did."""
    folder = _folder(data, name)
    if not folder.described():
        raise Failure(f"No pipeline {name} has run in {data}.")
    state = _state(folder)
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
        output.say(f"Told process {process} to stop {name}.")


@app.command()
def reset(
    name: Name,
    table: Annotated[bool, typer.Option("--table", help="Remove its table too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data: Data = HERE,
    as_json: Json = False,
) -> None:
    """Forget how far a pipeline came: its next run begins at the beginning."""
    what = "its checkpoint and its table" if table else "its checkpoint"
    if not yes and not typer.confirm(f"Remove {what} of {name}?"):
        raise typer.Exit(1)
    try:
        _folder(data, name).reset(table=table)
    except PipelineError as failure:
        raise Failure(str(failure)) from failure
    if as_json:
        output.answer_json({"name": name, "table_removed": table})
    else:
        output.say(f"{name} begins anew.")


def _folder(data: Path, name: str) -> Folder:
    if not NAME.fullmatch(name):
        raise Failure(f"{name!r} is no name of a pipeline.")
    return Folder(data, name)


def _state(folder: Folder) -> dict[str, str | int | None]:
    known = {part: value for part, value in folder.described().items() if part != "id"}
    last = folder.progress() or {}
    return {"name": folder.name, **known, "process": folder.runner(), "batch": None, **last}
