"""The HTTP API beside a node: its address, its socket, what it needs. Nothing of it is loaded."""

from __future__ import annotations

import importlib.util
import socket

from headrace.cli.failure import Failure
from headrace.cli.options.listen_address import address_of
from headrace.edge.host_names import is_loopback
from headrace.edge.web_process import WebProcess, address_at, listening_at
from headrace.installation import how_to_add

HTTP = WebProcess("http", "HEADRACE_HTTP_SOCKET")
NEEDED = ("aiohttp",)


def require_installed() -> None:
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            raise Failure(how_to_add("The HTTP API needs", name, "http"))


def open_socket(listen: str) -> tuple[str, socket.socket]:
    """The address of the HTTP API and its socket."""
    require_installed()
    host, port = address_of(listen, "--http", "localhost:8082")
    if not is_loopback(host):
        raise Failure(
            "Beside a node the HTTP API is for this machine only. For other machines run "
            f"`headrace http --listen {listen} --tls-cert FILE --login`."
        )
    try:
        opened = listening_at(host, port)
    except OSError as taken:
        said = taken.strerror or taken
        raise Failure(f"The HTTP API cannot listen on {host}:{port}: {said}.") from None
    return address_at(host, opened), opened
