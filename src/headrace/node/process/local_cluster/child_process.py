"""A node as a child of this process: started with its order, watched through its socket."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from headrace.node.process.local_cluster import child
from headrace.node.process.local_cluster.child import Line, Order

PROGRAM = (sys.executable, "-m", child.MODULE)


@dataclass(slots=True)
class ChildProcess:
    popen: subprocess.Popen[bytes]
    line: Line


def start_child(order: Order, output: int, program: Sequence[str] = PROGRAM) -> ChildProcess:
    """`output` is the file that its standard output and error go to."""
    ours, theirs = socket.socketpair()
    with theirs:
        # A session of its own: Ctrl-C in a terminal is for the parent alone.
        popen = subprocess.Popen(
            [*program, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    line = Line(ours)
    line.tell(asdict(order))
    return ChildProcess(popen, line)
