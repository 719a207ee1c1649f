"""The leader's role of one replica: progress of its followers, the ISR, and the high watermark.

Rules, as Apache Kafka's and with their reasons:
- A follower joins the ISR when it has everything before the high watermark and has reached the
  start of this leader's epoch: before that, records between the two may be committed, and the
  follower would lack them if it were elected. Its broker must be alive and be the start that
  fetched.
- A leader that proposes that a follower joins waits for it from then on (the *maximal* ISR), for
  the controller may have agreed already. A leader that proposes that a follower leaves waits for it
  until the controller has agreed, for it may become leader until then.
- One proposal at a time. An answer that leaves the outcome open does not end a proposal: the
  metadata does.
- The high watermark is the lowest end of the maximal ISR, and of followers that are caught up and
  may join; it does not move while fewer than `min.insync.replicas` are in sync (KIP-966: a replica
  that left the ISR then still has all committed records).
- A leader that knows of damage in its log, or whose disk refuses appends, proposes the ISR without
  itself if another replica is in sync: the controller then elects another leader (decision 35).

Pure: knows offsets and clocks, no log. `replica.py` asks it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.node.metadata.image import UNASSIGNED_DIRECTORY, PartitionImage
from headrace.node.replication.follower_progress import (
    LONG_AGO_MS,
    UNKNOWN,
    FollowerProgress,
    at_the_beginning,
)
from headrace.node.replication.isr_changes import IsrProposal
from headrace.node.replication.this_broker import NOT_CHECKED, ThisBroker
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.alter_partition import ResponsePartitionData

# With these errors the controller has not changed anything, and our state of the partition is
# current: the proposal is over.
NOT_APPLIED = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
# After these errors our state of the partition is outdated: newer metadata will follow.
METADATA_WILL_TELL = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)


class LeaderRole:
    __slots__ = (
        "broker",
        "epoch",
        "epoch_start_offset",
        "partition_epoch",
        "isr",
        "joining",
        "proposal",
        "followers",
        "seen_ms",
        "waiting",
        "_directories",
    )

    def __init__(
        self, broker: ThisBroker, partition: PartitionImage, end_offset: int, now_ms: int
    ) -> None:
        # Invariant: this broker is in `isr`, and `followers` has every other replica, in sync or
        # not.
        self.broker = broker
        self.epoch = partition.leader_epoch
        self.epoch_start_offset = end_offset
        self.partition_epoch = partition.partition_epoch
        self.isr = frozenset(partition.isr)  # as committed by the controller
        self.joining: int | None = None  # proposed, and waited for as if it were in the ISR
        self.proposal: IsrProposal | None = None  # the controller has not answered it for good
        self.seen_ms = now_ms  # the latest time that a caller has passed
        self.waiting: dict[Any, None] = {}  # fetches of followers that have no session
        self._directories = directories_of(partition)
        self.followers = {
            replica: at_the_beginning(now_ms, in_sync=replica in self.isr)
            for replica in partition.replicas
            if replica != broker.id
        }

    def knows(self, partition: PartitionImage) -> bool:
        """Returns whether the metadata have nothing newer than what is known here."""
        known = self.epoch, self.partition_epoch
        return known == (partition.leader_epoch, partition.partition_epoch)

    def follow(self, partition: PartitionImage, end_offset: int, now_ms: int) -> None:
        """Take changed metadata in which this replica stays leader. If they skip a leader epoch,
        another replica may have led in between, and followers have truncated what they had fetched
        from us."""
        self.seen_ms = now_ms
        if partition.leader_epoch > self.epoch + 1:
            self.followers = {}
        self._take_isr(partition.isr)
        self.joining = self.proposal = None
        others = [replica for replica in partition.replicas if replica != self.broker.id]
        self.followers = {
            replica: self.followers.get(replica)
            or at_the_beginning(now_ms, in_sync=replica in self.isr)
            for replica in others
        }
        if partition.leader_epoch != self.epoch:
            self.epoch = partition.leader_epoch
            self.epoch_start_offset = end_offset
            for replica, progress in self.followers.items():
                progress.begin_epoch(end_offset, now_ms, in_sync=replica in self.isr)
        self.partition_epoch = partition.partition_epoch
        self._directories = directories_of(partition)

    def _take_isr(self, isr: Iterable[int]) -> None:
        """Take the ISR from the controller, from its answer or from the metadata, whichever comes
        first."""
        before, self.isr = self.isr, frozenset(isr)
        self.broker.isr_expands += not self.isr <= before
        self.broker.isr_shrinks += not before <= self.isr

    # Followers

    def require_follower(self, replica: int, *, names_epoch: bool) -> FollowerProgress:
        """Returns the progress of a follower. If `replica` is not among our replicas but names our
        epoch, it may have newer metadata than we have."""
        progress = self.followers.get(replica)
        if progress is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH if names_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        return progress

    def fetched(
        self,
        replica: int,
        offset: int,
        *,
        start_offset: int,
        broker_epoch: int,
        end_offset: int,
        now_ms: int,
    ) -> None:
        """A follower has all records before `offset`; call it when a fetch continues our own
        log."""
        if self.broker.is_outdated(replica, broker_epoch):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"an earlier start of broker {replica} fetches"
            )
        self.seen_ms = now_ms
        self.followers[replica].fetched(
            offset,
            start_offset=start_offset,
            broker_epoch=broker_epoch,
            leader_end_offset=end_offset,
            now_ms=now_ms,
        )

    def low_watermark(self, own_start: int) -> int:
        """Returns the offset from which on all unfenced replicas have the log; the others learn it
        later."""
        brokers = self.broker.brokers
        starts = (
            progress.start_offset
            for replica, progress in self.followers.items()
            if replica in brokers and not brokers[replica].fenced
        )
        return min([own_start, *starts])

    # The high watermark

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The replicas that may be in the ISR by now; the high watermark waits for all of them."""
        return self.isr if self.joining is None else self.isr | {self.joining}

    def possible_successors(self, min_in_sync: int) -> frozenset[int]:
        """The replicas that may have been elected before this leader learns of it. A replica that
        left the ISR when it was small may be elected too, if the ISR is empty (KIP-966)."""
        enough = len(self.isr) >= min_in_sync
        found = self.maximal_isr if enough else frozenset(self.followers)
        return found - {self.broker.id}

    def committed(self, own_end: int, end_offset: int, min_in_sync: int) -> int:
        """Returns the offset up to which all replicas that acks=all waits for have the log; UNKNOWN
        if fewer than `min_in_sync` are in sync.

        `own_end` is the end of what this replica itself guarantees, `end_offset` the log end.
        """
        if len(self.isr) < min_in_sync:
            return UNKNOWN
        committed = own_end
        maximal = self.maximal_isr
        for replica, progress in self.followers.items():
            # The cheap comparison first: only a follower that is behind the lowest end found so far
            # can lower it, and for most fetches none is.
            if progress.end_offset < committed and (
                replica in maximal or self._is_about_to_join(replica, progress, end_offset)
            ):
                committed = progress.end_offset
        return committed

    def _is_about_to_join(self, replica: int, progress: FollowerProgress, end_offset: int) -> bool:
        """Without waiting for such a follower, it might never catch up with a busy leader."""
        lag_max_ms = self.broker.settings.lag_time_max_ms
        caught_up = progress.is_caught_up(end_offset, self.seen_ms, lag_max_ms)
        return caught_up and self._may_join(replica, progress)

    def _may_join(self, replica: int, progress: FollowerProgress) -> bool:
        directory = self._directories.get(replica, UNASSIGNED_DIRECTORY)
        return self.broker.may_join_isr(replica, progress.broker_epoch, directory)

    # Changes of the ISR

    def grow(self, replica: int, high_watermark: int) -> tuple[int, ...] | None:
        """The ISR to propose now that `replica` has fetched; None: it is well as it is."""
        progress = self.followers[replica]
        if (
            self.proposal is not None
            or replica in self.isr
            or progress.end_offset < high_watermark
            or progress.end_offset < self.epoch_start_offset
            or not self._may_join(replica, progress)
        ):
            return None
        self.joining = replica
        return (*sorted(self.isr), replica)

    def shrink_by(self, replica: int, high_watermark: int) -> tuple[int, ...] | None:
        """Returns the ISR to propose without a replica that lacks committed records: it has asked
        for them again. It may have lost them, or found them damaged. None: no change, or a proposal
        is in flight."""
        if (
            self.proposal is not None
            or replica not in self.isr
            or self.followers[replica].end_offset >= high_watermark
        ):
            return None
        # From now on the high watermark does not wait for it, until it has caught up again.
        self.followers[replica].caught_up_at_ms = LONG_AGO_MS
        return tuple(sorted(self.isr - {replica}))

    def shrink(self, end_offset: int, now_ms: int) -> tuple[int, ...] | None:
        """Returns the ISR to propose without the replicas that lag; None: none lags, or a proposal
        is in flight."""
        self.seen_ms = now_ms
        if self.proposal is not None:
            return None
        lagging = self.lagging(end_offset, now_ms)
        return tuple(sorted(self.isr - lagging)) if lagging else None

    def isr_without_leader(self) -> tuple[int, ...] | None:
        """The ISR to propose so that another replica leads; None: no other replica is in sync, or
        we wait for an answer."""
        if self.proposal is not None:
            return None
        return tuple(sorted(self.isr - {self.broker.id})) or None

    def lagging(self, end_offset: int, now_ms: int) -> frozenset[int]:
        lag_max_ms = self.broker.settings.lag_time_max_ms
        for progress in self.followers.values():
            if progress.end_offset == end_offset:
                # Its fetches need not name a partition without new records (KIP-227).
                progress.caught_up_at_ms = now_ms
        return frozenset(
            replica
            for replica in self.isr
            if replica != self.broker.id
            and (
                replica not in self.followers
                or not self.followers[replica].is_caught_up(end_offset, now_ms, lag_max_ms)
            )
        )

    def propose(self, topic_id: bytes, index: int, isr: tuple[int, ...]) -> IsrProposal:
        assert self.proposal is None, "one proposal at a time"
        self.proposal = IsrProposal(
            topic_id,
            index,
            self.epoch,
            self.partition_epoch,
            [(replica, self._broker_epoch(replica)) for replica in isr],
        )
        return self.proposal

    def _broker_epoch(self, replica: int) -> int:
        """Returns -1 for a member that has not fetched from this leader. The controller does not
        have to check it: a broker that restarts leaves the ISR, and the partition epoch changes."""
        if replica == self.broker.id:
            return self.broker.epoch
        progress = self.followers.get(replica)
        known = None if progress is None else progress.broker_epoch
        return NOT_CHECKED if known is None else known

    def answered(self, proposal: IsrProposal, answer: ResponsePartitionData) -> bool:
        """Returns whether to send the proposal again."""
        if self.proposal is not proposal:
            return False  # the metadata were faster
        code = answer.error_code
        if code == ErrorCode.NONE:
            if answer.leader_epoch == self.epoch and answer.partition_epoch >= self.partition_epoch:
                self._take_isr(answer.isr)
                self.partition_epoch = answer.partition_epoch
                self.joining = self.proposal = None
            return False
        if code in NOT_APPLIED or (
            # Apache's controllers refuse an ISR without the leader; nothing changes then.
            code == ErrorCode.INVALID_REQUEST and self.gives_up(proposal)
        ):
            self.joining = self.proposal = None
            return False
        return code not in METADATA_WILL_TELL

    def gives_up(self, proposal: IsrProposal) -> bool:
        """Returns whether the proposal is that another replica leads."""
        return all(replica != self.broker.id for replica, _ in proposal.isr)


def directories_of(partition: PartitionImage) -> dict[int, bytes]:
    """Returns by replica in which data folder of its broker it is."""
    return dict(zip(partition.replicas, partition.directories, strict=False))
