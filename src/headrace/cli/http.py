"""`headrace http`: send to and receive from any Kafka cluster over HTTP, in the foreground."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import http_process, output
from headrace.cli.cluster_options import At, cluster_options
from headrace.cli.console_process import address_of
from headrace.cli.failure import Failure
from headrace.cli.log_level import LogLevel
from headrace.log_lines import log_to_stderr

app = typer.Typer(add_completion=False, **output.LOOK)

USUAL = "localhost:8082"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MEBIBYTE = 1 << 20


@app.command()
@cluster_options
def http(
    at: At,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where requests are taken.")
    ] = USUAL,
    login: Annotated[
        bool,
        typer.Option(
            "--login", help="Ask for a user and password, or a token; act with that user's rights."
        ),
    ] = False,
    login_mechanism: Annotated[
        str, typer.Option(metavar="NAME", help="How passwords log in at the cluster.")
    ] = "SCRAM-SHA-512",
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="Serve by TLS: a certificate chain, PEM."),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option("--tls-key", metavar="FILE", help="Its key, if it is in another file."),
    ] = None,
    name: Annotated[
        list[str],
        typer.Option("--name", metavar="HOST", help="By which callers reach it. Repeat for more."),
    ] = [],
    allow_origin: Annotated[
        list[str],
        typer.Option(metavar="URL", help="Pages of this origin may ask (CORS). Repeat."),
    ] = [],
    max_body: Annotated[int, typer.Option(metavar="MIB", min=1, help="MiB of a request.")] = 16,
    max_in_flight: Annotated[
        int, typer.Option(metavar="MIB", min=1, help="MiB of requests under way; then 429.")
    ] = 256,
    max_connections: Annotated[int, typer.Option(min=1, help="Connections at once.")] = 8192,
    max_instances: Annotated[int, typer.Option(min=1, help="Consumer instances at once.")] = 200,
    max_streams: Annotated[int, typer.Option(min=1, help="Streams at once.")] = 4096,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds for requests under way, at the end.")
    ] = 20.0,
    log_level: LogLevel = "warning",
    as_json: Annotated[
        bool, typer.Option("--json", help="Say in one line of JSON when it listens.")
    ] = False,
) -> None:
    """Send and receive over HTTP: the dialects of REST proxies, streams, CloudEvents. Ctrl-C ends.

    `--log-level info` logs each request, without bodies, query strings and secrets.
    """
    http_process.require_installed()
    from headrace.services.http.limits import Limits
    from headrace.services.http.main import NotGuarded, Settings, run

    if login_mechanism not in MECHANISMS:
        raise Failure(f"--login-mechanism is one of {', '.join(MECHANISMS)}.")
    if tls_key is not None and tls_cert is None:
        raise Failure("--tls-key needs --tls-cert.")
    log_to_stderr(level=log_level, as_json=as_json)
    host, port = address_of(listen, "--listen")
    settings = Settings(
        host=host,
        port=port,
        certificate=None if tls_cert is None else str(tls_cert),
        key=None if tls_key is None else str(tls_key),
        login=login,
        mechanism=login_mechanism,
        hosts=name,
        origins=allow_origin,
        limits=Limits(
            body_bytes=max_body * MEBIBYTE,
            unpacked_bytes=max_body * 4 * MEBIBYTE,
            in_flight_bytes=max_in_flight * MEBIBYTE,
            connections=max_connections,
            instances=max_instances,
            streams=max_streams,
            grace_s=grace,
        ),
    )
    if (number := os.environ.get(http_process.SOCKET_VARIABLE)) is not None:
        settings.listening = socket.socket(fileno=int(number))  # beside a node, and ends with it
        settings.ends_with_stdin = True
    _raise_open_files_limit()

    def tell(address: str) -> None:
        if as_json:
            output.write_json_line({"address": address})
        else:
            output.say(f"The HTTP door is at {address}")
        sys.stdout.flush()

    with at.connection() as cluster:
        try:
            run(cluster, settings, tell)
        except NotGuarded as refusal:
            raise Failure(str(refusal)) from None
        except OSError as taken:
            said = taken.strerror or taken
            raise Failure(f"Cannot listen on {host}:{port}: {said}.") from None


def _raise_open_files_limit() -> None:
    """As many as the system grants: a connection is a file."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
