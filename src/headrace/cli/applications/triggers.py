"""`headrace triggers`: records call functions and HTTP endpoints, as the operator's file says."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.cli.options.log_level import LogLevel
from headrace.client.connection import ClientSettings
from headrace.installation import how_to_add
from headrace.log_lines import log_to_stderr

try:
    from headrace.app.triggers.settings import SettingsRefused, TriggerFile, read
except ModuleNotFoundError as missing:
    raise Failure(how_to_add("Triggers need", missing.name, "app")) from None

app = typer.Typer(
    help="Records call functions and HTTP endpoints.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="The triggers, in TOML.", show_default=False)
]


@app.command()
def check(file: File, as_json: Json = False) -> None:
    """Check a file of triggers and report its errors; nothing is called."""
    _tell(file, as_json=as_json)


@app.command()
@cluster_options
def run(
    at: At,
    file: File,
    log_level: LogLevel = "info",
    as_json: Json = False,
) -> None:
    """Run the triggers of a file until interrupted."""
    triggers = _tell(file, as_json=as_json)
    log_to_stderr(level=log_level, as_json=as_json, anew=True)
    sys.path.insert(0, str(Path.cwd()))  # where the operator's functions lie
    from headrace.app.triggers.running_triggers import run as run_triggers

    async def serve(cluster: ClientSettings) -> None:
        serving = asyncio.ensure_future(run_triggers(triggers, cluster))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
        try:
            await serving
        except asyncio.CancelledError:
            output.note("Stopped.")

    with at.connection() as cluster:
        asyncio.run(serve(cluster))


def _tell(file: Path, *, as_json: bool) -> TriggerFile:
    try:
        triggers = read(file)
    except SettingsRefused as refusal:
        raise Failure(f"{file} is not ready:\n" + "\n".join(refusal.problems)) from None
    rows = [
        (
            trigger.name,
            trigger.topic or f"^{trigger.pattern}$",
            trigger.filter.expression if trigger.filter is not None else "everything",
            trigger.url or trigger.function,
        )
        for trigger in triggers.triggers
    ]
    columns = ("trigger", "topic", "filter", "calls")
    if as_json:
        output.answer_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        output.table(columns, rows)
    return triggers
