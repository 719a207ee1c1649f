"""Which host names the console answers to, and from which pages it accepts changes. Pure.

A foreign `Host` is refused, and a change is taken only from our own pages.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.edge.browser_guard import is_answered, is_of_foreign_site, is_page_of

FOREIGN_CHANGE = "This change was asked for by a page of another site."


def refusal_of_host(said: str | None, names: frozenset[str]) -> str | None:
    if is_answered(said, names):
        return None
    return "The console does not answer under this name; open it by the address that it printed."


def refusal_of_embedding(headers: Mapping[str, str]) -> str | None:
    """Returns why a read is refused, or None. A link on another site may lead here. A page of
    another site that loads ours in the background could not read the answer, but would make the
    console ask the cluster and would hold its live streams."""
    if not is_of_foreign_site(headers) or headers.get("Sec-Fetch-Mode") == "navigate":
        return None
    return "This was asked for by a page of another site."


def refusal_of_origin(headers: Mapping[str, str], names: frozenset[str]) -> str | None:
    """Returns why a change is refused, or None. Browsers send at least one of the two headers with
    a change; a program that sends neither still needs a token."""
    if is_of_foreign_site(headers):
        return FOREIGN_CHANGE
    origin = headers.get("Origin")
    return None if origin is None or is_page_of(origin, names) else FOREIGN_CHANGE
