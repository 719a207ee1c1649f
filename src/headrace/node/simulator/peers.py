"""`environment.Peers` on the simulated network: requests and responses travel as Kafka's bytes.

Each is encoded in the newest version of its API and decoded on the other side, so a codec that
loses a field is found here. A request to a node that is down, or whose time is up, is answered
with None. Lanes are not kept apart: the network reorders as it likes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headrace.environment import Address
from headrace.node.simulator.network import Network
from headrace.node.simulator.world import World


class Node(Protocol):
    """A simulated node, as others reach it."""

    id: int

    @property
    def is_up(self) -> bool: ...

    def serve(self, messages: Any, request: Any, answered: Callable[[Any], None]) -> None: ...


class VirtualPeers:
    def __init__(
        self,
        world: World,
        network: Network,
        node: int,
        *,
        find: Callable[[Address], Node | None],
        is_alive: Callable[[], bool],
        end_turn: Callable[[], None],
    ) -> None:
        """`is_alive`: whether the process that asks still runs; if not, the answer is dropped.
        `end_turn` is called after each answer, as a node's loop ends its turns."""
        self._world = world
        self._network = network
        self._node = node
        self._find = find
        self._is_alive = is_alive
        self._end_turn = end_turn

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
        data = _encoded(messages.ENCODE_REQUEST[version], request)
        is_waiting = True

        def finish(answer: Any) -> None:
            nonlocal is_waiting
            if is_waiting and self._is_alive():
                is_waiting = False
                answered(answer)
                self._end_turn()

        def arrives() -> None:
            target = self._find(to)
            if target is None or not target.is_up:
                self._world.at(1, lambda: finish(None))  # the connection is refused
                return
            came, _ = messages.DECODE_REQUEST[version](memoryview(data), 0)
            target.serve(messages, came, lambda response: respond(target.id, response))

        def respond(source: int, response: Any) -> None:
            answer = _encoded(messages.ENCODE_RESPONSE[version], response)

            def comes_back() -> None:
                decoded, _ = messages.DECODE_RESPONSE[version](memoryview(answer), 0)
                finish(decoded)

            self._network.carry(source, self._node, comes_back)

        target = self._find(to)
        self._network.carry(self._node, -1 if target is None else target.id, arrives)
        self._world.at(timeout_ms, lambda: finish(None))


def _encoded(encode: Callable[[Any, Callable[[Any], None]], None], message: Any) -> bytes:
    out = bytearray()
    encode(message, lambda piece: out.extend(piece))
    return bytes(out)
