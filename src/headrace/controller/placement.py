"""Where the replicas of new partitions go.

Leaders take turns over the brokers that are alive, followers come from the next brokers in the
circle; fenced brokers are used only when the others are too few, and never lead. Racks are not
looked at. Where the circle begins is derived from the topic's id, so that it needs no chance here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.metadata.image import UNASSIGNED_DIRECTORY, BrokerImage
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.messages.partition_record import PartitionRecord

Brokers = Mapping[int, BrokerImage]


def place(
    brokers: Brokers, *, partitions: int, replication_factor: int, start: int
) -> list[list[int]]:
    """The replicas of each partition, the first of which leads."""
    alive = sorted(broker.id for broker in brokers.values() if broker.alive)
    others = sorted(broker.id for broker in brokers.values() if not broker.alive)
    if replication_factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"For {replication_factor} replicas as many brokers are needed, not {len(brokers)}.",
        )
    if not alive:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "No broker is ready to take a partition."
        )
    placed = []
    for index in range(start, start + partitions):
        turn = index % len(alive)
        circle = alive[turn:] + alive[:turn] + others
        placed.append(circle[:replication_factor])
    return placed


def require_manual_assignment(
    brokers: Brokers, replicas: Sequence[int], replication_factor: int | None
) -> None:
    """What a client chose by hand: brokers that exist, each once, equally many each time."""
    fault = None
    if not replicas:
        fault = "A partition has no replica chosen."
    elif len(set(replicas)) != len(replicas):
        twice = next(broker for broker in replicas if replicas.count(broker) > 1)
        fault = f"A partition cannot have broker {twice} as a replica twice."
    elif unknown := [broker for broker in replicas if broker not in brokers]:
        fault = f"Broker {unknown[0]} is chosen as a replica, and there is no such broker."
    elif replication_factor is not None and len(replicas) != replication_factor:
        fault = (
            f"A partition with {len(replicas)} replicas among others with {replication_factor}: "
            "all partitions of a topic have equally many."
        )
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault)


def new_partition(
    brokers: Brokers, topic_id: bytes, index: int, replicas: Sequence[int]
) -> PartitionRecord:
    """The first in-sync replica leads; a partition without one cannot begin."""
    isr = [replica for replica in replicas if brokers[replica].alive]
    if not isr:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"No broker chosen for partition {index} is ready to lead it.",
        )
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=isr,
        removing_replicas=[],
        adding_replicas=[],
        leader=isr[0],
        leader_recovery_state=0,
        leader_epoch=0,
        partition_epoch=0,
        directories=[default_directory(brokers[replica]) for replica in replicas],
    )


def default_directory(broker: BrokerImage) -> bytes:
    """A broker with one directory will use it; one with several tells us its choice later."""
    usable = [d for d in broker.log_dirs if d not in (broker.cordoned_log_dirs or ())]
    return usable[0] if len(usable) == 1 else UNASSIGNED_DIRECTORY
