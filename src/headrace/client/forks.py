"""The effect of a fork on clients: the child gets a copy without librdkafka's threads.

Such a copy accepts records that are never sent, and waits for ever when it is closed or collected.
So in the child every client made before the fork is given up: its calls raise `Misuse`, closing it
does nothing, and its part in librdkafka is never freed. The parent's clients go on as before.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

MADE_BEFORE_THE_FORK = (
    "This client was made before the process forked, and works only in the parent: make a new one "
    "in each process."
)


class Forked(Protocol):
    def forked(self) -> object:
        """Called in the child: refuse every call; returns librdkafka's object, which must be
        kept."""


_clients: weakref.WeakSet[Forked] = weakref.WeakSet()


def watch(client: Forked) -> None:
    """Call `client.forked` when the process is a forked child."""
    _clients.add(client)


def _in_child() -> None:
    import ctypes  # only here: it is slow to load

    for client in list(_clients):
        # A reference that is never released: freeing it would wait for threads that are not here.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(client.forked()))
    _clients.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_in_child)
