"""The console beside a node: a process of its own, on a socket that the node's command has opened.

So the address is known at once, and a browser that comes early waits in the socket's queue. Its
standard input is a pipe that nobody writes to: when the node's process ends, whatever ends it, the
pipe is closed and the console ends too. Nothing of the console is loaded here.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Sequence

from headrace.cli.failure import Failure
from headrace.cli.options.listen_address import address_of
from headrace.installation import how_to_add

# Tells the child the number of its listening socket, and that it ends with its standard input.
SOCKET_VARIABLE = "HEADRACE_CONSOLE_SOCKET"
USUAL_HOST, USUAL_PORT = "localhost", 8080
PORTS_TRIED = 100
NEEDED = ("aiohttp", "jinja2")

_running: list[subprocess.Popen[bytes]] = []  # holds the pipes open as long as this process lives


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
            opened = _listening("127.0.0.1" if host == "localhost" else host, port)
            return f"http://{f'[{host}]' if ':' in host else host}:{_port(opened)}", opened
        except OSError as taken:
            if port == last or taken.errno != errno.EADDRINUSE:
                said = taken.strerror or taken
                raise Failure(f"The console cannot listen on {host}:{port}: {said}.") from None
            port += 1


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def _port(opened: socket.socket) -> int:
    return int(opened.getsockname()[1])


def start_beside(
    bootstrap: str, address: str, listening: socket.socket, words: Sequence[str] = ()
) -> None:
    """A console for the cluster at `bootstrap`, with more words of its command line; the socket is
    the child's from now on."""
    number, host_port = listening.fileno(), address.removeprefix("http://")
    command = [sys.executable, "-m", "headrace", "console", "--bootstrap", bootstrap]
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
