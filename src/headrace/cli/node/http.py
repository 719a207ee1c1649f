"""`headrace http`: send to and receive from any Kafka cluster over HTTP, in the foreground."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.node import http_process
from headrace.cli.options.cluster_options import At, cluster_options
from headrace.cli.options.listen_address import Names, TlsCertificate, TlsKey, address_of, teller
from headrace.cli.options.log_level import LogLevel
from headrace.log_lines import log_to_stderr
from headrace.private_files import keep_new_files_private

app = typer.Typer(add_completion=False, **output.LOOK)

USUAL = "localhost:8082"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MEBIBYTE = 1 << 20


@app.command()
@cluster_options
def http(
    at: At,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The address to listen on.")
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
    tls_cert: TlsCertificate = None,
    tls_key: TlsKey = None,
    name: Names = [],
    allow_origin: Annotated[
        list[str],
        typer.Option(metavar="URL", help="Allow pages of this origin (CORS). Repeat."),
    ] = [],
    create_topics: Annotated[
        bool,
        typer.Option(
            "--create-topics",
            help="A record for a missing topic creates it, if the cluster allows that.",
        ),
    ] = False,
    max_body: Annotated[
        int, typer.Option(metavar="MIB", min=1, help="The largest request, in MiB.")
    ] = 16,
    max_in_flight: Annotated[
        int, typer.Option(metavar="MIB", min=1, help="MiB of requests under way; above it 429.")
    ] = 256,
    max_connections: Annotated[int, typer.Option(min=1, help="Connections at once.")] = 8192,
    max_instances: Annotated[int, typer.Option(min=1, help="Consumer instances at once.")] = 200,
    max_streams: Annotated[int, typer.Option(min=1, help="Streams at once.")] = 4096,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds to finish requests, at shutdown.")
    ] = 20.0,
    log_level: LogLevel = "warning",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON when it listens.")
    ] = False,
) -> None:
    """Send and receive over HTTP: the dialects of REST proxies, streams, CloudEvents. Ctrl-C ends.

    `--log-level info` logs each request, without bodies, query strings and secrets.
    """
    http_process.require_installed()
    from headrace.services.http.limits import HttpLimits
    from headrace.services.http.main import NotGuarded, Settings, run

    if login_mechanism not in MECHANISMS:
        raise Failure(f"--login-mechanism is one of {', '.join(MECHANISMS)}.")
    if tls_key is not None and tls_cert is None:
        raise Failure("--tls-key needs --tls-cert.")
    log_to_stderr(level=log_level, as_json=as_json)
    keep_new_files_private()
    host, port = address_of(listen, "--listen", USUAL)
    settings = Settings(
        host=host,
        port=port,
        certificate=None if tls_cert is None else str(tls_cert),
        key=None if tls_key is None else str(tls_key),
        login=login,
        mechanism=login_mechanism,
        hosts=name,
        origins=allow_origin,
        limits=HttpLimits(
            body_bytes=max_body * MEBIBYTE,
            unpacked_bytes=max_body * 4 * MEBIBYTE,
            in_flight_bytes=max_in_flight * MEBIBYTE,
            connections=max_connections,
            instances=max_instances,
            streams=max_streams,
            grace_s=grace,
            create_topics=create_topics,
        ),
    )
    settings.listening = http_process.HTTP.inherited_socket()
    settings.ends_with_stdin = settings.listening is not None  # beside a node, and ends with it
    _raise_open_files_limit()

    with at.connection() as cluster:
        try:
            run(cluster, settings, teller("The HTTP API", as_json=as_json))
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
