"""Feature levels: which of Kafka's versioned features this node understands.

A level is finalized by a FeatureLevelRecord; a broker names the ranges that it serves when it
registers, and a cluster never finalizes a level that a member does not serve. Apache Kafka 4.3
names the same ranges (seen in its own registrations), and those of streams groups as well.
Does not decide changes: `controller/features.py` does.
"""

from __future__ import annotations

from typing import NamedTuple

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"


class LevelRange(NamedTuple):
    lowest: int
    highest: int


# metadata.version 7 is 3.3-IV3, the oldest that Kafka 4 reads; 30 is 4.3-IV0. A later release may
# add record types that we would lose, so a folder with a higher level is refused.
SUPPORTED_FEATURES: dict[str, LevelRange] = {
    "group.version": LevelRange(0, 1),
    KRAFT_VERSION: LevelRange(0, 1),
    METADATA_VERSION: LevelRange(7, 30),
    "share.version": LevelRange(0, 1),
    "streams.version": LevelRange(0, 1),
    "transaction.version": LevelRange(0, 2),
    ELIGIBLE_LEADER_REPLICAS_VERSION: LevelRange(0, 1),
}

# Level 1 announces to clients that groups of the kind are served.
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"

# Features of which only level 0 is served, and what a higher level announces: none now.
NOT_SERVED: dict[str, str] = {}

# What a node names when it registers: what it serves. As in Apache Kafka a feature of which only
# level 0 is served is left out, so a controller neither lets the node join a cluster with a higher
# level nor raises the level while the node is registered.
SERVED_FEATURES: dict[str, LevelRange] = {
    name: levels for name, levels in SUPPORTED_FEATURES.items() if name not in NOT_SERVED
}

# The features that a new cluster finalizes, in the order in which Apache's format command writes
# them. A level of 0 has no record.
NEW_CLUSTER_LEVELS: tuple[tuple[str, int], ...] = (
    (METADATA_VERSION, 30),
    (ELIGIBLE_LEADER_REPLICAS_VERSION, 1),
    ("group.version", 1),
    (SHARE_VERSION, 1),
    (STREAMS_VERSION, 1),
    ("transaction.version", 2),
)
