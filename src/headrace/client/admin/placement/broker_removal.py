"""Removes a broker from its cluster: cordons it, moves its replicas, then its registration.

`replicas_without` is pure. Each replica of the leaving broker is replaced, at its position in the
list, by a broker without a replica of the partition: in a rack that has none, if there is one, and
there by the one with the fewest replicas. If too few other brokers exist, the partition has one
replica less, if that is allowed; the last replica always stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from headrace.client.admin.cluster import Cluster, QuorumReplica
from headrace.client.admin.placement.replicas import PartitionReplicas
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.records import TopicPartition
from headrace.client.wire import require_no_error
from headrace.wire.protocol import uuids
from headrace.wire.protocol.messages import remove_raft_voter, unregister_broker

CORDON = "cordoned.log.dirs"
ALL_FOLDERS = "*"


def replicas_without(
    leaving: int,
    partitions: Sequence[PartitionReplicas],
    racks: Mapping[int, str | None],
    *,
    fewer_replicas: bool = False,
) -> dict[TopicPartition, list[int]]:
    """The new replicas of the partitions that have one on `broker`. `racks` by broker that is
    alive."""
    staying = {broker: rack for broker, rack in racks.items() if broker != leaving}
    held = Counter({broker: 0 for broker in staying})
    for each in partitions:
        held.update(broker for broker in each.replicas if broker in staying)
    moves: dict[TopicPartition, list[int]] = {}
    for each in partitions:
        if leaving not in each.replicas:
            continue
        rest = [broker for broker in each.replicas if broker != leaving]
        free = [broker for broker in sorted(staying) if broker not in rest]
        if free:
            used = {racks.get(broker) for broker in rest} - {None}
            found = min(free, key=lambda broker: (staying[broker] in used, held[broker]))
            held[found] += 1
            moves[each.place] = [found if b == leaving else b for b in each.replicas]
        elif rest and fewer_replicas:
            moves[each.place] = rest
        else:
            raise ClientError(
                f"{each.place} has {len(each.replicas)} replicas, and only {len(staying)} brokers "
                f"stay: use --fewer-replicas to let it have {len(rest)}."
                if rest
                else f"{each.place} has its only replica there, and no other broker is alive."
            )
    return moves


def cordon(connection: ClientSettings, broker: int) -> str | None:
    """Let a broker that is alive take no new partitions (KIP-1066). Returns why it may still get
    some: its version does not know the setting, or the cluster refuses it."""
    cluster = Cluster(connection)
    try:
        if CORDON not in cluster.settings(broker):
            return f"its version does not know {CORDON}."
        cluster.change_settings(broker, to={CORDON: ALL_FOLDERS})
    except ClientError as refusal:
        return str(refusal)
    return None


def take_out(connection: ClientSettings, broker: int) -> None:
    """Remove the vote of a stopped broker, if it has one, and then its registration."""
    cluster = Cluster(connection)
    voters = cluster.quorum().voters
    with cluster.anybody() as wire:
        for voter in voters:
            if voter.id == broker:
                answer = wire.ask(remove_raft_voter, removal_of(voter))
                require_no_error(answer.error_code, answer.error_message)
        removed = wire.ask(
            unregister_broker, unregister_broker.UnregisterBrokerRequest(broker_id=broker)
        )
        require_no_error(removed.error_code, removed.error_message)


def removal_of(voter: QuorumReplica) -> remove_raft_voter.RemoveRaftVoterRequest:
    """The cluster id is null, for "whichever this is": an empty one is refused as another's."""
    return remove_raft_voter.RemoveRaftVoterRequest(
        cluster_id=None,
        voter_id=voter.id,
        voter_directory_id=uuids.from_text(voter.directory_id),
    )
