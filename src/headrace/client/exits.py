"""Clients that a program leaves open when it ends are closed for it.

A producer that is not closed drops its unsent records; a group notices a consumer that is not
closed only at its session timeout, and the next consumer waits for that. So both are closed at the
end of the process, a producer with some patience; a log line says what to do. A process that is
killed or ends by `os._exit` closes nothing.
"""

from __future__ import annotations

import atexit
import logging
import weakref
from typing import Protocol

from headrace.client.errors import ClientError

log = logging.getLogger("headrace.client")

# Records that a producer has not sent by then are dropped, as if the program had been killed.
PATIENCE_S = 10.0


class Left(Protocol):
    def left_open(self) -> None:
        """Close at the end of the program, when no caller is left to get errors."""


_open: weakref.WeakSet[Left] = weakref.WeakSet()


def watch(client: Left) -> None:
    """Close `client` when the program ends, unless it is closed already."""
    _open.add(client)


@atexit.register
def _close_all() -> None:
    for client in list(_open):
        try:
            client.left_open()
        except ClientError as failure:
            log.warning("a client that was left open could not be closed: %s", failure)
