"""Finds users who may write to a topic later, but not now.

A record in `orders.delay` becomes a record in `orders`, written by the delay service. So any user
who may write to the companion may write to the topic, with a delay, whatever the topic's entries
say. Pure: it judges a list of entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.client.admin.acls import Acl
from headrace.operations.checkup.finding import Finding, good, watch
from headrace.wire.contract.delay_topics import COMPANION_SUFFIX, target_of
from headrace.wire.protocol.acls import WILDCARD, WILDCARD_PRINCIPAL

MOST_NAMED = 5


def check_delayed_writes(topics: Iterable[str], entries: Sequence[Acl]) -> list[Finding]:
    """A finding for each pair of topics whose writers differ; a single good one if none do."""
    names = set(topics)
    pairs = [
        (target_of(name), name)
        for name in sorted(names)
        if name.endswith(COMPANION_SUFFIX) and target_of(name) in names
    ]
    found = [
        finding
        for target, companion in pairs
        if (finding := _compared(target, companion, entries)) is not None
    ]
    if pairs and not found:
        return [good("delay", "every user with delayed write access may also write directly")]
    return found


def _compared(target: str, companion: str, entries: Sequence[Acl]) -> Finding | None:
    later = writers_of(companion, entries) - writers_of(target, entries)
    if not later:
        return None
    who = ", ".join(sorted(later)[:MOST_NAMED]) + (" and others" if len(later) > MOST_NAMED else "")
    return watch(
        "delay",
        f"{who} may write to {companion}, and so with a delay to {target}, but not to {target}",
        f"Allow them to write to {target} too, or see `headrace acls list --match "
        f"--topic {companion}` for the entry to remove.",
    )


def writers_of(topic: str, entries: Sequence[Acl]) -> set[str]:
    """Principals of the entries that may write; super users have no entries."""
    concerned = [
        entry
        for entry in entries
        if entry.resource_type == "topic"
        and entry.operation in ("write", "all")
        and _covers(entry, topic)
    ]
    everybody = {entry.principal for entry in entries} | {WILDCARD_PRINCIPAL}
    return {who for who in everybody if _may(who, concerned)}


def _covers(entry: Acl, topic: str) -> bool:
    if entry.pattern == "prefixed":
        return topic.startswith(entry.resource)
    return entry.resource in (topic, WILDCARD)


def _may(who: str, concerned: list[Acl]) -> bool:
    own = [entry for entry in concerned if entry.principal in (who, WILDCARD_PRINCIPAL)]
    denied = any(entry.permission == "deny" and entry.host == WILDCARD for entry in own)
    return not denied and any(entry.permission == "allow" for entry in own)
