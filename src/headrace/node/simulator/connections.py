"""`environment.Peers` of whole nodes: connections on the simulated network, which end.

Requests and responses travel as frames of Kafka's bytes. As with TCP, a request whose answer does
not come in time ends its connection, and a new connection needs both directions: a node that can
send but not receive cannot connect again. A request to a node whose process has ended is answered
with None at once, and so is one that a firewall refuses; a request to a machine without power is
answered with None at its timeout. A request that may have arrived before its connection ended can
be carried out after those that were sent later on another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headrace.environment import Address
from headrace.node.simulator.network import Network
from headrace.node.simulator.world import World
from headrace.wire.protocol.framing import decode_response, encode_request

NOBODY = -1  # no node's id


class Died(Exception):
    """A node has ended by a bug of its own, or would have."""


class Listener(Protocol):
    """A listener of a simulated node."""

    id: int

    @property
    def is_up(self) -> bool: ...

    @property
    def is_refusing(self) -> bool:
        """The machine runs, but no process listens there: the node is not up."""
        ...

    def serve(self, frame: bytes, answered: Callable[[bytes | None], None], source: int) -> None:
        """`source` is the node that asks."""
        ...


class Connections:
    def __init__(
        self,
        world: World,
        network: Network,
        node: int,
        *,
        find: Callable[[Address], Listener | None],
        enter: Callable[[Callable[[], None]], None],
    ) -> None:
        """`enter` runs something in the process that asks: later if it is paused, never if it is
        dead."""
        self._world = world
        self._network = network
        self._node = node
        self._find = find
        self._enter = enter
        self._ended: set[tuple[Address, str]] = set()  # their next request needs a new connection
        self._refusing: set[Address] = set()  # whose host has refused the last connection

    def refuses(self, to: Address) -> bool:
        return to in self._refusing

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
        version = messages.VERSIONS.stop - 1 if newest is None else newest
        frame = frame_of(messages, version, request)
        target = self._find(to)
        target_id = NOBODY if target is None else target.id
        network, world, connection = self._network, self._world, (to, lane)
        is_waiting, is_answered = True, False

        def finish(answer: bytes | None) -> None:
            nonlocal is_waiting, is_answered
            if not is_waiting:
                return
            is_waiting = False
            if answer is None:
                self._ended.add(connection)
                answered(None)
            else:
                is_answered = True
                self._ended.discard(connection)
                answered(decode_response(messages, version, memoryview(answer)[4:])[1])

        def end(answer: bytes | None) -> None:
            if is_waiting:
                self._enter(lambda: finish(answer))

        def arrives() -> None:
            if is_answered:
                return  # a request whose answer has come is not sent again
            door = self._find(to)
            if door is not None and door.is_up:
                self._refusing.discard(to)
                door.serve(frame, lambda answer: responds(door.id, answer), self._node)
            elif door is None or door.is_refusing:
                network.carry(target_id, self._node, refuse)

        def refuse() -> None:
            self._refusing.add(to)
            network.refused += 1
            end(None)

        def responds(source: int, answer: bytes | None) -> None:
            network.carry(source, self._node, lambda: end(answer))

        world.at(timeout_ms, lambda: end(None))
        if network.refuses(self._node, target_id):
            network.carry(target_id, self._node, refuse)
            return
        if connection in self._ended and not network.connects(self._node, target_id):
            return  # its SYN gets no answer
        network.carry(self._node, target_id, arrives)


def frame_of(messages: Any, version: int, request: Any) -> bytes:
    pieces: list[Any] = encode_request(messages, version, 7, "simulated", request)
    return b"".join(pieces)
