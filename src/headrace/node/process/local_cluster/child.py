"""One node of a cluster on this machine, as a child of `headrace start --brokers`.

    python -m headrace.node.process.local_cluster.child FD

FD is a socket to the parent, with one JSON object per line. The parent first sends the settings;
the child answers `ready` with its address and broker epoch, or `refused` with the reason. `died`
names another node of the parent that has ended, for the controller. `raise_min_in_sync` comes after
the cluster has grown, and is answered when it is done. `cluster_stops` comes before the first node
is asked to stop. `stop` and SIGTERM together ask the last node to stop without handing over. When
the socket is closed the parent has ended, and the node stops as for SIGTERM. The settings come by
the socket, not as arguments, so that no password is visible in a list of processes.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.node.process.local_cluster.process_title import end_with_parent, set_title
from headrace.node.process.local_cluster.supervision import CANNOT_START, UNUSABLE_DATA

if TYPE_CHECKING:
    from headrace.node.process.server import Server
    from headrace.node.process.settings.settings import Settings

log = logging.getLogger(__name__)

MODULE = "headrace.node.process.local_cluster.child"
FAILED = 1
LOOK_AGAIN_MS = 50


@dataclass(slots=True)
class Order:
    """The orders of the parent to its child."""

    node: int
    data: str  # the metadata folder; `log.dirs` of the overrides may name more
    overrides: dict[str, str] = field(repr=False)
    config_file: str | None = None
    metrics: str | None = None
    insecure: bool = False
    secure: str | None = None  # a folder of `headrace security init`
    # How the delay service beside the node logs in, where nodes are secured.
    delay_client: dict[str, str] | None = field(default=None, repr=False)

    def settings(self) -> Settings:
        """Raises CannotStart."""
        from headrace.node.process.settings.settings import load_settings

        found = load_settings(
            config_file=self.config_file,
            overrides=self.overrides,
            data=None if "log.dirs" in self.overrides else self.data,
            metrics=self.metrics,
            insecure=self.insecure,
            secure=None if self.secure is None else Path(self.secure),
        )
        found.delay_client = self.delay_client
        return found


class Line:
    """The socket between parent and child, as JSON objects."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._rest = b""

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send a message. If the other side has ended, the error is ignored: reading shows the
        end."""
        try:
            self.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return

    def hear(self) -> list[dict[str, Any]] | None:
        """Returns the received messages; None if the other side has ended. Waits if the socket is
        blocking."""
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]


def main() -> None:
    end_with_parent()
    line = Line(socket.socket(fileno=int(sys.argv[1])))
    order: Order | None = None
    while order is None:
        heard = line.hear()
        if heard is None:
            return
        order = Order(**heard[0]) if heard else None
    set_title(f"headrace broker {order.node}", f"headrace {order.node}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which asks in order
    sys.exit(run(order, line))


def run(order: Order, line: Line) -> int:
    from headrace.node.process import main as server_main
    from headrace.node.process.local_cluster.death_notice import DeathNotice
    from headrace.node.process.local_cluster.minimum_in_sync import MinimumInSync
    from headrace.node.process.server import DiskFailed
    from headrace.node.process.settings.settings import CannotStart, UnusableData

    def ready(server: Server) -> None:
        def heard() -> None:
            messages = line.hear()
            if messages is None:
                server.loop.stop_calling(line.socket)
                server.stop()
            for message in messages or ():
                if "stop" in message:  # and again by SIGTERM: at once
                    server.stop()
                if "cluster_stops" in message and server.peers is not None:
                    server.peers.expect_cluster_stop()
                if "raise_min_in_sync" in message:
                    former = message["raise_min_in_sync"]["from"]
                    MinimumInSync(server, former, raised).look()
                if "died" in message:
                    died = message["died"]
                    DeathNotice(server, died["node"], died["broker_epoch"]).send()

        def raised() -> None:
            line.tell({"min_in_sync": "raised"})

        def say_ready(*, joins: bool = False) -> None:
            """When the node serves clients, and votes if it is to be a controller."""
            if server.node.member.is_to_join and not server.is_stopping:
                at_ms = server.now.monotonic_ms + LOOK_AGAIN_MS
                server.loop.timers.once(at_ms, partial(say_ready, joins=True))
                return
            if joins:
                log.info("this node votes in the quorum now")
            told = {
                "address": server.address,
                "pid": os.getpid(),
                "broker_epoch": epoch_of(server),
            }
            line.tell({"ready": told})

        line.socket.setblocking(False)
        server.loop.call_when_readable(line.socket, heard)
        say_ready()

    try:
        server_main.run(order.settings(), ready)
    except (CannotStart, DiskFailed) as refusal:
        line.tell({"refused": str(refusal)})
        if isinstance(refusal, UnusableData):
            return UNUSABLE_DATA
        return CANNOT_START if isinstance(refusal, CannotStart) else FAILED
    return 0


def epoch_of(server: Server) -> int:
    """Returns the broker epoch; -1 for a node that is alone, whose death concerns no other node."""
    links = server.node.links
    membership = None if links is None else links.membership
    return -1 if membership is None else membership.lifecycle.epoch


if __name__ == "__main__":
    main()
