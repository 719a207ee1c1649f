"""State kept in a log: decide -> append -> replay -> answer when committed.

A coordinator is a state machine per partition of an internal topic. This module runs one of them: a
request is *decided* (the machine reads its state and returns a `Decision`: records and an answer),
the records are appended to the log, `replay` applies them, and the answer may leave once they are
committed. `replay` also restores the state at a start: the log alone is the truth.

To build another coordinator on it:
1. Write a `Machine`: a `RecordCodec` of its record kinds as `codec`, `replay(record)` as the only
   thing that changes what is kept, and one method per request that returns a `Decision` and
   changes nothing kept. Refusals are raised as KafkaError or put into the answer.
2. Decisions by time come from `due(now)`, which the runtime calls when `next_due_ms` is reached; it
   returns a Decision as well (its answer is not used).
3. An answer that has to wait for something other than the log is a `Later`: return it as the
   Decision's answer, keep it, and answer it in a later decision. Waiting requests, deadlines and
   other things that need not survive a restart are the machine's own; change them in
   `Decision.then`, which runs once the records are in the log, where a refused append must leave
   no trace; `Decision.otherwise` refuses the requests that wait for it.
4. Give a `Coordinator` (broker/coordinators/coordinators.py) the topic's name and a function that
   makes the machine; it opens a `Shard` for each partition this broker leads.

Records of a transaction (`Decision.producer`) count when its marker commits it. The shard notices
other changes of its log (a marker, or a log that was cut back after a failed write) by its end
offset, and catches up or loads again. Pure: clocks are arguments, the log is asked for by
`Journal`. A large log is loaded in slices (`load_in_slices`): the shard takes no requests
meanwhile. Not done: snapshots of the state; the log is compacted instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from crc32c import crc32c

from headrace.environment import Now
from headrace.node.coordination.deadlines import Deadlines
from headrace.node.coordination.records import Encoded, Record, RecordCodec
from headrace.wire.protocol import compression, control_records, record_batch
from headrace.wire.protocol.control_records import ControlKind
from headrace.wire.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from headrace.wire.protocol.record_batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    CRC,
    LAST_OFFSET_DELTA,
    LENGTH,
    PRODUCER_ID,
    Fields,
)

log = logging.getLogger(__name__)

# A decision of any size is appended; beyond this in several batches, so that readers of the log
# with Kafka's default of 1 MiB per message can take each.
BATCH_BYTES = 900_000
# The largest size of a batch of the log when it is decompressed: 100 times Kafka's default.
LARGEST_BATCH_BYTES = 100 << 20
IN_TRANSACTION = record_batch.CONTROL | record_batch.TRANSACTIONAL
# Beyond the end of any log: what the machine has seen is not what the log has.
UNKNOWN = 1 << 62
# How many records are read or replayed between two looks at the clock: about a millisecond.
RECORDS_PER_STEP = 500


class Journal(Protocol):
    """The log of one shard, as the shard sees it."""

    @property
    def epoch(self) -> int:
        """The leader epoch, which each batch carries."""
        ...

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def skips_damage(self) -> bool:
        """Returns whether an operator allows to continue without the damaged records."""
        ...

    def append(self, batch: bytes, wall_ms: int) -> int:
        """Appends a whole batch at `end_offset`, and returns the new end offset. Raises KafkaError,
        without a change, if it cannot."""
        ...

    def read(self, offset: int) -> bytes:
        """Returns one or more whole batches, from the one that holds `offset` on; empty at the
        end."""
        ...


class Later:
    """An answer that waits for other members' requests. Client requests wait for it in
    `waiting`."""

    __slots__ = ("answer", "at_offset", "otherwise", "waiting")

    def __init__(self, otherwise: Any) -> None:
        self.answer: Any = None
        self.at_offset = 0  # the answer may leave when the log is committed up to here
        self.otherwise = otherwise  # the answer if the node stops before
        self.waiting: dict[Any, None] = {}


@dataclass(slots=True)
class Decision:
    """The result of deciding. It may have no records: then the kept state does not change."""

    records: Sequence[Record] = ()
    response: Any = None  # a response message, or a Later
    then: Callable[[], None] | None = None  # runs after the replay
    producer: tuple[int, int] | None = None  # id and epoch: the records belong to its transaction
    otherwise: Callable[[KafkaError], None] | None = None  # runs if the append is refused


class Machine(Protocol):
    """The state of one shard; see the head of this module."""

    codec: RecordCodec
    deadlines: Deadlines  # what is due at its moment; the rest by `next_due_ms`, a little late

    @property
    def next_due_ms(self) -> int | None:
        """Monotonic; None: nothing is due by time."""
        ...

    def replay(self, record: Record) -> None:
        """Apply a committed change."""
        ...

    def replay_pending(self, producer_id: int, record: Record) -> None:
        """Keep a change that takes effect if and when this producer's transaction commits."""
        ...

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply or drop the pending changes."""
        ...

    def due(self, now: Now) -> Decision:
        """Decide one thing that is due; once it is recorded it is not due any more."""
        ...

    def loaded(self, now: Now) -> None:
        """All of the log has been replayed: set the deadlines."""
        ...

    def abandon(self) -> None:
        """This machine is dropped: answer every Later, so that no request waits in vain."""
        ...

    def dismantle(self) -> Iterator[None]:
        """Free the memory in steps, after the last request. A million offsets at once would hold
        the loop for 0.1 s."""
        ...


@dataclass(slots=True)
class Shard:
    """One partition's machine and its log; `answered` are the Laters that got their answers."""

    journal: Journal
    new_machine: Callable[[list[Later]], Machine]
    compression: int = compression.NONE
    answered: list[Later] = field(default_factory=list)
    machine: Machine = field(init=False)
    applied_to: int = UNKNOWN  # offset up to which the machine has seen the log
    # Damage that was found when loading, and the state of the log then (`_as_it_is`). Nothing is
    # decided until the log has changed or may be read past the damage; until then it is not read
    # again.
    damage: tuple[KafkaError, tuple[int, int, bool]] | None = None

    def run(self, now: Now, decide: Callable[..., Decision], *arguments: Any) -> Any:
        """Decide, append, replay. Returns the answer, which may leave when the log is committed so
        far.

        `decide` is a method of the machine's class: the shard may get another machine before it
        runs.
        """
        # Invariant: when a decision is made, the machine has seen the log up to its end. A marker
        # of a transaction, or a log that was cut back, moves the end without this shard.
        if self.applied_to != self.journal.end_offset:
            self.catch_up(now)
        decision = decide(self.machine, *arguments)
        if decision.records:
            try:
                self._append(decision, now.wall_ms)
            except KafkaError as refusal:
                if decision.otherwise is not None:
                    decision.otherwise(refusal)
                raise
        # Only now, when the records are in the log: if the append is refused, nothing that `then`
        # would change has changed.
        if decision.then is not None:
            decision.then()
        if self.answered:
            self._stamp_answered()
        return decision.response

    def run_due(self, now: Now) -> None:
        """Run all decisions that are due."""
        while self.run_next_due(now):
            pass

    def run_next_due(self, now: Now) -> bool:
        """Run one decision that is due; returns False if none is."""
        due_ms = self.machine.next_due_ms
        if due_ms is None or due_ms > now.monotonic_ms:
            return False
        self.run(now, _decide_what_is_due, now)
        return True

    # --- loading

    def load(self, now: Now) -> None:
        """Restore the state from the log; drops the state before.

        Raises COORDINATOR_NOT_AVAILABLE if a batch fails its checksum: a state without it would be
        wrong without notice, with an offset that goes back or a transaction that is decided twice.
        """
        for _ in self.load_in_slices(now):
            pass

    def load_in_slices(self, now: Now) -> Iterator[None]:
        """Like `load`, with a yield wherever other work may run. The log may grow meanwhile (with a
        marker); the caller stops when this broker does not lead the log any more."""
        if self.damage is not None:
            # A damaged log is not read again with every request. It is read again when it has
            # changed or an operator allows to skip the damage.
            if self.damage[1] == self._as_it_is():
                raise self.damage[0]
            self.damage = None
        self.machine = self.new_machine(self.answered)
        self.applied_to = UNKNOWN  # also if the log cannot be read to its end now
        yield from self._replay_from(self.journal.start_offset)
        self.machine.loaded(now)

    def catch_up(self, now: Now) -> None:
        """The log was changed by others: it has grown, or lost what was not written."""
        if self.damage is not None:
            self.load(now)
        elif self.applied_to > self.journal.end_offset:
            log.warning("the log of a coordinator was cut back: its state is loaded again")
            self.machine.abandon()
            self.load(now)
        else:
            for _ in self._replay_from(self.applied_to):
                pass

    def _replay_from(self, offset: int) -> Iterator[None]:
        """Replay up to the end of the log, as it is when everything before was replayed."""
        while True:
            end_offset = self.journal.end_offset
            yield from self._replay_between(offset, end_offset)
            if end_offset == self.journal.end_offset:
                self.applied_to = end_offset
                return
            offset = end_offset

    def _replay_between(self, offset: int, end_offset: int) -> Iterator[None]:
        """Only the last value of a key counts, so earlier ones are not even decoded.

        The result is that of a compacted log, and comes several times faster for a log that is not
        compacted yet. Around transactions the order of all changes is kept, and also if the records
        add up.
        """
        latest: dict[bytes, bytes | None] = {}
        adds_up = self.machine.codec.adds_up
        records_read = 0
        for stretch, at, fields in self._batches(offset, end_offset):
            attributes, producer_id = fields[ATTRIBUTES], fields[PRODUCER_ID]
            if attributes & IN_TRANSACTION:
                yield from self._replay_latest(latest)
                latest = {}
            records_read += fields[LAST_OFFSET_DELTA] + 1
            if records_read >= RECORDS_PER_STEP:
                records_read = 0
                yield
            if attributes & record_batch.CONTROL:
                self._replay_marker(memoryview(stretch)[at:], producer_id)
                continue
            records = self._records_of(stretch, at, fields)
            if attributes & record_batch.TRANSACTIONAL:
                self._replay_pending(producer_id, records)
                continue
            if adds_up:
                self._replay_all(records)
                continue
            for key, value in records:
                if key is not None:
                    # The order of the remaining values is that of their last write, as in a
                    # compacted log (decision 6).
                    latest.pop(key, None)  # so that its place is that of its last write
                    latest[key] = value
        yield from self._replay_latest(latest)

    def _batches(self, offset: int, end_offset: int) -> Iterator[tuple[bytes, int, Fields]]:
        """Yields the bytes of one read, the position of a batch in them, and its header."""
        while offset < end_offset:
            stretch = self._read(offset)
            before = offset
            for at, fields in record_batch.fields_in(stretch):
                if fields[BASE_OFFSET] >= end_offset:
                    return
                last_offset = fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA]
                if last_offset >= offset:
                    batch_end = at + fields[LENGTH] + record_batch.LENGTH_OVERHEAD
                    covered = memoryview(stretch)[at + record_batch.ATTRIBUTES_AT : batch_end]
                    if crc32c(covered) != fields[CRC]:
                        first = fields[BASE_OFFSET]
                        where = f"the batch of offsets {first} to {last_offset} fails its checksum"
                        if not self.journal.skips_damage:
                            raise self._damaged(where)
                        log.error("a coordinator goes on without what is damaged: %s", where)
                    else:
                        yield stretch, at, fields
                    offset = last_offset + 1
            if offset == before:
                return

    def _read(self, offset: int) -> bytes:
        try:
            return self.journal.read(offset)
        except KafkaError as refusal:
            if refusal.code != ErrorCode.CORRUPT_MESSAGE:
                raise
            raise self._damaged(refusal.message or f"offset {offset} cannot be read") from refusal

    def _damaged(self, where: str) -> KafkaError:
        log.error("a coordinator cannot load its log, its groups or transactions wait: %s", where)
        refusal = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, where)
        self.damage = refusal, self._as_it_is()
        self.applied_to = UNKNOWN
        return refusal

    def _as_it_is(self) -> tuple[int, int, bool]:
        return self.journal.start_offset, self.journal.end_offset, self.journal.skips_damage

    def _records_of(
        self, stretch: bytes, at: int, fields: Fields
    ) -> list[tuple[bytes | None, bytes | None]]:
        """Returns None for a batch that cannot be read: any client with the right to write may have
        written it."""
        try:
            return record_batch.keys_and_values(stretch, at, fields, LARGEST_BATCH_BYTES)
        except MalformedMessage as malformed:
            log.error("a batch in the log of a coordinator cannot be read: %s", malformed)
            return []

    def _replay_pending(
        self, producer_id: int, records: list[tuple[bytes | None, bytes | None]]
    ) -> None:
        for key, value in records:
            record = None if key is None else self._decode(key, value)
            if record is not None:
                self.machine.replay_pending(producer_id, record)

    def _replay_all(self, records: list[tuple[bytes | None, bytes | None]]) -> None:
        for key, value in records:
            record = None if key is None else self._decode(key, value)
            if record is not None:
                self.machine.replay(record)

    def _replay_latest(self, latest: dict[bytes, bytes | None]) -> Iterator[None]:
        replay = self.machine.replay
        left = RECORDS_PER_STEP
        for key, value in latest.items():
            record = self._decode(key, value)
            if record is not None:
                replay(record)
            left -= 1
            if not left:
                left = RECORDS_PER_STEP
                yield

    def _replay_marker(self, batch: memoryview, producer_id: int) -> None:
        for marker in record_batch.walk(batch, LARGEST_BATCH_BYTES):
            kind = control_records.kind_of(marker)
            if kind in (ControlKind.COMMIT, ControlKind.ABORT):
                committed = kind == ControlKind.COMMIT
                self.machine.end_transaction(producer_id, committed=committed)

    def _decode(self, key: bytes, value: bytes | None) -> Record | None:
        try:
            return self.machine.codec.decode(key, value)
        except MalformedMessage as malformed:
            # Any client with the right to write may have written it; the rest of the state must
            # load.
            log.error("a record in the log of a coordinator cannot be read: %s", malformed)
            return None

    # --- appending

    def _append(self, decision: Decision, wall_ms: int) -> None:
        machine, records = self.machine, decision.records
        encode = machine.codec.encode
        # The same as the general case below for one record outside a transaction, without its
        # lists.
        if len(records) == 1 and decision.producer is None:  # most are one commit
            encoded = encode(records[0])
            end_offset = self._append_batch([encoded], None, wall_ms)
            machine.replay(records[0])
            self.applied_to = end_offset
            return
        pending: list[Encoded] = []
        size = end_offset = 0
        for change in records:
            encoded = encode(change)
            pending.append(encoded)
            size += len(encoded[0]) + len(encoded[1] or b"")
            if size > BATCH_BYTES:
                end_offset = self._append_batch(pending, decision.producer, wall_ms)
                pending, size = [], 0
        if pending:
            end_offset = self._append_batch(pending, decision.producer, wall_ms)
        if decision.producer is None:
            replay = machine.replay
            for change in records:
                replay(change)
        else:
            for change in records:
                machine.replay_pending(decision.producer[0], change)
        self.applied_to = end_offset

    def _append_batch(
        self, pairs: list[Encoded], producer: tuple[int, int] | None, wall_ms: int
    ) -> int:
        journal = self.journal
        batch = record_batch.build_pairs(
            pairs, journal.end_offset, journal.epoch, wall_ms, self.compression, producer
        )
        end_offset = journal.append(batch, wall_ms)
        assert end_offset == journal.end_offset, "the machine sees all that is in the log"
        return end_offset

    def _stamp_answered(self) -> None:
        for later in self.answered:
            # Such an answer may depend on this decision, whose records end here; it must not
            # leave before they are committed.
            later.at_offset = self.journal.end_offset


def _decide_what_is_due(machine: Machine, now: Now) -> Decision:
    return machine.due(now)
