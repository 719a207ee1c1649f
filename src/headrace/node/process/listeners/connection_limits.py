"""Limits on the number of connections, and on the rate of new ones.

The number of connections is bounded for the node, for a listener and for an address. A connection
above a limit is refused. The rate of new connections is measured as Apache Kafka does
(`serving/rates.py`). Above the rate of the node or of a listener, the listener pauses for a moment,
and new connections wait in its backlog. Above the rate of an address, set by
`connection_creation_rate` of an `ip` quota, a connection is not accepted but closed a moment later,
so that a client that reconnects in a loop is slowed down (KIP-612).

Pure: the time is an argument. Only the `MOST_ADDRESSES` addresses seen last are measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address

from headrace.node.metadata.image import QuotaEntity
from headrace.node.serving.rates import Rate

CONNECTION_CREATION_RATE = "connection_creation_rate"
MOST_ADDRESSES = 10_000
UNLIMITED = 2**31 - 1


@dataclass(slots=True, frozen=True)
class ConnectionLimits:
    connections: int
    connections_per_address: int
    idle_ms: int
    of_addresses: Mapping[str, int] = field(default_factory=dict)  # where it is another number
    of_listeners: Mapping[str, int] = field(default_factory=dict)
    rate: int = UNLIMITED  # new connections per second
    rates_of_listeners: Mapping[str, int] = field(default_factory=dict)
    samples: int = 11
    sample_ms: int = 1_000


class Doorkeeper:
    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.connections = 0
        self._by_address: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._of_addresses = {one_form_of(a): most for a, most in limits.of_addresses.items()}
        self._rate = self._new_rate()
        self._rates: dict[str, Rate] = {}  # by listener
        self._address_rates: dict[str, Rate] = {}  # least recently used first
        self._address_limits: dict[str | None, float] = {}  # None: all others

    def change(self, limits: ConnectionLimits) -> None:
        """Apply new limits; open connections stay open."""
        self.limits = limits
        self._of_addresses = {one_form_of(a): most for a, most in limits.of_addresses.items()}

    def follow(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """The rates that are set for addresses."""
        found: dict[str | None, float] = {}
        for entity, limits in quotas.items():
            rate = limits.get(CONNECTION_CREATION_RATE)
            if rate is not None and len(entity) == 1 and entity[0][0] == "ip":
                address = entity[0][1]
                found[address if address is None else one_form_of(address)] = rate
        self._address_limits = found

    def refusal(self, listener: str, host: str) -> str | None:
        """Returns why one more connection from there is too many; None if it is not."""
        limits = self.limits
        if self.connections >= limits.connections:
            return f"all {limits.connections} connections are taken"
        of_listener = limits.of_listeners.get(listener, UNLIMITED)
        if self._by_listener[listener] >= of_listener:
            return f"all {of_listener} connections of listener {listener} are taken"
        most = self._of_addresses.get(one_form_of(host), limits.connections_per_address)
        if self._by_address[host] >= most:
            return f"it has {most} connections already"
        return None

    def address_wait_ms(self, host: str, now_ms: int) -> int:
        """Above 0: this address connects too often; how long to let it wait before it is closed."""
        if not self._address_limits:
            return 0
        address = one_form_of(host)
        limit = self._address_limits.get(address, self._address_limits.get(None))
        if limit is None:
            return 0
        rate = self._rate_of(address)
        rate.record(1, now_ms)
        wait_ms = min(rate.throttle_ms(limit, now_ms), self.limits.sample_ms)
        if wait_ms:
            rate.record(-1, now_ms)  # it is not let in, so it does not count
        return wait_ms

    def entered(self, listener: str, host: str, now_ms: int) -> int:
        """One more is in; how long the listener must rest before the next."""
        self.connections += 1
        self._by_address[host] += 1
        self._by_listener[listener] += 1
        limits = self.limits
        wait_ms = 0
        if limits.rate < UNLIMITED:
            self._rate.record(1, now_ms)
            wait_ms = self._rate.throttle_ms(max(limits.rate, 1), now_ms)
        of_listener = limits.rates_of_listeners.get(listener, UNLIMITED)
        if of_listener < UNLIMITED:
            rate = self._rates.get(listener)
            if rate is None:
                rate = self._rates[listener] = self._new_rate()
            rate.record(1, now_ms)
            wait_ms = max(wait_ms, rate.throttle_ms(max(of_listener, 1), now_ms))
        return min(wait_ms, limits.sample_ms)

    def left(self, listener: str, host: str) -> None:
        self.connections -= 1
        self._by_listener[listener] -= 1
        self._by_address[host] -= 1
        if not self._by_address[host]:
            del self._by_address[host]

    def _new_rate(self) -> Rate:
        return Rate(self.limits.samples, self.limits.sample_ms)

    def _rate_of(self, address: str) -> Rate:
        rates = self._address_rates
        found = rates.pop(address, None)
        if found is None:
            found = self._new_rate()
            if len(rates) >= MOST_ADDRESSES:
                del rates[next(iter(rates))]
        rates[address] = found
        return found


def one_form_of(address: str) -> str:
    """Addresses of IPv6 can be written in many ways, and an old one can be inside a new one."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(found)


def settings_of_listeners(
    layers: Iterable[Mapping[str, str]], listeners: Iterable[str], setting: str
) -> dict[str, int]:
    """The value of `listener.name.<listener>.<setting>`, from the first layer that has it."""
    found: dict[str, int] = {}
    for listener in listeners:
        name = f"listener.name.{listener.lower()}.{setting}"
        for layer in layers:
            text = layer.get(name, "").strip()
            if text.isdecimal():
                found[listener] = int(text)
                break
    return found
