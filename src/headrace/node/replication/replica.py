"""One partition's replica on this broker, as leader or as follower: its writes and its reads.

The metadata decides its role (`follow`); `LeaderRole` and `FollowerRole` hold the state of one role
only. Consumers read up to the high watermark, and acks=all waits for it. If this is the only
replica and durability is `page-cache`, the high watermark is always the log end offset
(`commits_at_once`: the fast path of every Produce in a cluster of one). Otherwise it follows the
in-sync replicas, and with durability `disk` also this replica's own flushes, so that no consumer
reads a record that a power cut could remove. Consumers of committed records read up to the last
stable offset: the first offset of the earliest transaction that is still open, or whose marker the
high watermark has not passed.

A replica that does not lead has a writer that refuses, so no path of a Produce can forget the
check. A request that waits for an append keeps `led_since` with its offset: a leader that was
replaced and elected again meanwhile may have another record at that offset (`outcome_of`). The log
is used through the Protocol `Log`, which `PartitionLog` fulfils. Fetching from a leader is not done
here (`replica_fetcher.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

from headrace.environment import FileSlice
from headrace.node.metadata.image import NO_LEADER, PartitionImage
from headrace.node.replication.follower_progress import LONG_AGO_MS
from headrace.node.replication.isr_changes import IsrProposal
from headrace.node.replication.partition_follower import FollowerRole, Position, Replicated
from headrace.node.replication.partition_leader import LeaderRole
from headrace.node.replication.replica_log import NO_WRITER, Log, Writer
from headrace.node.replication.this_broker import ThisBroker
from headrace.node.storage.durability.flush import Flush
from headrace.node.storage.partition_log import PartitionLog
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.alter_partition import ResponsePartitionData

log = logging.getLogger(__name__)

NOBODY = ThisBroker(-1)  # of a replica that was given no broker: it is alone
NOT_LEADING = -1
NO_ONE: frozenset[int] = frozenset()


L = TypeVar("L", bound=Log)


class Replica(Generic[L]):
    """The replica of a partition whose log is an `L`; made as the only one, which leads."""

    __slots__ = (
        "topic",
        "topic_id",
        "index",
        "log",
        "writer",
        "epoch",
        "partition_epoch",
        "_followed",
        "high_watermark",
        "commits_at_once",
        "in_sync",
        "min_in_sync",
        "waiting",
        "sessions",
        "flush_asked",
        "on_progress",
        "bytes_in",
        "broker",
        "leading",
        "following",
        "led_since",
        "removed_files",
        "gave_up_ms",
        "_durable",
        "_minimum",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: L,
        epoch: int,
        *,
        commits_at_once: bool,
        on_progress: Callable[[Replica[L]], None],
        broker: ThisBroker = NOBODY,
        high_watermark: int | None = None,
    ) -> None:
        """`high_watermark` is the checkpointed one; None: all of the log is known to be committed,
        as it is if there is no other replica."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.writer: Writer = log.writer
        self.epoch = epoch
        self.partition_epoch = -1  # of the metadata that it follows
        self._followed: PartitionImage | None = None
        self._durable = not commits_at_once  # only flushed records count as replicated here
        self.commits_at_once = commits_at_once
        # Invariant: every record below the high watermark is on all in-sync replicas, so consumers
        # may read it. While this replica leads, it decreases in one case only: the disk refused
        # batches that were counted in this turn and not acknowledged to any client
        # (`broker/replicas/lost_replicas.py`).
        self.high_watermark: int = log.end_offset
        if high_watermark is not None:
            self.high_watermark = max(min(high_watermark, log.end_offset), log.start_offset)
        self.in_sync = 1  # the size of the ISR, this replica included
        self.min_in_sync = 1  # with fewer in sync, acks=all is refused
        self._minimum = (
            1  # the same as the topic says it, which may be more than there are replicas
        )
        # Plain dictionaries instead of sets: requests are woken in the order of their arrival.
        self.waiting: dict[Any, None] = {}  # requests that wait for this partition
        self.sessions: dict[Any, Any] = {}  # fetch session -> its entry for this partition
        self.flush_asked = False
        self.on_progress = on_progress  # the high watermark has moved other than by an append
        self.bytes_in = 0
        self.broker = broker
        self.leading: LeaderRole | None = None
        self.following: FollowerRole | None = None
        self.led_since = epoch  # the epoch in which it became leader; NOT_LEADING: it does not lead
        self.removed_files: list[str] = []  # by truncation; the broker deletes them later
        self.gave_up_ms = LONG_AGO_MS  # when it proposed last that another replica leads

    # Roles

    def follow(self, partition: PartitionImage, now_ms: int) -> None:
        """Take over the partition's new metadata. OSError: the role is unchanged, because a new
        leader first writes its epoch to the disk."""
        if partition.partition_epoch < self.partition_epoch or partition == self._followed:
            # The answer to an AlterPartition came before the metadata, or another partition of the
            # topic has changed. Neither ends a proposal of this partition.
            return
        leading = self.leading
        if leading is not None and leading.knows(partition):
            return  # known from the answer to an AlterPartition; a later proposal is still open
        if partition.leader == self.broker.id:
            if len(partition.replicas) == 1:
                self._lead_alone(partition)
            else:
                self._lead(partition, now_ms)
        else:
            self._follow(partition)
        self._followed = partition
        self.partition_epoch = partition.partition_epoch

    def _lead_alone(self, partition: PartitionImage) -> None:
        """Lead without followers, so there is no progress to track: for a node that is alone."""
        self.begin_epoch(partition.leader_epoch)
        if self.led_since == NOT_LEADING:
            self.led_since = partition.leader_epoch
        self.leading = self.following = None
        self.writer = self.log.writer
        self.commits_at_once = not self._durable
        self.in_sync = 1
        self.require_in_sync(self._minimum)
        self.reach(self.vouched_end())

    def _lead(self, partition: PartitionImage, now_ms: int) -> None:
        self.begin_epoch(partition.leader_epoch)
        end_offset = self.log.end_offset
        self.broker.isr_changes.withdraw(self.topic_id, self.index)
        if self.leading is None:
            self.following = None
            self.writer = self.log.writer
            if self.led_since == NOT_LEADING:
                self.led_since = partition.leader_epoch
            self.leading = LeaderRole(self.broker, partition, end_offset, now_ms)
        else:
            self.leading.follow(partition, end_offset, now_ms)
        self.commits_at_once = False
        self.require_in_sync(self._minimum)
        self._are_in_sync(partition.isr)

    def _follow(self, partition: PartitionImage) -> None:
        before = self.following
        if before is not None and before.epoch == partition.leader_epoch:
            before.counts_on_us(partition)
            return
        self.broker.isr_changes.withdraw(self.topic_id, self.index)
        self.leading = None
        self.led_since = NOT_LEADING
        self.writer = NO_WRITER
        self.commits_at_once = False
        self.epoch = partition.leader_epoch
        self.following = FollowerRole(self, partition)
        self.on_progress(self)  # waiting requests are answered that this is not the leader

    def adopt(self, log: L) -> None:
        """The log has moved to another data folder: `log` has the same records."""
        self.log = log
        if self.led_since != NOT_LEADING:
            self.writer = log.writer

    def go_offline(self) -> None:
        """Its data folder has failed: the replica neither leads nor follows, and is not used
        again."""
        self.broker.isr_changes.withdraw(self.topic_id, self.index)
        self.leading = self.following = None
        self.led_since = NOT_LEADING
        self.writer = NO_WRITER
        self.commits_at_once = False
        self.on_progress(self)  # waiting requests are answered that this is not the leader

    def require_leading(self) -> None:
        if self.led_since == NOT_LEADING:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    @property
    def leads(self) -> bool:
        return self.led_since != NOT_LEADING

    @property
    def is_durable(self) -> bool:
        """Returns whether only flushed records count as replicated here."""
        return self._durable

    def begin_epoch(self, epoch: int) -> None:
        """Note in the log where the epoch begins, even if nothing is ever written in it: a follower
        whose last batch has a later epoch than ours must learn that its log diverges from this
        one."""
        if self.log.epochs.latest != epoch:
            self.log.epochs.assign(epoch, self.log.end_offset)
        self.epoch = epoch

    # Writing, as leader

    def append(self, records: memoryview, wall_ms: int, *, acks_all: bool) -> tuple[int, int]:
        """Returns the base offset and the append time (-1 with CreateTime)."""
        if acks_all and self.in_sync < self.min_in_sync:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        log = self.log
        try:
            appended = self.writer.append(records, leader_epoch=self.epoch, wall_ms=wall_ms)
        except KafkaError as refusal:
            if refusal.code == ErrorCode.KAFKA_STORAGE_ERROR:
                log.expect_again(records)
            raise
        self.bytes_in += len(records)
        # The only replica with durability `page-cache`: every appended record is committed, so the
        # high watermark is the log end offset and `advance` is not needed. The caller wakes those
        # that wait (`Broker.partition_changed`). For all others the high watermark moves by
        # `advance`.
        if self.commits_at_once:
            self.high_watermark = log.end_offset
        return appended

    def append_marker(
        self,
        wall_ms: int,
        *,
        commit: bool,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        bumps_epoch: bool,
    ) -> int:
        """End a transaction in this partition; returns the offset that the high watermark must
        reach."""
        if self.in_sync < self.min_in_sync:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        end_offset = self.writer.append_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            leader_epoch=self.epoch,
            wall_ms=wall_ms,
            bumps_epoch=bumps_epoch,
        )
        if self.commits_at_once:
            self.high_watermark = end_offset
        self.log.producers.forget_decided(self.high_watermark)
        return end_offset

    def outcome_of(self, end_offset: int, led_since: int) -> ErrorCode | None:
        """The outcome of an append that ended at `end_offset`, made while this replica led since
        epoch `led_since`; None: the producer still has to wait."""
        if self.led_since != led_since:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        # The log is shorter than it was at the append: the disk refused the batch after it was
        # counted (`PartitionLog.lost_pending`). The producer's retry is not a duplicate then.
        if self.log.end_offset < end_offset:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.high_watermark < end_offset:
            return None
        # As in Apache Kafka: the records are committed, but fewer replicas than the minimum have
        # them now, so the producer learns that the guarantee it asked for does not hold.
        in_sync = self.in_sync if self.leading is None else len(self.leading.maximal_isr)
        if in_sync < self.min_in_sync:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    # Reading

    def read(
        self, offset: int, max_bytes: int, *, committed: bool, at_least_one: bool
    ) -> FileSlice | None:
        up_to = self.last_stable_offset() if committed else self.high_watermark
        # A consumer that read from the former leader may be ahead of the high watermark that this
        # new leader knows. The offset is valid, so the answer is "nothing yet" and not
        # OFFSET_OUT_OF_RANGE, after which the consumer would reset its position.
        if offset > self.high_watermark and offset <= self.log.end_offset:
            return None  # not visible yet; a diverging log was already refused by its epoch
        return self.log.read(offset, max_bytes, up_to=up_to, at_least_one=at_least_one)

    def aborted_transactions(self, offset: int, records: FileSlice) -> list[tuple[int, int]]:
        """Producer id and first offset of the aborted transactions in these records."""
        return self.log.aborted_transactions(offset, records, self.last_stable_offset())

    def last_stable_offset(self) -> int:
        producers = self.log.producers
        # Without transactions the last stable offset is the high watermark: both dictionaries are
        # empty and the search would return the same.
        if producers.open_transactions or producers.ended_transactions:
            return max(producers.last_stable_offset(self.high_watermark), self.log.start_offset)
        return self.high_watermark

    def latest_offset(self, *, committed: bool) -> int:
        """The latest offset for ListOffsets. A new leader does not know yet how much is committed:
        until then its answer could be lower than that of the former leader."""
        if self.leading is not None and self.leading.epoch_start_offset > self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return self.last_stable_offset() if committed else self.high_watermark

    def require_epoch(self, epoch: int) -> None:
        """A client that names an epoch must name ours (KIP-320)."""
        if epoch == -1 or epoch == self.epoch:
            return
        if epoch < self.epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    # Leading: followers

    def replicate(
        self,
        follower: int,
        broker_epoch: int,
        position: Position,
        max_bytes: int,
        *,
        at_least_one: bool,
        now_ms: int,
    ) -> Replicated:
        """Answer a follower's fetch, and note the follower's progress."""
        self.require_epoch(position.leader_epoch)
        self.require_leading()
        leading = self.leading
        if leading is None:  # alone
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        leading.require_follower(follower, names_epoch=position.leader_epoch >= 0)
        end_offset = self.log.end_offset  # before the read, so that no append counts as lag
        if position.last_epoch >= 0:
            diverging = self.find_divergence(position.last_epoch, position.offset)
            if diverging is not None:
                return Replicated(diverging=diverging)
        records = self.log.read(
            position.offset, max_bytes, up_to=end_offset, at_least_one=at_least_one
        )
        known_start = leading.followers[follower].start_offset
        leading.fetched(
            follower,
            position.offset,
            start_offset=position.start_offset,
            broker_epoch=broker_epoch,
            end_offset=end_offset,
            now_ms=now_ms,
        )
        # The order matters: first note the follower's progress, then the ISR, then the high
        # watermark. A follower that joins must hold back the high watermark from the moment of the
        # proposal.
        changed = leading.grow(follower, self.high_watermark) or leading.shrink_by(
            follower, self.high_watermark
        )
        if changed is not None:
            self.propose(leading, changed)
        self.advance()
        if position.start_offset != known_start:
            self.on_progress(self)  # a DeleteRecords may wait for all replicas
        if position.offset < self.high_watermark and follower in leading.maximal_isr:
            # The follower asks for committed records again, but it is in the ISR (or may be by
            # now), which means that it has them. It must not replace them before it has left the
            # ISR, so it gets no records.
            return Replicated()
        return Replicated(records)

    def find_divergence(self, last_epoch: int, offset: int) -> tuple[int, int] | None:
        """If the reader's last record is not in this log: the epoch and offset where they
        diverge."""
        epoch, end_offset = self.log.offset_for_epoch(last_epoch)
        if epoch == -1 or offset < self.log.start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < last_epoch or end_offset < offset:
            return epoch, end_offset
        return None

    def possible_successors(self) -> frozenset[int]:
        """Replicas of which one may lead by now, if this one was replaced and does not know it
        yet."""
        leading = self.leading
        return NO_ONE if leading is None else leading.possible_successors(self.min_in_sync)

    def low_watermark(self) -> int:
        """All replicas have deleted the records before this offset."""
        start_offset = self.log.start_offset
        return start_offset if self.leading is None else self.leading.low_watermark(start_offset)

    def tick(self, now_ms: int) -> None:
        """Call it every half `replica.lag.time.max.ms`. Followers that lag leave the ISR. Followers
        join that had fetched everything before they were allowed to join, and so fetch nothing
        more."""
        leading = self.leading
        if leading is None:
            return
        shrunk = leading.shrink(self.log.end_offset, now_ms)
        if shrunk is not None:
            log.info("%s-%d: %s stay in sync, others lag", self.topic, self.index, shrunk)
            self.propose(leading, shrunk)
        else:
            self._let_join(leading)
        self.advance()

    def _let_join(self, leading: LeaderRole) -> None:
        """Let a follower join that had fetched everything before it was allowed to. One at a time,
        as with every proposal; the answer lets the next one join."""
        for follower, progress in leading.followers.items():
            if progress.end_offset == self.log.end_offset:
                grown = leading.grow(follower, self.high_watermark)
                if grown is not None:
                    self.propose(leading, grown)
                    return

    def propose(self, leading: LeaderRole, isr: tuple[int, ...]) -> None:
        self.broker.isr_changes.propose(self, leading.propose(self.topic_id, self.index, isr))

    def proposal_answered(self, proposal: IsrProposal, answer: ResponsePartitionData) -> bool:
        leading = self.leading
        if leading is None:
            return False
        if answer.error_code == ErrorCode.NEW_LEADER_ELECTED and leading.gives_up(proposal):
            # The new leader's name comes with the metadata, which a full disk may delay: until then
            # this replica follows no leader.
            assert self._followed is not None, "it leads by the metadata"
            self._follow(self._followed._replace(leader=NO_LEADER))
            return False
        again = leading.answered(proposal, answer)
        self.partition_epoch = leading.partition_epoch
        self._are_in_sync(leading.isr)
        if answer.error_code == ErrorCode.NONE:  # after a refusal its next fetch or `tick` asks
            self._let_join(leading)
        return again

    def _are_in_sync(self, isr: Collection[int]) -> None:
        fewer = len(isr) < self.in_sync
        self.in_sync = len(isr)
        self.advance()
        if fewer:
            self.on_progress(self)  # a read may have waited for one that has left (decision 24)

    def advance(self) -> None:
        """Move the high watermark to the lowest end of the in-sync replicas; it never goes back.
        Also called after appends that do not commit at once: this replica may be the only one in
        sync."""
        leading = self.leading
        if leading is None:
            return
        committed = leading.committed(self.vouched_end(), self.log.end_offset, self.min_in_sync)
        self.reach(committed)

    @property
    def minimum(self) -> int:
        """The topic's `min.insync.replicas`."""
        return self._minimum

    def look_for_damage(self) -> bool:
        """A follower with a damaged log fetches it again; returns whether the damage is new."""
        if self.following is None:
            return False
        damage = self.log.segments.first_damage(self.log.start_offset)
        return damage is not None and self.following.damaged_from(damage)

    def require_in_sync(self, minimum: int) -> None:
        """`min.insync.replicas` of the topic; one that is above the number of replicas means all of
        them, as in Apache Kafka 4. Call it before the first metadata, which may move the high
        watermark."""
        self._minimum = minimum
        replicas = 1 if self.leading is None else len(self.leading.followers) + 1
        self.min_in_sync = min(minimum, replicas)

    def reach(self, high_watermark: int) -> None:
        # The high watermark never goes back here. UNKNOWN of `LeaderRole.committed` is below every
        # offset, so it changes nothing.
        if high_watermark > self.high_watermark:
            assert high_watermark <= self.log.end_offset, "only what is in the log is committed"
            self.high_watermark = high_watermark
            self.log.producers.forget_decided(high_watermark)
            self.on_progress(self)

    def vouched_end(self) -> int:
        """The offset up to which this replica itself has the log: with durability `disk`, the
        flushed part."""
        end_offset = self.log.end_offset
        return min(self.log.recovery_point, end_offset) if self._durable else end_offset

    # Flushing

    def flush_target(self) -> Flush | None:
        """The flush after which all appended records may become visible; None if none is needed."""
        self.flush_asked = False
        target = self.log.flush_target(everything=True)
        if target is None:
            self._show_what_is_safe()  # a flush that the log had asked for took it along
        return target

    def flushed(self, flush: Flush) -> bool:
        """The flush has run. False: the log was truncated in the meantime, so ask for another
        flush."""
        counts = self.log.flushed(flush)
        self._show_what_is_safe()
        return counts

    def _show_what_is_safe(self) -> None:
        if self.leading is not None:
            self.advance()
        elif self.following is not None:
            self.broker.on_flushed(self)
        elif not self.commits_at_once:
            self.reach(min(self.log.recovery_point, self.log.end_offset))


PartitionReplica = Replica[PartitionLog]
PartitionLeader = PartitionReplica  # one that leads
