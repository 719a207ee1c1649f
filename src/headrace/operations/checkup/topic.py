"""Checks whether a topic can lose an acknowledged record: compares its settings with the recipe.

The recipe: three replicas, two of them in sync before a write is acknowledged, no leader that lacks
records, retention that outlasts the longest absence of a consumer, and acks=all at the producers
(which only they know). Pure: it judges a description.
"""

from __future__ import annotations

from headrace.client.admin.topics import TopicDescription
from headrace.operations.checkup.finding import Finding, good, watch, wrong

SAFE_REPLICATION = 3
SAFE_IN_SYNC = 2
DAY_MS = 86_400_000
SHORT_RETENTION_MS = 3 * DAY_MS  # a consumer that fails on a Friday is repaired on Monday


def check_topic(topic: TopicDescription, *, brokers: int, durability: str | None) -> list[Finding]:
    """`durability` is the broker's headrace.durability, None where there is no such setting."""
    minimum = int(topic.setting("min.insync.replicas", "1"))
    return [
        check_replication(topic, brokers, durability),
        check_min_in_sync(topic, minimum, durability),
        check_in_sync(topic, minimum),
        check_unclean_election(topic),
        check_retention(topic),
        watch(
            "producers",
            "their acks setting is not visible from here",
            "Write with acks=all and enable.idempotence=true (the defaults of Java's client).",
        ),
    ]


def check_replication(topic: TopicDescription, brokers: int, durability: str | None) -> Finding:
    copies = topic.replication
    if copies >= SAFE_REPLICATION:
        return good("replication", f"{copies} copies")
    found = f"{copies} of each record" if copies > 1 else "one copy of each record"
    if durability == "disk":
        return watch(
            "replication",
            f"{found}, on disk before it is acknowledged",
            "A crash loses nothing, a broken disk loses all: keep three copies if that matters.",
        )
    if brokers < SAFE_REPLICATION:
        return wrong(
            "replication",
            f"{found}; the cluster has {brokers} broker{'' if brokers == 1 else 's'}",
            "Use three brokers and --replication 3. On a single node set "
            "headrace.durability=disk, so that a power cut loses nothing acknowledged.",
        )
    return wrong("replication", found, "Raise it to 3 by a partition reassignment.")


def check_min_in_sync(topic: TopicDescription, minimum: int, durability: str | None) -> Finding:
    copies = topic.replication
    found = f"min.insync.replicas={minimum}"
    if minimum > copies:
        return wrong(
            "min ISR",
            f"{found}, but there are only {copies} copies: every acks=all write is refused",
            f"headrace topics alter {topic.name} --config min.insync.replicas={max(1, copies - 1)}",
        )
    if copies == 1:
        return watch("min ISR", f"{found}; with one copy it has no effect")
    if minimum < SAFE_IN_SYNC:
        return wrong(
            "min ISR",
            f"{found}: a write may be acknowledged by the leader alone",
            f"headrace topics alter {topic.name} --config min.insync.replicas={SAFE_IN_SYNC}",
        )
    if minimum == copies:
        return watch(
            "min ISR",
            f"{found} of {copies} copies: one broker down stops all acks=all writes",
            f"headrace topics alter {topic.name} --config min.insync.replicas={copies - 1}",
        )
    return good("min ISR", f"{found} of {copies} copies")


def check_in_sync(topic: TopicDescription, minimum: int) -> Finding:
    headless = [p.partition for p in topic.partitions if p.leader is None]
    if headless:
        return wrong(
            "in sync", f"no leader for partitions {_listed(headless)}", "Bring the brokers back."
        )
    starved = [p.partition for p in topic.partitions if len(p.isr) < minimum]
    if starved:
        return wrong(
            "in sync",
            f"partitions {_listed(starved)} refuse acks=all: fewer than {minimum} copies in sync",
            "Bring the brokers of the missing copies back.",
        )
    behind = [p.partition for p in topic.partitions if len(p.isr) < len(p.replicas)]
    if behind:
        return wrong(
            "in sync",
            f"partitions {_listed(behind)} lack copies",
            "See `headrace topics describe` for which brokers are missing.",
        )
    return good("in sync", "every copy of every partition")


def check_unclean_election(topic: TopicDescription) -> Finding:
    if topic.setting("unclean.leader.election.enable", "false") == "true":
        return wrong(
            "elections",
            "unclean.leader.election.enable=true: a copy that lacks records may become leader",
            f"headrace topics alter {topic.name} --config unclean.leader.election.enable=false",
        )
    return good("elections", "only a copy in sync may become leader")


def check_retention(topic: TopicDescription) -> Finding:
    policy = topic.setting("cleanup.policy", "delete")
    keep_ms = int(topic.setting("retention.ms", "604800000"))
    keep_bytes = int(topic.setting("retention.bytes", "-1"))
    if "delete" not in policy:
        return watch("retention", f"cleanup.policy={policy}: the newest record of each key stays")
    if keep_bytes >= 0:
        return watch(
            "retention",
            f"a partition keeps {keep_bytes:,} bytes; older records are deleted, read or not",
            f"headrace topics alter {topic.name} --unset retention.bytes",
        )
    if keep_ms < 0:
        return good("retention", "records stay for ever")
    kept = f"records go after {keep_ms / DAY_MS:.3g} days, read or not"
    if keep_ms < SHORT_RETENTION_MS:
        return watch(
            "retention",
            kept,
            f"headrace topics alter {topic.name} --config retention.ms={7 * DAY_MS}",
        )
    return good("retention", kept)


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return shown if len(numbers) <= 10 else f"{shown} and {len(numbers) - 10} more"
