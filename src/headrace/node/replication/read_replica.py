"""Which replica a consumer should read from: one in its own rack, if there is one (KIP-392).

As Apache's RackAwareReplicaSelector chooses: among the in-sync replicas that have the offset, those
of the consumer's rack; the leader if it is one of them, else the one with the most records, and of
these the one that was caught up last. None: the leader serves the consumer itself.
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
