"""Which replica a consumer should read from: one in its own rack, if there is one (KIP-392).

The choice equals that of Apache's RackAwareReplicaSelector. Candidates are the in-sync replicas in
the consumer's rack that have the offset. The leader is chosen if it is a candidate, else the
replica with the most records, and among equal ones the one that was caught up last. None: the
leader serves the consumer itself.
"""

from __future__ import annotations

from headrace.node.replication.partition_leader import LeaderRole


def preferred_read_replica(leading: LeaderRole, rack: str, offset: int) -> int | None:
    brokers = leading.broker.brokers
    own = brokers.get(leading.broker.id)
    if not rack or (own is not None and own.rack == rack):
        return None
    candidates = [
        (progress.end_offset, progress.caught_up_at_ms, -replica)
        for replica, progress in leading.followers.items()
        if replica in leading.isr
        and replica in brokers
        and brokers[replica].rack == rack
        and not brokers[replica].fenced
        and progress.start_offset <= offset <= progress.end_offset
    ]
    return -max(candidates)[2] if candidates else None
