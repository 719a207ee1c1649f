"""The host names under which our servers answer browsers. Pure.

A web page can make a name of its own lead to 127.0.0.1 (DNS rebinding) and then read the answers
from there; the browser still sends that name in `Host`, so a server on loopback refuses other
names.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761 reserves those names
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_loopback_name(said: str | None) -> bool:
    """Whether the `Host` of a request, at any port, is a name of this machine for itself."""
    name = (said or "").lower()
    if ":" in name.rpartition("]")[2]:
        name = name.rpartition(":")[0]
    return name in LOOPBACK_NAMES


def is_everywhere(host: str) -> bool:
    """Whether this is 0.0.0.0 or `::`, an address that a browser cannot use."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def our_names(
    host: str, port: int, more: Iterable[str] = (), *, tls: bool = False
) -> frozenset[str]:
    """The values of `Host` that a browser may send."""
    given = (*more, *(() if is_everywhere(host) else (host,)))
    names = {*LOOPBACK_NAMES, *(f"[{name}]" if ":" in name else name.lower() for name in given)}
    return frozenset(f"{name}:{port}" for name in names) | (
        frozenset(names) if port == (443 if tls else 80) else frozenset()
    )
