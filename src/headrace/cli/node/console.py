"""`headrace console`: the web console of any Kafka cluster, in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.node import console_process
from headrace.cli.options.cluster_options import At, cluster_options
from headrace.cli.options.listen_address import Names, TlsCertificate, TlsKey, address_of, teller
from headrace.cli.options.local_folder import local_folder
from headrace.cli.options.log_level import LogLevel
from headrace.client.connection import ClientSettings
from headrace.installation import how_to_add
from headrace.log_lines import log_to_stderr
from headrace.private_files import keep_new_files_private, state_folder

app = typer.Typer(add_completion=False, **output.LOOK)

USUAL = "localhost:8080"
MOST_CLUSTERS = 20  # each is asked for samples and has threads of its own


@app.command()
@cluster_options
def console(
    at: At,
    also: Annotated[
        list[str],
        typer.Option(
            "--also",
            metavar="PROFILE",
            help="Another cluster in the same console: a profile of `headrace profile create`. "
            "Repeat for more.",
        ),
    ] = [],
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help=f"The console's address (default: {USUAL}, or the next free port).",
        ),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Show everything, change nothing.")
    ] = False,
    login: Annotated[
        bool,
        typer.Option(
            "--login",
            help="Ask people for a user of the cluster and act with their rights; the user of "
            "--client-config only samples lag.",
        ),
    ] = False,
    tls_cert: TlsCertificate = None,
    tls_key: TlsKey = None,
    name: Names = [],
    outbox: Annotated[
        list[str],
        typer.Option(
            "--outbox",
            metavar="DATABASE_URL",
            envvar="HEADRACE_DATABASE_URL",
            help="A database whose outbox is shown. Repeat for more.",
        ),
    ] = [],
    pipelines: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=local_folder,
            help="The folder of pipelines (default: ./headrace-pipelines).",
        ),
    ] = None,
    park_to: Annotated[
        str,
        typer.Option(
            "--park-to",
            metavar="URL|FOLDER",
            help="Where people park backlogs: postgresql://..., mariadb://..., "
            "sqlite:////folder/file.db, or a folder for Parquet files.",
        ),
    ] = "",
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=local_folder,
            help="Where lag over time is kept (default: ~/.local/state/headrace/console).",
            envvar="HEADRACE_CONSOLE_STATE",
        ),
    ] = None,
    log_level: LogLevel = "warning",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON when it listens.")
    ] = False,
) -> None:
    """Look at a cluster in a browser and repair what is stuck. Ctrl-C ends it."""
    if not console_process.is_installed():
        raise Failure(how_to_add("The console needs", "aiohttp and jinja2", "console"))
    from headrace.console.main import CannotServe, Settings, run

    log_to_stderr(level=log_level, as_json=as_json)
    keep_new_files_private()
    host, port = address_of(listen or USUAL, "--listen", USUAL)
    settings = Settings(
        host,
        port,
        read_only=read_only,
        login=login,
        tls=None if tls_cert is None else (tls_cert, tls_key),
        names=tuple(name),
        outboxes=tuple(outbox),
        pipelines=pipelines,
        park_to=park_to,
        or_next_port=listen is None,
        state=_usual_state() if state is None else state,
    )
    settings.listening = console_process.CONSOLE.inherited_socket()
    settings.ends_with_stdin = settings.listening is not None  # beside a node, and ends with it

    with at.connection() as cluster:
        if also:
            settings.name, settings.others = at.name(), _others(at, also)
        try:
            run(cluster, settings, teller("The console", as_json=as_json))
        except CannotServe as refusal:
            raise Failure(str(refusal)) from None
        except OSError as taken:
            raise Failure(f"Cannot listen on {host}:{port}: {taken.strerror or taken}.") from None


def _others(at: At, also: list[str]) -> tuple[tuple[str, ClientSettings], ...]:
    if len(also) >= MOST_CLUSTERS:
        raise Failure(f"A console shows at most {MOST_CLUSTERS} clusters.")
    names = [at.name(), *also]
    twice = next((name for name in also if names.count(name) > 1), None)
    if twice is not None:
        raise Failure(f"The console would show {twice} twice; name each cluster once.")
    return tuple((name, at.of_profile(name)) for name in also)


def _usual_state() -> Path | None:
    folder = state_folder()
    return None if folder is None else folder / "console"
