"""Places the replicas of new partitions: Apache's striped placement over racks and brokers.

Replicas of a partition go to different racks first, then to different brokers of a rack. Leaders
take turns over the brokers, and after as many partitions as there are brokers the order changes, so
that the load of a broker that fails is spread over all others. Fenced brokers are used only when
the others of a rack are too few, and never lead; brokers that stop are not used, nor brokers all of
whose data folders are cordoned (KIP-1066). Random numbers are derived from the topic's id, so no
source of randomness is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from headrace.node.metadata.image import UNASSIGNED_DIRECTORY, BrokerImage
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.partition_record import PartitionRecord

Brokers = Mapping[int, BrokerImage]
T = TypeVar("T")


class Dice:
    """Pseudo-random numbers that follow from a seed alone (Knuth's MMIX generator)."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & 0xFFFFFFFF_FFFFFFFF

    def below(self, limit: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self._state >> 33) % limit

    def shuffle(self, items: list[T]) -> None:
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]


class Circle:
    """Brokers in turn; each partition begins one further, and gets no broker twice."""

    __slots__ = ("brokers", "_first", "_taken", "_round")

    def __init__(self, brokers: list[int], dice: Dice) -> None:
        self.brokers = sorted(brokers)
        self._first = dice.below(len(brokers)) if brokers else 0
        self._taken = 0
        self._round = 0

    def next_in(self, round_: int) -> int | None:
        if not self.brokers:
            return None
        if self._round != round_:
            self._round = round_
            self._taken = 0
            self._first = (self._first + 1) % len(self.brokers)
        if self._taken >= len(self.brokers):
            return None
        self._taken += 1
        return self.brokers[(self._first + self._taken - 1) % len(self.brokers)]


class Racks:
    """All usable brokers by rack; brokers without one share the nameless rack."""

    def __init__(self, brokers: Brokers, dice: Dice) -> None:
        usable = [broker for broker in brokers.values() if takes_replicas(broker)]
        self.usable = len(usable)
        self.alive = sum(not broker.fenced for broker in usable)
        self._dice = dice
        self._names = sorted({broker.rack or "" for broker in usable})
        self._alive: dict[str, Circle] = {}
        self._fenced: dict[str, Circle] = {}
        for name in self._names:
            of_rack = [broker for broker in usable if (broker.rack or "") == name]
            self._fenced[name] = Circle([b.id for b in of_rack if b.fenced], dice)
            self._alive[name] = Circle([b.id for b in of_rack if not b.fenced], dice)
        self._first = dice.below(len(self._names)) if self._names else 0
        self._round = 0

    def place(self, replication_factor: int) -> list[int]:
        if self._round == self.alive and self.alive > 1:
            self._shuffle()
            self._round = 0
        first = self._first % len(self._names)
        leader, led_from = self._leader(first)
        placed = [leader]
        at, skip = first, led_from
        while len(placed) < replication_factor:
            if at == skip:
                skip = -1  # its leader is placed; the next round places a follower
            else:
                name = self._names[at]
                found = self._alive[name].next_in(self._round)
                if found is None:
                    found = self._fenced[name].next_in(self._round)
                if found is not None:
                    placed.append(found)
            at = (at + 1) % len(self._names)
        self._round += 1
        self._first = first + 1
        return placed

    def _leader(self, first: int) -> tuple[int, int]:
        """Returns the leader, and the rack to begin with; at least one broker is alive."""
        at = first
        while True:
            found = self._alive[self._names[at]].next_in(self._round)
            if found is not None:
                return found, at
            at = (at + 1) % len(self._names)

    def _shuffle(self) -> None:
        self._dice.shuffle(self._names)
        for name in self._names:
            self._dice.shuffle(self._fenced[name].brokers)
            self._dice.shuffle(self._alive[name].brokers)


def place(
    brokers: Brokers, *, partitions: int, replication_factor: int, seed: int
) -> list[list[int]]:
    """Returns the replicas of each partition, the first of which leads."""
    racks = Racks(brokers, Dice(seed))
    if replication_factor > racks.usable:
        cordoned = sorted(broker.id for broker in brokers.values() if is_cordoned(broker))
        why = f" Cordoned: {', '.join(map(str, cordoned))} (cordoned.log.dirs)." if cordoned else ""
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"For {replication_factor} replicas as many brokers are needed, not {racks.usable}."
            + why,
        )
    if not racks.alive:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "No broker is ready to take a partition."
        )
    return [racks.place(replication_factor) for _ in range(partitions)]


def takes_replicas(broker: BrokerImage) -> bool:
    return not broker.in_controlled_shutdown and not is_cordoned(broker)


def is_cordoned(broker: BrokerImage) -> bool:
    """Returns whether all data folders of the broker take no new partitions."""
    return bool(broker.log_dirs) and set(broker.log_dirs).issubset(broker.cordoned_log_dirs or ())


def require_manual_assignment(
    brokers: Brokers, replicas: Sequence[int], replication_factor: int | None
) -> None:
    """Checks an assignment that a client chose by hand: existing brokers, each once, equally many
    for each partition."""
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


def new_partitions(
    brokers: Brokers, topic_id: bytes, first: int, assignments: Sequence[Sequence[int]]
) -> list[PartitionRecord]:
    """Returns partitions from number `first` on. The first in-sync replica leads; a partition
    without one cannot begin. The result for a list of replicas is computed once for all partitions
    with the same list: a request may have thousands."""
    found: dict[tuple[int, ...], tuple[list[int], list[int], list[bytes]]] = {}
    none: list[int] = []
    records = []
    for index, replicas in enumerate(assignments, first):
        key = tuple(replicas)
        known = found.get(key)
        if known is None:
            isr = [replica for replica in replicas if brokers[replica].alive]
            if not isr:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"No broker chosen for partition {index} is ready to lead it.",
                )
            directories = [default_directory(brokers[replica]) for replica in replicas]
            known = found[key] = list(replicas), isr, directories
        same, isr, directories = known
        records.append(
            PartitionRecord(index, topic_id, same, isr, none, none, isr[0], 0, 0, 0, directories)
        )
    return records


def default_directory(broker: BrokerImage) -> bytes:
    """A broker with one directory will use it; one with several reports its choice later."""
    cordoned = broker.cordoned_log_dirs or ()
    usable = [d for d in broker.log_dirs if d not in cordoned] or broker.log_dirs
    return usable[0] if len(usable) == 1 else UNASSIGNED_DIRECTORY
