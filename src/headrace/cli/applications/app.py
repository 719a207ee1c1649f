"""`headrace app`: run an application's handlers, and describe them.

`run` with --workers or --reload watches over processes of its own: each runs the app as one member
of its group, one that dies is started again, and all end with the one that started them.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import ClientConfig, Json
from headrace.cli.options.listen_address import address_of, under_older_name
from headrace.cli.options.log_level import LogLevel
from headrace.client.connection import CLIENT_CONFIG_VARIABLE
from headrace.client.errors import ClientError
from headrace.log_lines import log_to_stderr

if TYPE_CHECKING:
    from headrace.app import App

app = typer.Typer(
    help="Run an application's handlers, describe them.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

Which = Annotated[
    str,
    typer.Argument(metavar="MODULE:APP", help="Such as shop.billing:app.", show_default=False),
]

# Set for the processes that `run` starts: the file descriptor whose end says that it is gone.
PARENT = "HEADRACE_APP_PARENT"


@app.command()
def run(
    which: Which,
    workers: Annotated[int, typer.Option(min=1, max=1000, help="Processes, one member each.")] = 1,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when a Python file in this folder changes.")
    ] = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve /health, /ready and /metrics here; worker N at port + N.",
        ),
    ] = None,
    window: Annotated[str | None, typer.Option("--window", hidden=True)] = None,
    shadow: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Run handlers that are replay_safe over old records, as a group of its own with "
            "results of its own; then compare.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="The start of a shadow: 2026-01-31T12:00, or 30m ago."),
    ] = None,
    from_offset: Annotated[
        int | None,
        typer.Option(
            "--from-offset", min=0, metavar="N", help="The start of a shadow: this offset."
        ),
    ] = None,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain", help="Read the wide topics of `headrace backlog widen` instead of their own."
        ),
    ] = False,
    log_level: LogLevel = "info",
    as_json: Annotated[bool, typer.Option("--json", help="Log in JSON, one line each.")] = False,
    client_config: ClientConfig = None,
) -> None:
    """Run an app until interrupted; then drain, commit and leave the group."""
    _connect_by(client_config)
    log_to_stderr(level=log_level, as_json=as_json, anew=True)
    metrics = under_older_name(metrics, window, "--window", "--metrics")
    if shadow is not None:
        if workers != 1 or reload or metrics is not None:
            raise typer.BadParameter(
                "A shadow is one process that ends on its own: leave out --workers, --reload and "
                "--metrics.",
                param_hint="--shadow",
            )
        from headrace.cli.replayed.shadow import run_shadow

        run_shadow(load(which), shadow, since, from_offset, as_json=as_json)
        return
    if since is not None or from_offset is not None:
        raise typer.BadParameter("--since and --from-offset need --shadow.")
    if (workers == 1 and not reload) or PARENT in os.environ:
        _run_here(which, metrics, drain=drain)
        return
    from headrace.cli.applications.workers import Workers

    Workers(sys.argv[1:], count=workers, parent_variable=PARENT, reload=reload).run()


def _run_here(which: str, metrics: str | None, *, drain: bool) -> None:
    loaded = load(which)
    if drain:
        _drain(loaded)
    _end_with_parent()
    opened = None
    if metrics is not None:
        from headrace.app.observation.status_pages import AppStatusPages

        host, port = address_of(metrics, "--metrics", "127.0.0.1:8000")
        port += int(os.environ.get("HEADRACE_APP_WORKER", "0"))
        try:
            opened = AppStatusPages(loaded, host=host, port=port)
        except OSError as taken:
            raise Failure(f"Cannot listen on {metrics}: {taken.strerror}.") from None
    try:
        loaded.run()
    except (ClientError, ValueError) as failure:
        raise Failure(str(failure)) from failure
    finally:
        if opened is not None:
            opened.close()


def _drain(loaded: App) -> None:
    from headrace.services.backlog.drain import drain

    try:
        drained = drain(loaded)
    except (ClientError, ValueError) as failure:
        raise Failure(str(failure)) from failure
    for topic, wide in drained.items():
        output.note(f"Reading {wide} instead of {topic}.")


@app.command()
def describe(which: Which, as_json: Json = False, client_config: ClientConfig = None) -> None:
    """Show the handlers of an app; with --json as an AsyncAPI 3 document."""
    _connect_by(client_config)
    loaded = load(which)
    if as_json:
        from headrace.app.asyncapi import document

        output.answer_json(document(loaded))
        return
    output.say(f"{which}: group {loaded.group} on {loaded.connection.bootstrap}")
    rows = [
        (
            subscription.name,
            ", ".join(subscription.topics),
            subscription.retry.attempts,
            subscription.order_by,
            subscription.concurrency,
            type(subscription.once).__name__ if subscription.once is not None else None,
            subscription.publish,
        )
        for subscription in loaded.subscriptions
    ]
    columns = ("handler", "topics", "attempts", "order by", "at once", "once", "publishes")
    output.table(columns, rows)


def _connect_by(client_config: Path | None) -> None:
    """Where an app says nothing of its cluster, it looks there; its workers inherit it."""
    if client_config is not None:
        os.environ[CLIENT_CONFIG_VARIABLE] = str(client_config.absolute())


def load(which: str) -> App:
    from headrace.app import App

    module_name, colon, name = which.partition(":")
    if not colon or not module_name or not name:
        raise Failure(f"{which} is not MODULE:APP, such as shop.billing:app.")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name is not None and module_name.startswith(missing.name):
            raise Failure(f"There is no module {missing.name} here or installed.") from None
        raise Failure(f"{module_name} needs {missing.name}, which is not installed.") from None
    except Exception as failure:  # whatever the person's own program raises
        raise Failure(f"{module_name} cannot be loaded: {_fault(failure)}") from failure
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, App):
        raise Failure(f"{module_name} has no App called {name}.")
    return found


def _fault(failure: Exception) -> str:
    """In one line, with the line of the person's program: our frames would only hide that."""
    from headrace.app.observation.failure_log import in_a_line

    if isinstance(failure, SyntaxError):
        line = f"{Path(failure.filename or '').name}:{failure.lineno}"
        return f"{type(failure).__name__}: {failure.msg} ({line})"
    return in_a_line(failure)


def _end_with_parent() -> None:
    """If the process that watches over us goes, so do we, in good order."""
    if PARENT not in os.environ:
        return
    parent = int(os.environ[PARENT])

    def watch() -> None:
        os.read(parent, 1)  # nothing is ever written: it was closed
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
