"""How a decided transaction ends: a marker in each of its partitions, then the record of its end.

Each step waits until the one before is committed. Partitions that this broker leads get their
markers at once, others by their leaders (`marker_delivery.py`). A partition that refuses its marker
(a full disk, too few replicas, another leader) holds up neither the others nor their readers: it
alone is asked again, after a pause that grows, until it takes the marker or is deleted. So is the
record of the end, without new markers. Nothing of it is kept over a restart or a change of leader:
the decision is in the log, and gets all its markers once more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.node.broker.coordinators.coordinator_waits import NO_DEADLINE_MS
from headrace.node.broker.coordinators.marker_delivery import Marker, MarkerDelivery
from headrace.node.broker.coordinators.partition_journal import journal_of
from headrace.node.coordination.shard import Shard
from headrace.node.coordination.transaction.machine import Producer, TransactionMachine
from headrace.node.coordination.transaction.states import TransactionState
from headrace.node.coordination.transaction.transaction import Partition, Transaction
from headrace.node.replication.replica import PartitionLeader
from headrace.node.serving.api import WaitingRequest
from headrace.node.steps import Steps, at_once
from headrace.wire.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.node.broker.broker import Broker

log = logging.getLogger(__name__)

# The partition knows a newer producer epoch or coordinator: this marker ends nothing there.
OVERTAKEN = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
# Another broker that refuses is asked sooner: mostly its metadata or ours are out of date.
FIRST_PAUSE_OF_OTHERS_MS = 100
# A disk that refuses costs the log a look at all of its last segment, so it is not asked at once.
FIRST_PAUSE_MS = 500
LONGEST_PAUSE_MS = 8_000
# A marker takes 30 to 120 us. A transaction with more partitions gets its markers between other
# requests; a client that begins the next one meanwhile gets CONCURRENT_TRANSACTIONS, as with
# Apache Kafka.
MARKERS_AT_ONCE = 100
MARKERS_PER_STEP = 20

# The leader that has a marker, the log end offset after it, and that leader's `led_since` then.
Written = list[tuple[PartitionLeader, int, int]]


@dataclass(slots=True, eq=False)
class Ending:
    """One decided transaction whose markers are being written."""

    shard: Shard
    decided: Transaction
    left: list[Partition]  # partitions that have no marker yet
    written: Written = field(default_factory=list)  # log end offsets after the markers
    sent: set[Partition] = field(default_factory=set)  # on their way to other brokers
    waits: bool = False  # for a commit, or for other brokers
    waiting: dict[Any, None] = field(default_factory=dict)  # requests that wait for this ending
    pause_ms: int = 0
    again_ms: int = 0  # monotonic; the earliest time of the next attempt

    def is_of(self, found: Transaction) -> bool:
        decided = self.decided
        return (decided.producer_id, decided.epoch) == (found.producer_id, found.epoch)


class TransactionMarkers:
    """`complete` records the end of a transaction in its shard, or raises KafkaError."""

    __slots__ = ("_broker", "_complete", "_endings", "_delivery")

    def __init__(self, broker: Broker, complete: Callable[[Shard, Transaction], None]) -> None:
        self._broker = broker
        self._complete = complete
        self._endings: dict[str, Ending] = {}  # by transactional id
        self._delivery = MarkerDelivery(broker)

    def keep_only(self, shards: Collection[Shard]) -> None:
        """Drop the endings of other shards: the brokers that lead them now finish them."""
        left = {id(shard) for shard in shards}
        for ending in list(self._endings.values()):
            if id(ending.shard) not in left:
                del self._endings[ending.decided.id]

    def tick(self) -> None:
        self._delivery.tick()

    def finish(self, shard: Shard) -> Iterator[int]:
        """Begin, or retry, to end every decided transaction of this shard. One in each step; yields
        the work that it took."""
        machine = shard.machine
        assert isinstance(machine, TransactionMachine)
        for transactional_id in list(machine.prepared):
            if shard.machine is not machine or not journal_of(shard).is_led:
                return
            if transactional_id in machine.prepared:  # else it has ended meanwhile
                found = machine.transactions[transactional_id]
                if self._begin_or_go_on(shard, found):
                    yield 1 + min(len(found.partitions), MARKERS_AT_ONCE)

    def finish_latest(self, shard: Shard) -> None:
        """Begin to end the transaction that was decided last, if it has not ended yet."""
        machine = shard.machine
        assert isinstance(machine, TransactionMachine)
        if machine.prepared:
            self._begin_or_go_on(shard, machine.transactions[next(reversed(machine.prepared))])

    def _begin_or_go_on(self, shard: Shard, found: Transaction) -> bool:
        """Returns whether there was something to do."""
        ending = self._endings.get(found.id)
        if ending is None or ending.shard is not shard or not ending.is_of(found):
            self._begin(shard, found)
        elif not ending.waits and ending.again_ms <= self._broker.now.monotonic_ms:
            self._go_on(ending)
        else:
            return False
        return True

    def _begin(self, shard: Shard, found: Transaction) -> None:
        ending = Ending(shard, found, sorted(found.partitions))
        self._endings[found.id] = ending
        leader = journal_of(shard).leader
        self._when_committed([(leader, leader.log.end_offset, leader.led_since)], ending)

    def _go_on(self, ending: Ending) -> None:
        if self._endings.get(ending.decided.id) is not ending:
            return  # a newer ending of this id has replaced it
        try:
            if ending.left:
                if ending.again_ms <= self._broker.now.monotonic_ms:
                    if len(ending.left) > MARKERS_AT_ONCE:
                        ending.waits = True
                        self._broker.chores.add(self._write_between_requests(ending))
                    else:
                        at_once(self._write_markers(ending))
                        self._when_committed(ending.written, ending)
            else:
                self._complete(ending.shard, ending.decided)
                self._endings.pop(ending.decided.id, None)
        except KafkaError as refusal:
            self._pause(ending, refusal)

    def _pause(self, ending: Ending, refusal: KafkaError, first_ms: int = FIRST_PAUSE_MS) -> None:
        now = self._broker.now
        if not ending.pause_ms:
            log.warning("%s is decided, its end is tried again: %s", ending.decided.id, refusal)
        ending.pause_ms = min(max(2 * ending.pause_ms, first_ms), LONGEST_PAUSE_MS)
        ending.again_ms = now.monotonic_ms + ending.pause_ms

    # --- markers

    def _write_between_requests(self, ending: Ending) -> Steps:
        try:
            yield from self._write_markers(ending)
        except KafkaError as refusal:
            self._pause(ending, refusal)
            ending.waits = False
            return
        ending.waits = False
        if self._endings.get(ending.decided.id) is ending and journal_of(ending.shard).is_led:
            self._when_committed(ending.written, ending)

    def _write_markers(self, ending: Ending) -> Steps:
        """Write markers to all partitions that have none; raises the last refusal when all were
        asked. Ends early if another ending has replaced this one, or another broker leads its
        shard."""
        refused: KafkaError | None = None
        places, ending.left = ending.left, []
        for number, place in enumerate(places):
            if number and number % MARKERS_PER_STEP == 0:
                yield
                gone_on = self._endings.get(ending.decided.id) is not ending
                if gone_on or not journal_of(ending.shard).is_led:
                    ending.left += places[number:]
                    return
            try:
                leader = self._leader_here(place)
                if leader is not None:
                    end_offset = self._write_marker(ending, leader)
                    ending.written.append((leader, end_offset, leader.led_since))
                else:
                    self._hand_over(ending, place)
            except KafkaError as refusal:
                ending.left.append(place)
                refused = refusal
        self._delivery.send()
        if refused is not None:
            raise refused

    def _leader_here(self, place: Partition) -> PartitionLeader | None:
        topic, index = place
        found = self._broker.topics.by_name.get(topic)
        return None if found is None else found.leader_if_here(index)

    def _hand_over(self, ending: Ending, place: Partition) -> None:
        """Send the marker to the partition's leader. A deleted topic needs no marker: it has lost
        what the transaction wrote to it."""
        topic, index = place
        found = self._broker.image.topics.get(topic)
        if found is None or index >= len(found.partitions):
            return
        leader = found.partitions[index].leader
        if leader < 0 or leader == self._broker.node_id:  # not open yet, or open no longer
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} has no leader")
        decided = ending.decided
        ending.sent.add(place)
        self._delivery.add(
            leader,
            Marker(
                place,
                decided.producer_id,
                decided.epoch,
                decided.state is TransactionState.PREPARE_COMMIT,
                ending.shard.journal.epoch,
                decided.client_version,
                lambda code: self._delivered(ending, place, code),
            ),
        )

    def _delivered(self, ending: Ending, place: Partition, code: ErrorCode) -> None:
        """Called when another broker has committed the marker, has refused it, or has not
        answered."""
        ending.sent.discard(place)
        if code in OVERTAKEN:
            log.warning("%s-%d needs no marker of %s: %s", *place, ending.decided.id, code.name)
        elif code != ErrorCode.NONE:
            ending.left.append(place)
            if self._endings.get(ending.decided.id) is ending:
                refusal = KafkaError(code, f"{place[0]}-{place[1]} is led by another broker")
                self._pause(ending, refusal, FIRST_PAUSE_OF_OTHERS_MS)
        self._broker.purgatory.wake(ending)

    def _write_marker(self, ending: Ending, leader: PartitionLeader) -> int:
        decided = ending.decided
        try:
            end_offset = leader.append_marker(
                self._broker.now.wall_ms,
                commit=decided.state is TransactionState.PREPARE_COMMIT,
                producer_id=decided.producer_id,
                producer_epoch=decided.epoch,
                coordinator_epoch=ending.shard.journal.epoch,
                bumps_epoch=decided.bumps_epoch,
            )
            leader.log.write_at_once()
        except KafkaError as refusal:
            leader.high_watermark = min(leader.high_watermark, leader.log.end_offset)
            if refusal.code not in OVERTAKEN:
                raise
            log.warning("%s-%d needs no marker of %s: %s", leader.topic, leader.index, decided.id,
                        refusal)  # fmt: skip
            return 0
        self._broker.coordinator_appended(leader)
        ended = Producer(decided.producer_id, decided.epoch)
        self._broker.transactions.guards.marker_written(
            leader.topic, leader.index, ended, bumps_epoch=decided.bumps_epoch
        )
        return end_offset

    # --- waiting

    def _take_back(self, written: Written, ending: Ending) -> None:
        """Write a marker again if the leader has changed: the new leader may lack the marker that
        the former one appended."""
        for each in list(written):
            leader, _, led_since = each
            if leader.led_since != led_since and not self._is_gone(leader):
                written.remove(each)
                ending.left.append((leader.topic, leader.index))

    def _when_committed(self, written: Written, ending: Ending) -> None:
        """Go on when the log of each partition is committed up to its marker, or deleted."""

        def attempt(expired: bool) -> bool | None:
            if not journal_of(ending.shard).is_led:
                return False  # the new leader of the shard ends the transaction
            self._take_back(written, ending)
            if not ending.sent and all(
                leader.high_watermark >= offset or self._is_gone(leader)
                for leader, offset, _ in written
            ):
                return True
            return False if expired else None

        def complete(committed: Any) -> None:
            ending.waits = False
            if committed is True:
                self._go_on(ending)

        if attempt(False):
            self._go_on(ending)
            return
        ending.waits = True
        waiting = WaitingRequest(
            attempt, deadline_ms=NO_DEADLINE_MS, hangs_on=[ending, *(waits[0] for waits in written)]
        )
        waiting.complete = complete
        self._broker.purgatory.add(waiting)

    def _is_gone(self, leader: PartitionLeader) -> bool:
        return leader.topic_id not in self._broker.topics.by_id
