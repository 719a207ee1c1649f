"""The HTTP door beside a node: a process of its own, on a socket that the node's command opened.

As the console's (`console_process.py`): the address is known at once, and a pipe as its standard
input ends it with the node. Nothing of the door is loaded here.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Sequence

from headrace.cli.failure import Failure
from headrace.cli.options.listen_address import address_of
from headrace.edge.host_names import is_loopback
from headrace.installation import how_to_add

# Tells the child the number of its listening socket, and that it ends with its standard input.
SOCKET_VARIABLE = "HEADRACE_HTTP_SOCKET"
NEEDED = ("aiohttp",)

_running: list[subprocess.Popen[bytes]] = []  # holds the pipes open as long as this process lives


def require_installed() -> None:
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            raise Failure(how_to_add("The HTTP API needs", name, "http"))


def open_socket(listen: str) -> tuple[str, socket.socket]:
    """The door's address and its socket."""
    require_installed()
    host, port = address_of(listen, "--http", "localhost:8082")
    if not is_loopback(host):
        raise Failure(
            "Beside a node the HTTP door is for this machine only. `headrace http --listen "
            f"{listen} --tls-cert FILE --login` runs one for others."
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server(
            ("127.0.0.1" if host == "localhost" else host, port), family=family
        )
    except OSError as taken:
        said = taken.strerror or taken
        raise Failure(f"The HTTP door cannot listen on {host}:{port}: {said}.") from None
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{opened.getsockname()[1]}", opened


def start_beside(
    bootstrap: str, address: str, listening: socket.socket, words: Sequence[str] = ()
) -> None:
    """A door for the cluster at `bootstrap`, with more words of its command line; the socket is the
    child's from now on."""
    number, host_port = listening.fileno(), address.removeprefix("http://")
    command = [sys.executable, "-m", "headrace", "http", "--bootstrap", bootstrap]
    _running.append(
        subprocess.Popen(
            [*command, "--listen", host_port, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[number],
            start_new_session=True,  # Ctrl-C in a terminal is for the parent alone
            env={**os.environ, SOCKET_VARIABLE: str(number)},
        )
    )
    listening.close()
