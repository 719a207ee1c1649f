"""Which host names the console answers to, and from which pages it accepts changes. Pure.

A web page can make a name of its own lead to 127.0.0.1 (DNS rebinding) and then read the answers;
the browser still sends that name in `Host`, so a foreign name is refused. A change is taken only
from our own pages (`Origin`, `Sec-Fetch-Site`).
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.edge.host_names import is_everywhere, is_loopback, our_names

__all__ = [
    "is_everywhere",
    "is_loopback",
    "our_names",
    "refusal_of_embedding",
    "refusal_of_host",
    "refusal_of_origin",
]


def refusal_of_host(said: str | None, names: frozenset[str]) -> str | None:
    if said is not None and said.lower() in names:
        return None
    return "The console does not answer under this name; open it by the address that it printed."


def refusal_of_embedding(headers: Mapping[str, str]) -> str | None:
    """Returns why a read is refused, or None. A link on another site may lead here. A page of
    another site that loads ours in the background could not read the answer, but would make the
    console ask the cluster and would hold its live streams."""
    if headers.get("Sec-Fetch-Site", "none") in ("same-origin", "none"):
        return None
    if headers.get("Sec-Fetch-Mode") == "navigate":
        return None
    return "This was asked for by a page of another site."


def refusal_of_origin(headers: Mapping[str, str], names: frozenset[str]) -> str | None:
    """Returns why a change is refused, or None. Browsers send at least one of the two headers with
    a change; a program that sends neither still needs a token."""
    site = headers.get("Sec-Fetch-Site")
    if site is not None and site not in ("same-origin", "none"):
        return "This change was asked for by a page of another site."
    origin = headers.get("Origin")
    if origin is None:
        return None
    scheme, _, name = origin.partition("://")
    if scheme in ("http", "https") and name.lower() in names:
        return None
    return "This change was asked for by a page of another site."
