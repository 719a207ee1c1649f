"""The host names under which our servers answer browsers (see `browser_guard.py`). Pure."""

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


def is_everywhere(host: str) -> bool:
    """Whether this is 0.0.0.0 or `::`, an address that a browser cannot use."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def in_address(host: str) -> str:
    """Returns the host as an address has it: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def our_names(
    host: str, port: int, more: Iterable[str] = (), *, tls: bool = False
) -> frozenset[str]:
    """The values of `Host` that a browser may send."""
    given = (*more, *(() if is_everywhere(host) else (host,)))
    names = {*LOOPBACK_NAMES, *(in_address(name.lower()) for name in given)}
    return frozenset(f"{name}:{port}" for name in names) | (
        frozenset(names) if port == (443 if tls else 80) else frozenset()
    )
