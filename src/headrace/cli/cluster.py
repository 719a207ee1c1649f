"""The options that every client command has, and the connection that they make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.failure import Failure
from headrace.cli.key_values import key_values
from headrace.client.connection import Connection, connection
from headrace.client.errors import ClientError

CLUSTER_PANEL = "The cluster"

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="HEADRACE_BOOTSTRAP",
        metavar="HOST:PORT",
        help="Where a broker of the cluster answers (default: localhost:9092).",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
ClientSettings = Annotated[
    list[str],
    typer.Option(
        "-X",
        metavar="KEY=VALUE",
        help="A setting for librdkafka, such as security.protocol=ssl. Repeat for more.",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
ClientConfig = Annotated[
    Path | None,
    typer.Option(
        "--client-config",
        envvar="HEADRACE_CLIENT_CONFIG",
        metavar="FILE",
        help="A file of such settings, one key=value per line; the Java names of stores and "
        "logins do too.",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        help="How long to wait for an answer.",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")]

DEFAULT_TIMEOUT_S = 10.0


@contextmanager
def cluster_at(
    bootstrap: str | None,
    settings: list[str],
    config_file: Path | None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Iterator[Connection]:
    """The connection that the options describe; what fails inside ends in one sentence."""
    try:
        yield connection(
            bootstrap=bootstrap,
            overrides=key_values(settings, option="-X"),
            config_file=config_file,
            timeout_s=timeout_s,
        )
    except ClientError as failure:
        raise Failure(str(failure)) from failure
