"""The console beside a node: its address, its socket, what it needs. Nothing of it is loaded."""

from __future__ import annotations

import errno
import importlib.util
import socket

from headrace.cli.failure import Failure
from headrace.cli.options.listen_address import address_of
from headrace.edge.web_process import WebProcess, address_at, listening_at
from headrace.installation import how_to_add

CONSOLE = WebProcess("console", "HEADRACE_CONSOLE_SOCKET")
USUAL_HOST, USUAL_PORT = "localhost", 8080
PORTS_TRIED = 100
NEEDED = ("aiohttp", "jinja2")


def is_installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in NEEDED)


def open_socket(listen: str | None) -> tuple[str, socket.socket]:
    """The console's address and its socket: as asked for, or the first free port from 8080 on."""
    if not is_installed():
        raise Failure(how_to_add("The console needs", "aiohttp and jinja2", "console"))
    usual = f"{USUAL_HOST}:{USUAL_PORT}"
    host, port = address_of(usual if listen is None else listen, "--console", usual)
    last = port + PORTS_TRIED if listen is None else port
    while True:
        try:
            opened = listening_at(host, port)
            return address_at(host, opened), opened
        except OSError as taken:
            if port == last or taken.errno != errno.EADDRINUSE:
                said = taken.strerror or taken
                raise Failure(f"The console cannot listen on {host}:{port}: {said}.") from None
            port += 1
