"""All connections that this node has opened to others: found, opened, watched, opened again.

`ask` is what the core calls (`environment.Peers`). There is one connection per address and lane,
opened by the first question. After a failure the next question opens it again, but only after a
pause that doubles up to a second; questions during the pause wait, and fail if the connection
fails. Names are looked up on a thread of their own, because that may take seconds.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace.environment import Address
from headrace.node.metadata.config_definitions.definition import BadValue
from headrace.node.process.listeners.addresses import Listener
from headrace.node.process.loop import Loop
from headrace.node.process.peers.peer_connection import PeerConnection, Question
from headrace.node.process.peers.peer_security import PLAIN, PeerSecurity
from headrace.node.process.settings.settings import CannotStart, Settings

if TYPE_CHECKING:
    from headrace.node.process.listeners.security import Security

log = logging.getLogger(__name__)

FIRST_REST_MS = 50
LONGEST_REST_MS = 1_000
LOOK_EVERY_MS = 100
# Requests beyond the bound for one node are answered with None at once.
MOST_WAITING = 10_000
# How often an unreachable node is logged.
SAID_EVERY_MS = 30_000
# The nodes of a cluster start one after the other: until then a refused connection is no warning.
WARM_UP_MS = 5_000

Found = tuple[int, Any]  # family and address, as getaddrinfo gives them


class Peers:
    _loop: Loop
    _names: Names

    def __init__(
        self, *, client_id: str, security: Mapping[str, PeerSecurity] | None = None
    ) -> None:
        """`security` by the name of the other side's listener; those not named are plain."""
        self._client_id = client_id
        self._security = security or {}
        self._connections: dict[tuple[Address, str], PeerConnection] = {}
        self._rests: dict[tuple[Address, str], tuple[int, int]] = {}  # until when; how long it was
        self._unsent: dict[PeerConnection, None] = {}
        self._said_ms: dict[Address, int] = {}
        self._refusing: set[Address] = set()  # whose host has refused the last connection
        self._is_closed = False
        self._warm_at_ms = 0
        self._cluster_stops = False
        self.unanswered = 0

    def attend(self, loop: Loop) -> None:
        """Before anything is asked: the loop needs its node, which needs its peers."""
        self._loop = loop
        self._names = Names(loop)
        loop.send_to_peers = self._send
        loop.timers.every(LOOK_EVERY_MS, self._look, loop.now.monotonic_ms)
        self._warm_at_ms = loop.now.monotonic_ms + WARM_UP_MS

    def ask(
        self,
        to: Address,
        lane: str,
        messages: Any,
        request: Any,
        answered: Callable[[Any], None],
        *,
        timeout_ms: int,
        newest: int | None = None,
    ) -> None:
        deadline_ms = self._loop.now.monotonic_ms + timeout_ms
        question = Question(messages, request, answered, deadline_ms, newest)
        connection = self._connections.get((to, lane))
        if connection is None:
            connection = self._open(to, lane)
        elif len(connection.waiting) >= MOST_WAITING:
            self._loop.timers.once(self._loop.now.monotonic_ms, lambda: answered(None))
            return
        connection.ask(question)

    def refuses(self, to: Address) -> bool:
        """Returns whether the host refuses connections: the process that listened there has
        ended."""
        return to in self._refusing and not any(
            connection.is_open
            for (address, _), connection in self._connections.items()
            if address == to
        )

    def expect_cluster_stop(self) -> None:
        """All nodes stop, one after the other: from now on lost connections are not warnings."""
        self._cluster_stops = True

    def close(self) -> None:
        self._is_closed = True
        for connection in list(self._connections.values()):
            connection.close("this node ends")
        self._names.close()

    def _open(self, to: Address, lane: str) -> PeerConnection:
        key = to, lane

        def closed(connection: PeerConnection, why: str) -> None:
            self._closed(key, connection, why)

        connection = PeerConnection(
            self._loop,
            to,
            client_id=f"{self._client_id}-{lane}",
            security=self._security.get(to.listener, PLAIN),
            wants_to_send=self._wants_to_send,
            on_closed=closed,
        )
        self._connections[key] = connection

        def found(addresses: list[Found] | OSError) -> None:
            if connection.is_closed:
                return
            if isinstance(addresses, OSError):
                connection.close(f"its name is not known: {addresses}")
                return
            try:
                connection.begin(*addresses[0])
            except OSError as failure:
                connection.close(str(failure))

        until_ms, _ = self._rests.get(key, (0, 0))
        at_ms = max(until_ms, self._loop.now.monotonic_ms)
        self._loop.timers.once(at_ms, lambda: self._names.look_up(to, found))
        return connection

    def _closed(self, key: tuple[Address, str], connection: PeerConnection, why: str) -> None:
        if self._connections.get(key) is connection:
            del self._connections[key]
        self._unsent.pop(connection, None)
        if self._is_closed:
            return
        if connection.was_idle:
            # The other side closes connections that are idle; the next question opens another.
            self._refusing.discard(key[0])
            log.debug("the idle connection to %s:%d (%s) was closed: %s", *key[0][:2], key[1], why)
            return
        if connection.was_refused:
            self._refusing.add(key[0])
        else:
            self._refusing.discard(key[0])
        now_ms = self._loop.now.monotonic_ms
        until_ms, rest_ms = self._rests.get(key, (0, 0))
        # A connection that was good for a while starts again with the shortest wait.
        rest_ms = 0 if now_ms - until_ms > 10 * LONGEST_REST_MS else rest_ms
        rest_ms = min(max(2 * rest_ms, FIRST_REST_MS), LONGEST_REST_MS)
        self._rests[key] = now_ms + rest_ms, rest_ms
        if self._cluster_stops or (connection.was_refused and now_ms < self._warm_at_ms):
            log.debug("no connection to %s:%d (%s): %s", *key[0][:2], key[1], why)
            return
        if now_ms - self._said_ms.get(key[0], -SAID_EVERY_MS) >= SAID_EVERY_MS:
            self._said_ms[key[0]] = now_ms
            log.warning("the connection to %s:%d (%s) is gone: %s", *key[0][:2], key[1], why)

    def _wants_to_send(self, connection: PeerConnection) -> None:
        self._unsent[connection] = None

    def _send(self) -> None:
        if self._unsent:
            unsent, self._unsent = self._unsent, {}
            for connection in unsent:
                connection.send()

    def _look(self) -> None:
        now_ms = self._loop.now.monotonic_ms
        for connection in list(self._connections.values()):
            if connection.is_late(now_ms):
                self.unanswered += 1
                connection.close("it has not answered in time")


