"""Requests of one kind to other brokers: one in flight to each; later items wait for the next.

So a busy broker gets few large requests, and the first request is answered first. A broker that is
gone or fenced in the metadata is not waited for: the caller gets an error at once, and asks the new
leader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from headrace.environment import Address, Peers
from headrace.node.metadata.image import MetadataImage
from headrace.wire.protocol.errors import ErrorCode

Item = TypeVar("Item")
CODES: dict[int, ErrorCode] = {int(code): code for code in ErrorCode}


class AskingBroker(Protocol):
    """The parts of a broker that its requests to others need."""

    inter_broker_listener: str
    image: MetadataImage
    values: Mapping[str, Any]

    @property
    def peers(self) -> Peers | None:
        """None: there are no other nodes."""
        ...


class BrokerRequests(Generic[Item]):
    """`request` makes one request of several items. `answered` gets these and the answer, or None
    if there is none: then it is unknown whether the request was carried out."""

    __slots__ = ("_broker", "_lane", "_messages", "_request", "_answered", "_waiting", "_under_way")

    def __init__(
        self,
        broker: AskingBroker,
        lane: str,
        messages: Any,
        request: Callable[[list[Item]], Any],
        answered: Callable[[list[Item], Any], None],
    ) -> None:
        self._broker = broker
        self._lane = lane
        self._messages = messages
        self._request = request
        self._answered = answered
        self._waiting: dict[int, list[Item]] = {}  # by broker
        self._under_way: dict[int, list[Item]] = {}

    def add(self, to: int, item: Item) -> None:
        """Adds an item, which leaves with the next `send`."""
        self._waiting.setdefault(to, []).append(item)

    def send(self) -> None:
        for to in [to for to in self._waiting if to not in self._under_way]:
            items = self._waiting.pop(to)
            peers = self._broker.peers
            address = address_of(self._broker, to)
            if peers is None or address is None:
                self._answered(items, None)
                continue
            self._under_way[to] = items
            peers.ask(
                address,
                self._lane,
                self._messages,
                self._request(items),
                lambda answer, to=to, items=items: self._ended(to, items, answer),  # type: ignore[misc]
                timeout_ms=self._broker.values["request.timeout.ms"],
            )

    @property
    def is_busy(self) -> bool:
        """Whether anything waits or is under way."""
        return bool(self._waiting or self._under_way)

    def tick(self) -> None:
        """Give up on brokers that are gone."""
        for to, items in list(self._under_way.items()):
            if address_of(self._broker, to) is None:
                self._ended(to, items, None)

    def _ended(self, to: int, items: list[Item], answer: Any) -> None:
        if self._under_way.get(to) is not items:
            return  # answered already, when it was given up
        del self._under_way[to]
        self._answered(items, answer)
        self.send()


def code_of(number: int) -> ErrorCode:
    """Another broker may send codes that this one does not know."""
    return CODES.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


def address_of(broker: AskingBroker, node_id: int) -> Address | None:
    """Returns the address of its listener for brokers; None: it is fenced or gone, or has no such
    listener."""
    found = broker.image.brokers.get(node_id)
    if found is None or found.fenced:
        return None
    listener = broker.inter_broker_listener
    for endpoint in found.endpoints:
        if endpoint.name == listener:
            return Address(endpoint.host, endpoint.port, listener)
    return None
