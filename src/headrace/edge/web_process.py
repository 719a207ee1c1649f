"""A web server beside a node: a process of its own, on a socket that the node's command has opened.

So the address is known at once, and a browser that comes early waits in the socket's queue. The
standard input of the process is a pipe to which nothing is written: when the node's process ends,
for any reason, the pipe is closed and the server ends too. Nothing of the server is loaded here.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence

from headrace.edge.host_names import in_address

_running: list[subprocess.Popen[bytes]] = []  # holds the pipes open as long as this process lives


def listening_at(host: str, port: int) -> socket.socket:
    """Opens the socket; raises OSError if the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    at = "127.0.0.1" if host == "localhost" else host
    return socket.create_server((at, port), family=family)


def address_at(host: str, listening: socket.socket) -> str:
    return f"http://{in_address(host)}:{listening.getsockname()[1]}"


class WebProcess:
    """A command of `headrace` that serves a cluster over HTTP and takes over an open socket."""

    def __init__(self, command: str, socket_variable: str) -> None:
        self.command = command
        # Holds the number of the child's listening socket. If it is set, the child ends with its
        # standard input.
        self.socket_variable = socket_variable

    def start_beside(
        self, bootstrap: str, address: str, listening: socket.socket, words: Sequence[str] = ()
    ) -> None:
        """Starts the command for the cluster at `bootstrap`, with more words of its command line;
        the socket is the child's from now on."""
        number, host_port = listening.fileno(), address.removeprefix("http://")
        command = [sys.executable, "-m", "headrace", self.command, "--bootstrap", bootstrap]
        _running.append(
            subprocess.Popen(
                [*command, "--listen", host_port, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[number],
                start_new_session=True,  # Ctrl-C in a terminal is for the parent alone
                env={**os.environ, self.socket_variable: str(number)},
            )
        )
        listening.close()

    def inherited_socket(self) -> socket.socket | None:
        """Called in the child: the socket that its parent opened, None if it was started alone."""
        number = os.environ.get(self.socket_variable)
        return None if number is None else socket.socket(fileno=int(number))
