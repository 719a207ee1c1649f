"""The share coordinator of a partition of `__share_group_state`: which records are done (KIP-932).

Stores, for each share partition, what its leader needs after a restart: the start offset, and the
states and delivery counts of the records after it. Two epochs fence outdated clients:

- The *leader epoch* of the partition that is read. A read with a higher one raises it; a read or
  write with a lower one comes from a former leader: FENCED_LEADER_EPOCH.
- The *state epoch*, given when the state is initialized. After another initialization (a reset of
  offsets, a group that was made again) writes with a lower one are refused: FENCED_STATE_EPOCH.

A write is recorded as an update; after `updates_per_snapshot` of them the next write is recorded as
a snapshot. Records before the last snapshots are not needed: `prunable_to`. A partition that is not
written to would keep old records for ever, so `refresh` takes its snapshot again.

Not done: snapshots by time of partitions that have no records after their snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.environment import Now
from headrace.node.coordination.deadlines import Deadlines
from headrace.node.coordination.records import Record
from headrace.node.coordination.shard import Decision
from headrace.node.coordination.share import state_records as kept
from headrace.node.coordination.share.state_batches import KeptBatch, lay_over
from headrace.node.coordination.share.state_key import SharePartitionKey
from headrace.node.metadata.image import MetadataImage
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from headrace.wire.protocol.messages.share_snapshot_key import ShareSnapshotKey
from headrace.wire.protocol.messages.share_snapshot_value import ShareSnapshotValue
from headrace.wire.protocol.messages.share_update_key import ShareUpdateKey
from headrace.wire.protocol.messages.share_update_value import ShareUpdateValue

# Instead of a start offset, a leader epoch or a count: unknown, or unchanged.
NOT_KNOWN = -1
# The position of a snapshot that was read from the log at a start, where positions are not read.
SOMEWHERE = -1
# Snapshots that `refresh` takes at once; a snapshot takes about 20 us.
REFRESHED_AT_ONCE = 200


class HasBatch(Protocol):
    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


@dataclass(slots=True)
class ShareState:
    """The stored state of one share partition."""

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NOT_KNOWN
    finished: int = NOT_KNOWN  # acknowledged and archived records from the start offset on
    batches: list[KeptBatch] = field(default_factory=list)
    updates: int = 0  # since the last snapshot


class ShareStateMachine:
    codec = kept.CODEC

    def __init__(
        self, updates_per_snapshot: Callable[[], int], image: Callable[[], MetadataImage]
    ) -> None:
        self.states: dict[SharePartitionKey, ShareState] = {}
        # By key, in the order of the log: the position of the last snapshot. Unknown positions come
        # first.
        self._snapshot_at: dict[SharePartitionKey, int] = {}
        self.deadlines = Deadlines()
        self._updates_per_snapshot = updates_per_snapshot
        self._image = image

    # --- called by the shard

    @property
    def next_due_ms(self) -> int | None:
        return None

    def replay(self, record: Record) -> None:
        key, value = record.key, record.value
        name = SharePartitionKey(key.group_id, key.topic_id, key.partition)
        if type(key) is ShareSnapshotKey:
            self._replay_snapshot(name, value)
        elif type(key) is ShareUpdateKey and value is not None:
            self._replay_update(name, value)

    def _replay_snapshot(self, name: SharePartitionKey, value: ShareSnapshotValue | None) -> None:
        self._snapshot_at.pop(name, None)
        if value is None:
            self.states.pop(name, None)
            return
        before = self.states.get(name)
        # An epoch never goes back, also if the state is initialized with a lower one.
        self.states[name] = ShareState(
            value.snapshot_epoch,
            value.state_epoch,
            value.leader_epoch if before is None else max(value.leader_epoch, before.leader_epoch),
            value.start_offset,
            value.delivery_complete_count,
            _batches_of(value.state_batches, value.start_offset),
        )
        self._snapshot_at[name] = SOMEWHERE

    def _replay_update(self, name: SharePartitionKey, value: ShareUpdateValue) -> None:
        state = self.states.get(name)
        if state is None:
            state = self.states[name] = ShareState(snapshot_epoch=value.snapshot_epoch)
        state.leader_epoch = max(state.leader_epoch, value.leader_epoch)
        if value.start_offset != NOT_KNOWN:
            state.start_offset = value.start_offset
        state.finished = value.delivery_complete_count
        state.updates += 1
        lay_over(state.batches, map(_batch_of, value.state_batches), state.start_offset)

    def replay_pending(self, producer_id: int, record: Record) -> None:
        """There are no transactions in this log."""

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """There are no transactions in this log."""

    def due(self, now: Now) -> Decision:
        return Decision()

    def loaded(self, now: Now) -> None:
        """No state here ends by itself."""

    def abandon(self) -> None:
        """No request here waits for others."""

    def dismantle(self) -> Iterator[None]:
        while self.states:
            self.states.popitem()
            yield

    # --- requests; each is for one share partition, `at` is the end of the log

    def initialize(
        self,
        key: SharePartitionKey,
        data: initialize_share_group_state.PartitionData,
        now: Now,
        at: int,
    ) -> Decision:
        state = self.states.get(key)
        code = self._fault_of_place(key)
        if state is not None and NOT_KNOWN != data.state_epoch < state.state_epoch:
            code = ErrorCode.FENCED_STATE_EPOCH
        if code != ErrorCode.NONE:
            return _refused(initialize_share_group_state, key, code)
        value = ShareSnapshotValue(
            0 if state is None else state.snapshot_epoch + 1,
            data.state_epoch,
            0,
            data.start_offset,
            NOT_KNOWN if data.start_offset == NOT_KNOWN else 0,
            now.wall_ms,
            now.wall_ms,
        )
        answer = initialize_share_group_state.PartitionResult(key.partition)
        return self._snapshot(key, value, answer, at)

    def read(self, key: SharePartitionKey, leader_epoch: int, now: Now, at: int) -> Decision:
        """Returns the state for the leader of the partition, which becomes the only one that may
        write."""
        state = self.states.get(key)
        if state is None:
            return _refused(
                read_share_group_state,
                key,
                ErrorCode.INVALID_REQUEST,
                "Read operation on uninitialized share partition not allowed.",
            )
        code = self._fault_of_place(key)
        if NOT_KNOWN != leader_epoch < state.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        if code != ErrorCode.NONE:
            return _refused(read_share_group_state, key, code)
        answer = read_share_group_state.PartitionResult(
            key.partition,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[read_share_group_state.StateBatch(*batch) for batch in state.batches],
        )
        if leader_epoch in (NOT_KNOWN, state.leader_epoch):
            return Decision(response=answer)
        return self._record(
            key, state, leader_epoch, state.start_offset, state.finished, (), answer, now, at
        )

    def write(
        self,
        key: SharePartitionKey,
        data: write_share_group_state.PartitionData,
        now: Now,
        at: int,
    ) -> Decision:
        state = self.states.get(key)
        if state is None:
            return _refused(
                write_share_group_state,
                key,
                ErrorCode.INVALID_REQUEST,
                "Write operation on uninitialized share partition not allowed.",
            )
        code = self._fault_of_place(key)
        if NOT_KNOWN != data.state_epoch < state.state_epoch:
            code = ErrorCode.FENCED_STATE_EPOCH
        if NOT_KNOWN != data.leader_epoch < state.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        if code != ErrorCode.NONE:
            return _refused(write_share_group_state, key, code)
        return self._record(
            key,
            state,
            state.leader_epoch,
            data.start_offset,
            data.delivery_complete_count,
            _batches_of(data.state_batches, data.start_offset),
            write_share_group_state.PartitionResult(key.partition),
            now,
            at,
        )

    def summary(self, key: SharePartitionKey) -> Decision:
        code = self._fault_of_place(key)
        if code != ErrorCode.NONE:
            return _refused(read_share_group_state_summary, key, code)
        state = self.states.get(key) or ShareState()
        return Decision(
            response=read_share_group_state_summary.PartitionResult(
                key.partition,
                state_epoch=state.state_epoch,
                leader_epoch=state.leader_epoch,
                start_offset=state.start_offset,
                delivery_complete_count=state.finished,
            )
        )

    def delete(self, key: SharePartitionKey) -> Decision:
        code = self._fault_of_place(key)
        if code != ErrorCode.NONE:
            return _refused(delete_share_group_state, key, code)
        answer = delete_share_group_state.PartitionResult(key.partition)
        return Decision([kept.forgotten(key)] if key in self.states else (), answer)

    def _fault_of_place(self, key: SharePartitionKey) -> ErrorCode:
        if key.partition < 0:
            return ErrorCode.INVALID_REQUEST
        topic = self._image().topics_by_id.get(key.topic_id)
        if topic is None or key.partition >= len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def _record(
        self,
        key: SharePartitionKey,
        state: ShareState,
        leader_epoch: int,
        start_offset: int,
        finished: int,
        batches: Sequence[KeptBatch],
        answer: Any,
        now: Now,
        at: int,
    ) -> Decision:
        if state.updates < self._updates_per_snapshot():
            value = ShareUpdateValue(
                state.snapshot_epoch,
                leader_epoch,
                start_offset,
                finished,
                kept.update_batches(batches),
            )
            return Decision([kept.update(key, value)], answer)
        start_offset = state.start_offset if start_offset == NOT_KNOWN else start_offset
        after = list(state.batches)
        lay_over(after, batches, start_offset)
        whole = ShareSnapshotValue(
            state.snapshot_epoch + 1,
            state.state_epoch,
            leader_epoch,
            start_offset,
            finished,
            now.wall_ms,
            now.wall_ms,
            kept.snapshot_batches(after),
        )
        return self._snapshot(key, whole, answer, at)

    def _snapshot(
        self, key: SharePartitionKey, value: ShareSnapshotValue, answer: Any, at: int
    ) -> Decision:
        def then() -> None:
            self._snapshot_at[key] = at

        return Decision([kept.snapshot(key, value)], answer, then)

    # --- the log's length

    @property
    def prunable_to(self) -> int:
        """Returns an offset before which records are not needed; 0: unknown."""
        return max(min(self._snapshot_at.values(), default=0), 0)

    def refresh(self, before: int, now: Now, at: int) -> Decision:
        """Snapshots some of the partitions whose last snapshot is before an offset; the answer is
        how many are left."""
        old = [key for key, place in self._snapshot_at.items() if place < before]
        chosen = old[:REFRESHED_AT_ONCE]

        def then() -> None:
            for key in chosen:
                self._snapshot_at[key] = at

        records = [kept.snapshot(key, self._again(self.states[key], now)) for key in chosen]
        return Decision(records, len(old) - len(chosen), then)

    def _again(self, state: ShareState, now: Now) -> ShareSnapshotValue:
        return ShareSnapshotValue(
            state.snapshot_epoch + 1,
            state.state_epoch,
            state.leader_epoch,
            state.start_offset,
            state.finished,
            now.wall_ms,
            now.wall_ms,
            kept.snapshot_batches(state.batches),
        )

    def forget_topics(self, topic_ids: frozenset[bytes]) -> Decision:
        """Delete the states of deleted topics."""
        gone = [key for key in self.states if key.topic_id in topic_ids]
        return Decision([kept.forgotten(key) for key in gone])

    def forget_unknown_topics(self) -> Decision:
        """Delete the states of topics that were deleted while no broker kept this state."""
        known = self._image().topics_by_id
        gone = [key for key in self.states if key.topic_id not in known]
        return Decision([kept.forgotten(key) for key in gone])


def _batches_of(batches: Sequence[HasBatch], start_offset: int) -> list[KeptBatch]:
    laid: list[KeptBatch] = []
    lay_over(laid, map(_batch_of, batches), start_offset)
    return laid


def _batch_of(batch: HasBatch) -> KeptBatch:
    return KeptBatch(
        batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count
    )


def _refused(
    messages: Any, key: SharePartitionKey, code: ErrorCode, message: str | None = None
) -> Decision:
    return Decision(
        response=messages.PartitionResult(
            partition=key.partition, error_code=code, error_message=message or code.description
        )
    )
