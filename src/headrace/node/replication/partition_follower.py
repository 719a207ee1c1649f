"""The follower's role of one replica: its leader, its fetches, and how it handles the answers.

A follower fetches from the end of its log and names the epoch of its last batch. A leader whose log
diverges before that offset answers with the epoch and its own end offset of that epoch (KIP-595);
the follower truncates its log and fetches again, until the two agree. Until then neither the high
watermark nor the start follow the leader's. After DeleteRecords a leader's log may begin within a
batch, which it sends whole: an empty follower begins with that batch. After FENCED_LEADER_EPOCH
(its epoch is older than the leader's) a follower waits for new metadata; all other errors are
retried, soon at first, later every `replica.fetch.backoff.ms`.

A follower that finds damage in its own log needs the records after it once more. It is in the ISR
because it has them. So it first sends, now and then, fetches for the offset of the damage, which
confirm no more than the records before it, until the leader removes it from the ISR. When the
leader answers such a fetch with records, it no longer counts the follower as in sync, nor has it
proposed it for the ISR: the follower truncates its log there and fetches like any other follower
that lags. If too few replicas would stay in sync, it continues as it is: the records behind the
damage may be needed.

A follower whose disk refuses appends does not fetch, so that it does not join the ISR. If it is in
the ISR, it fetches its last committed record: the leader then removes it, as above.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.environment import FileSlice
from headrace.node.metadata.image import NO_LEADER, PartitionImage
from headrace.node.replication.replica_log import Log
from headrace.node.storage.segments.batch_headers import whole_batches
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.fetch import PartitionData

if TYPE_CHECKING:
    from headrace.node.replication.replica import Replica

log = logging.getLogger(__name__)

OFFSETS_ELSEWHERE = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
# These cases happen while roles change: the metadata of one side is older than that of the other.
EXPECTED = (
    ErrorCode.NONE,
    *OFFSETS_ELSEWHERE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
SHORTEST_BACKOFF_MS = 100
MOST_DOUBLINGS = 20


class Position(NamedTuple):
    """The position that a follower sends with its fetch."""

    offset: int  # it has everything before
    leader_epoch: int  # which it believes to be current
    last_epoch: int  # of its last batch; -1: it has none
    start_offset: int


class Replicated(NamedTuple):
    """The answer to a follower: records, or where its log and the leader's diverge."""

    records: FileSlice | None = None
    diverging: tuple[int, int] | None = None  # epoch and its end offset


