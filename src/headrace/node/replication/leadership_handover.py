"""Leaders that are not fit to lead propose that another in-sync replica does (decision 35).

A leader is not fit if it knows of damage in its log, or if its disk refuses appends. It proposes
the ISR without itself, and the controller elects another leader. Without another in-sync replica it
continues: reads before and behind the damage are served.
"""

from __future__ import annotations

import logging
from typing import Any

from headrace.node.metadata.image import PartitionImage
from headrace.node.replication.isr_changes import IsrProposal
from headrace.node.replication.replica import Replica
from headrace.node.replication.this_broker import NOT_CHECKED
from headrace.wire.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

# If all in-sync replicas are damaged, leadership would move between them without end. So a replica
# gives it up at most once in this time, which is that of `leader.imbalance.check.interval.seconds`.
# On a full disk it may be sooner: while it is full, the replica does not join the ISR again.
GIVES_UP_AGAIN_MS = 300_000
GIVES_UP_AGAIN_WHEN_FULL_MS = 10_000


def unfit_to_lead(replica: Replica[Any]) -> str:
    """Returns why another replica should lead; an empty text if this one may."""
    damage = replica.log.segments.first_damage(replica.log.start_offset)
    if damage is not None:
        return f"the log is damaged from offset {damage} on"
    return replica.broker.refusal_of(replica.log.folder)


def give_up_if_unfit(replica: Replica[Any], now_ms: int) -> bool:
    """Call it for leaders with followers. Returns whether to call it again soon: another proposal
    was open."""
    leading = replica.leading
    why = "" if leading is None else unfit_to_lead(replica)
    if leading is None or not why:
        return False
    is_refused = replica.broker.refusal_of(replica.log.folder)
    wait_ms = GIVES_UP_AGAIN_WHEN_FULL_MS if is_refused else GIVES_UP_AGAIN_MS
    if now_ms - replica.gave_up_ms < wait_ms:
        return False
    isr = leading.isr_without_leader()
    if isr is None:
        return len(leading.isr) > 1
    replica.gave_up_ms = now_ms
    log.warning(
        "%s-%d: %s: this broker gives its leadership to another in-sync replica of %s",
        replica.topic, replica.index, why, isr,
    )  # fmt: skip
    replica.propose(leading, isr)
    return False


def code_for_reader(replica: Replica[Any], refusal: KafkaError, now_ms: int) -> ErrorCode:
    """Returns the code for a consumer whose read was refused.

    CORRUPT_MESSAGE ends most consumers. While the damaged leader hands over to a replica that has
    the records, the answer is KAFKA_STORAGE_ERROR: clients look for the new leader and read there.
    """
    leading = replica.leading
    if refusal.code != ErrorCode.CORRUPT_MESSAGE or leading is None:
        return refusal.code
    gives_up = now_ms - replica.gave_up_ms >= GIVES_UP_AGAIN_MS or leading.proposal is not None
    if gives_up and len(leading.isr) > 1 and unfit_to_lead(replica):
        return ErrorCode.KAFKA_STORAGE_ERROR
    return refusal.code


def decline(replica: Replica[Any], partition: PartitionImage) -> None:
    """`Replica.follow` could not write the epoch in which the replica was to lead."""
    me = replica.broker
    isr = [(each, NOT_CHECKED) for each in partition.isr if each != me.id]
    if partition.leader == me.id and isr and replica.leading is None:
        epochs = partition.leader_epoch, partition.partition_epoch
        me.isr_changes.propose(replica, IsrProposal(replica.topic_id, replica.index, *epochs, isr))
