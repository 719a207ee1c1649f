"""Listeners as Kafka writes them, `NAME://HOST:PORT`, and which of them this node opens.

Which of them a node of some role may have is in `cluster_settings.py`, what a listener with TLS or
SASL asks of its clients in `security.py`. Host names are not looked up; only `localhost` and
addresses of the loopback network count as this machine's own.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.node.metadata.config_definitions import BROKER_SETTINGS
from headrace.node.metadata.config_definitions.definition import BadValue
from headrace.node.metadata.config_definitions.network import SECURITY_PROTOCOLS

_LISTENER = re.compile(r"([^:/]+)://(?:\[([^]]*)\]|([^:\[\]]*)):([0-9]{1,5})")
_ADDRESS = re.compile(r"(?:\[([^]]*)\]|([^:\[\]]*)):([0-9]{1,5})")
EVERY_ADDRESS = ("", "0.0.0.0", "::")
DEFAULT_CONTROLLER_PORT = 9093


class Listener(NamedTuple):
    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def parse_address(text: str, what: str) -> tuple[str, int]:
    """HOST:PORT of an option."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or int(found[3]) > 65535:
        raise BadValue(f"{what} must be HOST:PORT, not '{text}'.")
    return found[1] or found[2] or "", int(found[3])


def parse_listeners(name: str, entries: tuple[str, ...]) -> dict[str, Listener]:
    listeners: dict[str, Listener] = {}
    for entry in entries:
        found = _LISTENER.fullmatch(entry)
        if found is None or int(found[4]) > 65535:
            raise BadValue(f"{name} must be a list of NAME://HOST:PORT, not '{entry}'.")
        # Kafka does not distinguish upper and lower case in these names.
        listener = Listener(found[1].upper(), found[2] or found[3] or "", int(found[4]))
        if listener.name in listeners:
            raise BadValue(f"{name} has two entries named {listener.name}.")
        listeners[listener.name] = listener
    return listeners


def split_listeners(
    values: Mapping[str, Any],
) -> tuple[tuple[Listener, ...], tuple[Listener, ...]]:
    """The listeners for clients, and those for controllers."""
    everyone = parse_listeners("listeners", values["listeners"])
    for_controllers = {name.upper() for name in values["controller.listener.names"]}
    protocols = protocols_by_listener(values)
    # As in Apache Kafka: with a map of one's own, controllers' listeners must be in it too.
    text = values["listener.security.protocol.map"]
    is_default = text == BROKER_SETTINGS["listener.security.protocol.map"].default
    nameless = sorted(
        everyone.keys() - protocols.keys() - (for_controllers if is_default else set())
    )
    if nameless:
        raise BadValue(
            f"The listener {nameless[0]} has no security protocol: add {nameless[0]}:PROTOCOL to "
            f"listener.security.protocol.map, with one of {', '.join(SECURITY_PROTOCOLS)}."
        )
    everyone = {
        name: found._replace(protocol=protocols.get(name, "PLAINTEXT"))
        for name, found in everyone.items()
    }
    clients = tuple(found for name, found in everyone.items() if name not in for_controllers)
    controllers = tuple(found for name, found in everyone.items() if name in for_controllers)
    return clients, controllers


def protocols_by_listener(values: Mapping[str, Any]) -> dict[str, str]:
    """By `listener.security.protocol.map`; a listener named after a protocol has it anyway."""
    protocols = {name: name for name in SECURITY_PROTOCOLS}
    text = values["listener.security.protocol.map"]
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = entry.partition(":")
        if protocol.strip().upper() not in SECURITY_PROTOCOLS:
            raise BadValue(
                f"listener.security.protocol.map must be a list of NAME:PROTOCOL with one of "
                f"{', '.join(SECURITY_PROTOCOLS)}, not '{entry}'."
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def advertised_addresses(
    listeners: tuple[Listener, ...], entries: tuple[str, ...] | None
) -> dict[str, tuple[str, int]]:
    """The advertised addresses of each listener; port 0 means the bound port."""
    advertised = parse_listeners("advertised.listeners", entries or ())
    strange = sorted(advertised.keys() - {found.name for found in listeners})
    if strange:
        raise BadValue(f"advertised.listeners names {', '.join(strange)}, listeners does not.")
    addresses: dict[str, tuple[str, int]] = {}
    for listener in listeners:
        told = advertised.get(listener.name, listener)
        host = told.host
        if host in EVERY_ADDRESS:
            # A client cannot connect to "every address" of another machine.
            host = socket.gethostname()
        addresses[listener.name] = (host, told.port)
    return addresses