class FollowerRole:
    """One replica as a follower, in one leader epoch."""

    __slots__ = (
        "replica",
        "leader",
        "epoch",
        "is_counted_on",
        "is_in_sync",
        "in_sync",
        "refusal",
        "fetches_from_ms",
        "refusals",
        "is_fenced",
        "lost",
        "damage",
        "trouble",
        "leader_high_watermark",
    )

    def __init__(self, replica: Replica[Any], partition: PartitionImage) -> None:
        self.replica = replica
        self.leader = partition.leader
        self.epoch = partition.leader_epoch
        self.fetches_from_ms = 0  # not before; the leader has refused something
        self.refusals = 0  # in a row
        self.is_fenced = False  # the leader has a newer epoch: the metadata will tell us
        self.lost = ""  # "end", "start": the leader must say where its log ends, or begins
        # Our log cannot be read from here on.
        self.damage = replica.log.segments.first_damage(replica.log.start_offset)
        self.trouble = ""  # why the last answer could not be taken; logged once
        self.leader_high_watermark = 0  # as the last answer says
        self.in_sync = 0  # replicas that are
        self.is_in_sync = False  # this one is
        self.is_counted_on = False  # it may be elected for what it has: in the ISR, or eligible
        self.refusal = 0  # the leader's last one
        self.counts_on_us(partition)

    def counts_on_us(self, partition: PartitionImage) -> None:
        broker_id = self.replica.broker.id
        self.is_counted_on = broker_id in (*partition.isr, *partition.eligible_leader_replicas)
        self.in_sync = len(partition.isr)
        self.is_in_sync = broker_id in partition.isr

    def fetch_position(self, now_ms: int, wall_ms: int) -> Position | None:
        """Returns where to fetch from; None: do not fetch now."""
        replica = self.replica
        if self.leader == NO_LEADER or self.is_fenced or self.lost or now_ms < self.fetches_from_ms:
            return None
        found = replica.log
        if self.damage is not None and not found.start_offset <= self.damage < found.end_offset:
            self.damage = None  # it is gone by other ways
        if self.damage is not None and (not self.is_counted_on or self.in_sync > replica.minimum):
            if self.is_counted_on:
                self.back_off(now_ms)
            return Position(self.damage, self.epoch, found.epochs.latest, found.start_offset)
        if replica.broker.refusing and replica.broker.refusal_of(found.folder):
            return self._position_without_room(now_ms)
        if replica.vouched_end() < found.end_offset:
            return None  # a fetch says that we have it, and a power cut could take it back
        return Position(found.end_offset, self.epoch, found.epochs.latest, found.start_offset)

    def _position_without_room(self, now_ms: int) -> Position | None:
        """The disk refuses appends. A fetch from the end of the log would let the leader wait for
        this replica. Its answer has no records that could be taken."""
        replica, found = self.replica, self.replica.log
        if not self.is_in_sync:
            return None
        self.back_off(now_ms)
        offset = found.end_offset
        if self.in_sync > replica.minimum:
            offset = max(min(replica.high_watermark, offset) - 1, found.start_offset)
        return Position(offset, self.epoch, found.epochs.latest, found.start_offset)

    def take(self, asked: Position, answer: PartitionData, now_ms: int, wall_ms: int) -> None:
        """The leader's answer to a fetch from `asked`."""
        if asked.leader_epoch != self.epoch:
            return  # of another time
        if asked.offset != self.replica.log.end_offset:
            if asked.offset == self.damage and not self.is_counted_on:
                self._told_of_damage(answer, now_ms, wall_ms)
            return
        code = answer.error_code
        if code != self.refusal:
            self.refusal = code
            if code not in EXPECTED:
                log.warning(
                    "%s-%d: broker %d refuses a fetch from offset %d with error %d",
                    self.replica.topic, self.replica.index, self.leader, asked.offset,
                    code,
                )  # fmt: skip
        if code == ErrorCode.NONE:
            try:
                self._take_records(answer, wall_ms)
                self.refusals = 0
                self.trouble = ""
            except (KafkaError, OSError) as refusal:
                if str(refusal) != self.trouble:
                    self.trouble = str(refusal)
                    log.error("%s-%d: %s", self.replica.topic, self.replica.index, refusal)
                self.back_off(now_ms)
        elif code in OFFSETS_ELSEWHERE:
            self.lost = "end"
        elif code == ErrorCode.FENCED_LEADER_EPOCH:
            self.is_fenced = True
        else:
            self.back_off(now_ms)

    def back_off(self, now_ms: int) -> None:
        """Wait before the next fetch. A new leader often learns its role some milliseconds after
        its followers, and acks=all waits for these: so only repeated refusals lead to the longest
        wait."""
        longest_ms = self.replica.broker.settings.fetch_backoff_ms
        self.fetches_from_ms = now_ms + min(SHORTEST_BACKOFF_MS << self.refusals, longest_ms)
        self.refusals = min(self.refusals + 1, MOST_DOUBLINGS)

    def _take_records(self, answer: PartitionData, wall_ms: int) -> None:
        replica = self.replica
        diverging = answer.diverging_epoch
        if diverging is not None and diverging.end_offset >= 0:
            cut = truncation_offset(replica.log, diverging.epoch, diverging.end_offset)
            self._truncate(cut, wall_ms)
            return
        records = whole_batches(memoryview(answer.records or b""))
        self.leader_high_watermark = answer.high_watermark
        if len(records):
            if replica.log.start_offset == replica.log.end_offset:
                self._begin_with_batch(records, wall_ms)
            replica.log.writer.append_as_is(records, wall_ms=wall_ms)
            # The next fetch confirms that this replica has these records. It leaves in this turn,
            # and must not confirm records that the disk may refuse at the end of the turn.
            replica.log.write_at_once()
        # Only as far as this log has the records below the leader's high watermark.
        replica.reach(min(answer.high_watermark, replica.log.end_offset))
        if replica.log.start_offset < answer.log_start_offset <= replica.high_watermark:
            replica.log.delete_records_before(answer.log_start_offset)

    def _begin_with_batch(self, records: memoryview, wall_ms: int) -> None:
        replica = self.replica
        replica.removed_files += replica.log.writer.begin_with_batch(records, wall_ms=wall_ms)
        replica.high_watermark = min(replica.high_watermark, replica.log.end_offset)

    def _truncate(self, offset: int, wall_ms: int) -> None:
        replica = self.replica
        if offset < replica.high_watermark:
            log.warning(
                "%s-%d: cut to %d, below the high watermark %d",
                replica.topic, replica.index, offset, replica.high_watermark,
            )  # fmt: skip
        replica.removed_files += replica.log.truncate(offset, wall_ms=wall_ms)
        replica.high_watermark = min(replica.high_watermark, replica.log.end_offset)

    def bounds_are(self, question: str, epoch: int, offset: int, wall_ms: int) -> None:
        """The leader of `epoch` has answered where its log ends or begins, since it did not have
        the offset of our fetch. A log that ends before the leader's begins has nothing to continue
        from."""
        if self.epoch != epoch or self.lost != question:
            return
        replica = self.replica
        if question == "end" and offset >= replica.log.end_offset:
            self.lost = "start"
            return
        self.lost = ""
        if question == "end":
            self._truncate(offset, wall_ms)
        elif offset > replica.log.end_offset:
            log.warning(
                "%s-%d: ends at %d, and the leader's begins at %d: it is filled from there",
                replica.topic, replica.index, replica.log.end_offset, offset,
            )  # fmt: skip
            replica.removed_files += replica.log.truncate_fully(offset, wall_ms=wall_ms)
            replica.high_watermark = offset
            replica.on_progress(replica)

    def damaged_from(self, offset: int) -> bool:
        """Note that the log cannot be read from `offset` on; returns whether that was unknown."""
        if self.damage is not None and self.damage <= offset:
            return False
        self.damage = offset
        return True

    def _told_of_damage(self, answer: PartitionData, now_ms: int, wall_ms: int) -> None:
        """The leader has learned from which offset on we lack records, and that we are not in sync.

        Only records in its answer prove that: as long as it may have proposed us for the ISR, by
        what we had before, it sends none, and our records must stay. These records are not
        appended, since the fetch named the epoch of our last batch, which is after the damage.
        """
        code, diverging = answer.error_code, answer.diverging_epoch
        if code == ErrorCode.NONE and (diverging is None or diverging.end_offset < 0):
            if answer.records and self.damage is not None:
                self._repair(self.damage, wall_ms)
            else:
                self.back_off(now_ms)
        elif code == ErrorCode.NONE or code in OFFSETS_ELSEWHERE:
            self.damage = None  # first fetch as usual: the logs part elsewhere; then look again
        elif code == ErrorCode.FENCED_LEADER_EPOCH:
            self.is_fenced = True
        else:
            self.back_off(now_ms)

    def _repair(self, damage: int, wall_ms: int) -> None:
        """Truncate the log where the damage begins; the records after it are fetched again. The
        damaged range is read once more before: records below the high watermark are not given up
        while they are good."""
        replica = self.replica
        replica.log.segments.confirm_damage()
        self.damage = replica.log.segments.first_damage(replica.log.start_offset)
        if self.damage != damage:
            return
        log.warning(
            "%s-%d: the log is damaged from offset %d on: it is fetched again from there",
            replica.topic, replica.index, damage,
        )  # fmt: skip
        self._truncate(min(damage, replica.log.end_offset), wall_ms)
        self.damage = replica.log.segments.first_damage(replica.log.start_offset)


def truncation_offset(log: Log, epoch: int, end_offset: int) -> int:
    """Returns where to truncate a log if the leader's has `epoch` as the largest that both may
    know, and `end_offset` as its end (KIP-279)."""
    own_epoch, own_end = log.offset_for_epoch(epoch)
    if own_epoch == -1:
        return min(end_offset, log.end_offset)
    if own_epoch != epoch:
        # We lack that epoch: our records above the one before it are not the leader's. The next
        # fetch names the older epoch, and the leader answers for that.
        return min(own_end, log.end_offset)
    return min(own_end, end_offset, log.end_offset)