def peers_of(settings: Settings, security: Security | None) -> Peers:
    """The connections of a node by its settings: brokers and controllers are contacted as their
    listeners require; all nodes of a cluster have equal settings."""
    cluster, values = settings.cluster, settings.values
    brokers = next(
        (each for each in settings.listeners if each.name == cluster.broker_listener), None
    )
    controllers = Listener(cluster.controller_listener, "", 0, cluster.controller_protocol)
    ways: dict[str, PeerSecurity] = {}
    for listener, mechanism in (
        (brokers, values["sasl.mechanism.inter.broker.protocol"]),
        (controllers, values["sasl.mechanism.controller.protocol"]),
    ):
        if listener is None or security is None:
            continue
        try:
            ways[listener.name] = security.calls_to(listener, mechanism)
        except BadValue as fault:
            if not cluster.may_begin_alone:
                raise CannotStart(str(fault)) from None
            log.info("no other node can be reached from this one: %s", fault)
    return Peers(client_id=f"node-{settings.node_id}", security=ways)


class Names:
    """Resolves host names: numeric addresses and localhost at once, other names on another
    thread."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._threads: ThreadPoolExecutor | None = None
        self._found: deque[tuple[Callable[..., None], list[Found] | OSError]] = deque()
        self._wake_up, self._bell = socket.socketpair()
        self._wake_up.setblocking(False)
        self._bell.setblocking(False)
        loop.call_when_readable(self._wake_up, self._tell)

    def look_up(self, to: Address, found: Callable[[list[Found] | OSError], None]) -> None:
        if to.host.replace(".", "").isdecimal() or ":" in to.host or to.host == "localhost":
            found(_look_up(to))
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="headrace-names")

        def work() -> None:
            self._found.append((found, _look_up(to)))
            with suppress(OSError):
                self._bell.send(b"!")

        self._threads.submit(work)

    def _tell(self) -> None:
        with suppress(BlockingIOError):
            self._wake_up.recv(4096)
        while self._found:
            found, addresses = self._found.popleft()
            found(addresses)

    def close(self) -> None:
        self._loop.stop_calling(self._wake_up)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._wake_up.close()
        self._bell.close()


def _look_up(to: Address) -> list[Found] | OSError:
    try:
        found = socket.getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM)
    except OSError as failure:
        return failure
    return [(family, address) for family, _, _, _, address in found]
