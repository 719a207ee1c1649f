"""The records of one subscription as a pure state machine: which run next, and their outcome.

    ready = dispatcher.read(owned, natives)        # so many runs may begin
    run = dispatcher.take()                        # a slot handles its records, in order
    dispatcher.completed(records)                  # or
    failure = dispatcher.failed(run, at, error, now_ms=..., chance=...)
    ... the writes of the failure are made ...
    dispatcher.written(write)                      # only now the record is done
    dispatcher.ended(run, seconds)
    moves = dispatcher.begin_transaction(owned)    # those that replace records, with their offsets
    dispatcher.transaction_committed(owned, copies)
    owned.offsets()                                # what may be committed
    ready, writes = dispatcher.tick(now_ms)        # the clock

An event returns the number of runs that may begin: wake that many slots. Rules: records of one lane
run one after the other; a record is done when it was handled, or when the record that replaces it
is written; no offset is committed beyond a record that is not done; no record of a closing
partition begins, and no result of a lost partition counts.

Reads no clock, uses no randomness, takes no lock, writes nothing: `subscription_runner.py` does
that.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from headrace.app.dispatch.deliveries import MOST_DELIVERIES, delivered
from headrace.app.dispatch.effects import Failure, HeldLane, Move, Transacted, Write, ended_by
from headrace.app.dispatch.failure_counts import count_failure
from headrace.app.dispatch.lanes import Lanes, Run
from headrace.app.dispatch.owned_partition import Acknowledgement, OwnedPartition, Stream
from headrace.app.dispatch.record_in_hand import (
    DeliveredRecord,
    FetchedRecord,
    RecordInHand,
    lane_alone,
    lane_of_key,
    retried_record,
)
from headrace.app.dispatch.run_size import BatchWait, RunSize
from headrace.app.dispatch.waits import (
    BatchIsLate,
    LaneWait,
    PutOff,
    RecordWait,
    ReleaseWait,
    Waits,
)
from headrace.app.retries.failure_fate import Fate, fate_after, verdict_on
from headrace.app.retry import TryLater
from headrace.app.subscription import Subscription
from headrace.client.records import Outgoing

# Records without order that wait in memory for their next attempt; more wait in the retry topic.
MOST_IN_MEMORY = 1_000
# A copy that could not be written is written again after this.
WRITE_AGAIN_MS = 1_000

_ATTEMPTS = attrgetter("made")


class Dispatcher:
    def __init__(self, subscription: Subscription, *, most_in_memory: int = MOST_IN_MEMORY) -> None:
        # Invariants. A record is in exactly one place: a lane, a run, a wait, the blocked keys, a
        # write that is not confirmed, or a move of a transaction. `completion` of its stream marks
        # it as finished when it leaves the last of them, and the committed offset never passes an
        # unfinished one.
        self.subscription = subscription
        self._most_in_memory = most_in_memory
        self.stats = subscription.stats
        self.delayed = False  # whether long waits go through the delay service
        # For a queue: the broker gives a record up after so many deliveries. None: it may.
        self.delivery_limit: int | None = MOST_DELIVERIES
        self.lanes: Lanes[RecordInHand] = Lanes(subscription.order_by)
        self.now_ms = 0  # the time of the last tick; a retry may begin a little later than its time
        self.waits = Waits()
        self.run_size = RunSize(subscription)
        self._batch_wait = BatchWait(subscription, self.lanes, self.waits)
        self._partitions: list[OwnedPartition] = []
        self.in_memory = 0  # records without order that wait in memory
        self.put_off = PutOff()

    # ---- partitions come and go

    def own(self, owned: OwnedPartition) -> None:
        """The group gave us this partition."""
        self._partitions.append(owned)

    def close(self, owned: OwnedPartition) -> None:
        """Begin no more records of this partition; running ones may end."""
        owned.closing = True
        self.lanes.drop(lambda record: record.stream.owned is owned)

    def forget(self, owned: OwnedPartition) -> list[Transacted]:
        """Another member owns it now. Returns transactions whose slots need not wait any more."""
        # Slots that still run its records finish them, but no result,
        # offset or write of theirs may count.
        owned.gone = True
        self.close(owned)
        dropped = owned.moves + owned.moving
        owned.moves, owned.moving = [], []
        if owned in self._partitions:
            self._partitions.remove(owned)
        return ended_by(dropped)

    # ---- records come

    def read(self, owned: OwnedPartition, natives: Iterable[FetchedRecord]) -> int:
        """Records of the source partition, in order."""
        if owned.closing:
            return 0
        stream = owned.source
        begin = stream.completion.begin
        order_by = self.subscription.order_by
        new: list[RecordInHand] = []
        for native in natives:
            offset = native.offset()
            assert offset is not None
            # Already finished, according to the metadata of the offset commit.
            if not begin(offset):
                if not stream.begin(offset):
                    continue
                begin = stream.completion.begin
            if order_by is None:
                new.append(RecordInHand(native, stream, offset, None))
            elif order_by == "partition":
                new.append(RecordInHand(native, stream, offset, owned))
            else:
                lane = lane_of_key(owned, native, offset)
                record = RecordInHand(native, stream, offset, lane)
                # An earlier record of this key waits in the retry partition. The later one must go
                # behind it there, or it would overtake.
                if owned.blocked.blocks(lane):
                    self._move(record, made=0, due_ms=0)
                else:
                    new.append(record)
        self.stats.received += len(new)
        self.lanes.add(new)
        return self.lanes.ready if new else 0

    def read_queue(
        self, stream: Stream, natives: Iterable[DeliveredRecord], now_ms: int
    ) -> tuple[int, list[Write]]:
        """Records that a share group delivered, of the source or of its retry topic. Returns how
        many runs may begin, and the dead letters to write."""
        if stream.owned.closing:
            return 0, []
        new, letters = delivered(stream, natives, self.delivery_limit, now_ms)
        self.stats.received += len(new) + len(letters)
        self.stats.in_flight += len(letters)
        stream.owned.running += len(letters)
        if letters:
            count_failure(self.stats, letters[0].fate, None, len(letters), now_ms)
        self.lanes.add(new)
        return self.lanes.ready if new else 0, letters

    def read_retries(self, owned: OwnedPartition, natives: Iterable[FetchedRecord]) -> int:
        """Records of the retry partition, in order."""
        if owned.closing:
            return 0
        stream = owned.retry
        for native in natives:
            offset = native.offset()
            assert offset is not None
            if stream.begin(offset):
                lane = self._lane_of_retry(owned, native, offset)
                owned.blocked.arrived(retried_record(native, stream, offset, lane))
                self.stats.received += 1
        return self._let_out(owned)

    def _lane_of_retry(self, owned: OwnedPartition, native: FetchedRecord, offset: int) -> Hashable:
        match self.subscription.order_by:
            case "key":
                return lane_of_key(owned, native, -1 - offset)
            case "partition":
                return owned, "retry"
        return owned, offset

    def retries_read_to(self, owned: OwnedPartition, end: int) -> None:
        """The retry partition is read up to `end`; when all of it is read, its source may begin."""
        owned.retry.read_to = end
        if owned.loading_to is not None and end >= owned.loading_to:
            owned.loading_to = None

    def _let_out(self, owned: OwnedPartition) -> int:
        """Start the due retries, once the whole retry partition has been read."""
        if owned.loading_to is not None or owned.closing or not owned.blocked.count:
            return 0
        due = owned.blocked.take_due(self.now_ms)
        self.lanes.add_first(due)
        return self.lanes.ready if due else 0

    # ---- time

    def tick(self, now_ms: int) -> tuple[int, list[Write]]:
        """The clock has moved. Returns how many runs may begin, and the writes to repeat."""
        self.time_is(now_ms)
        ready = 0
        writes: list[Write] = []
        for wait in self.waits.due(now_ms):
            match wait:
                case LaneWait(lane):
                    self.lanes.release(lane)
                case RecordWait(record, made):
                    self._try_again(record, made)
                case ReleaseWait(record):
                    self.in_memory -= 1
                    record.owned.acknowledge(record, Acknowledgement.RELEASE)
                case Write():
                    writes += self._still_wanted(wait)
                case BatchIsLate():
                    pass  # `take` sees that the batch is late
            ready = self.lanes.ready
        for owned in self._partitions:
            ready = self._let_out(owned) or ready
        return ready, writes

    def time_is(self, now_ms: int) -> None:
        """The clock has moved, perhaps back."""
        # Set back by an hour, it must not make a wait of a second an hour longer. What waits in the
        # retry partition is due by the clock that all workers share.
        if now_ms < self.now_ms:
            self.waits.set_back(self.now_ms - now_ms)
            self._batch_wait.set_back(self.now_ms - now_ms)
        self.now_ms = now_ms

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do unless something else happens; None: never."""
        due = [self.waits.next_ms()]
        for owned in self._partitions:
            if owned.loading_to is None and not owned.closing:
                due.append(owned.blocked.next_due_ms())
        return min((each for each in due if each is not None), default=None)

    def _try_again(self, record: RecordInHand, made: int) -> None:
        self.in_memory -= 1
        if not record.stream.owned.closing:
            record.made = made
            self.lanes.add_first([record])

    # ---- slots

    def take(self) -> Run[RecordInHand] | None:
        """The next run; None if nothing may run now."""
        # An incomplete batch waits for more records, until `batch_wait` is over.
        if self._batch_wait.holds_back(self.now_ms):
            return None
        # A lane that is running gives nothing: its records run one after the other, whatever the
        # number of slots.
        run = self.lanes.take(self.run_size.most(self.lanes.waiting))
        if run is None:
            return None
        # A batch in order fails as a whole: a record that came later must not be given up together
        # with one that has used up its attempts.
        if run.lane is not None and self.subscription.batch is not None:
            self.lanes.keep_alike(run, _ATTEMPTS)
        for record in run.records:
            record.stream.owned.running += 1
        self.stats.in_flight += len(run.records)
        return run

    def completed(self, records: Sequence[RecordInHand]) -> int:
        """These records are handled, and everything they published is acknowledged."""
        self.stats.handled += len(records)
        return self._over(records)

    def _over(
        self, records: Sequence[RecordInHand], how: Acknowledgement = Acknowledgement.ACCEPT
    ) -> int:
        """Mark records as finished."""
        self.stats.in_flight -= len(records)
        ready = 0
        for record in records:
            stream = record.stream
            owned = stream.owned
            owned.running -= 1
            if owned.gone:
                continue
            if owned.acknowledgements is not None:
                owned.acknowledge(record, how)
                continue
            # Only now the committed offset may pass this record.
            stream.completion.finish(record.offset)
            if stream.retry:
                owned.blocked.finished(record)
                ready = self._let_out(owned) or ready
        return ready

    def transacted(self, records: Sequence[RecordInHand]) -> None:
        """Exactly once: their transaction has marked them as finished already."""
        self.stats.handled += len(records)
        self._not_running(records)

    def not_begun(self, records: Sequence[RecordInHand]) -> None:
        """Their partition is being revoked or lost; another member will get them."""
        self._not_running(records)

    def _not_running(self, records: Sequence[RecordInHand]) -> None:
        self.stats.in_flight -= len(records)
        for record in records:
            record.stream.owned.running -= 1

    def ended(self, run: Run[RecordInHand], seconds: float) -> int:
        """A run has ended; its lane may continue."""
        self.stats.busy_seconds += seconds
        self.run_size.learn(seconds, len(run.records))
        self.lanes.done(run)
        return self.lanes.ready

    # ---- failures

    def failed(
        self,
        run: Run[RecordInHand],
        at: int,
        error: BaseException,
        *,
        now_ms: int,
        chance: float,
    ) -> Failure:
        """The attempt at this record of a run failed; the records before it are finished."""
        record = run.records[at]
        failure = self._failure([record], error, now_ms, chance)
        due_ms = now_ms + (failure.verdict.wait_ms or 0)
        made = failure.verdict.made
        match failure.fate:
            # The lane itself waits, and with it all later records of its key or partition.
            case Fate.WAITS_IN_PLACE:
                record.made = made
                self._hold_until(run, run.records[at:], due_ms)
            case Fate.MOVES_WITH_ITS_KEY:
                self._move_key(run, at, made, due_ms)
            case Fate.WAITS_IN_MEMORY:
                self._not_running([record])
                self.in_memory += 1
                self.waits.add(due_ms, RecordWait(record, made))
            case Fate.MOVES:
                self._not_running([record])
                record.lane = lane_alone(record)
                self._move(record, made, due_ms)
            case Fate.DELAYED:
                failure.writes = [Write(record, failure.fate, error, made, now_ms, due_ms)]
            case Fate.DEAD_LETTER:
                failure.writes = [Write(record, failure.fate, error, made, now_ms)]
                self._hold_until_written(run, run.records[at + 1 :], failure)
            case Fate.DROPPED if not self.subscription.exactly_once:
                failure.ready = self._over([record], Acknowledgement.REJECT)
            case Fate.RELEASED:
                self._not_running([record])
                room, self.in_memory = self.in_memory < self._most_in_memory, self.in_memory + 1
                self.waits.add(due_ms if room else now_ms, ReleaseWait(record))
            case Fate.COMES_ELSEWHERE:
                self._let_go(run, at)
                failure.goes_on = run.lane is None
        return failure

    def batch_failed(
        self, run: Run[RecordInHand], error: BaseException, *, now_ms: int, chance: float
    ) -> Failure:
        """A batch in order failed as a whole."""
        records = run.records
        failure = self._failure(records, error, now_ms, chance)
        match failure.fate:
            case Fate.WAITS_IN_PLACE:
                for record in records:
                    record.made = failure.verdict.made
                self._hold_until(run, records, now_ms + (failure.verdict.wait_ms or 0))
            case Fate.DEAD_LETTER:
                failure.writes = [
                    Write(record, failure.fate, error, record.made + 1, now_ms)
                    for record in records
                ]
                self._hold_until_written(run, [], failure)
            case Fate.DROPPED:
                failure.ready = self._over(records)
            case Fate.COMES_ELSEWHERE:
                self._let_go(run, 0)
        return failure

    def _failure(
        self, records: Sequence[RecordInHand], error: BaseException, now_ms: int, chance: float
    ) -> Failure:
        """Decide and count; the state does not change yet."""
        first = records[0]
        verdict = verdict_on(
            error, made_before=first.made, retry=self.subscription.retry, chance=chance
        )
        fate = fate_after(
            verdict,
            self.subscription,
            room=self.in_memory < self._most_in_memory,
            delayed=self.delayed,
            ours=not first.stream.owned.gone,
        )
        count_failure(self.stats, fate, verdict, len(records), now_ms)
        if isinstance(error, TryLater):
            self.put_off.count(now_ms)  # forgets those that are due
            self.put_off.add(now_ms + error.after_ms)
        alone = fate in (Fate.WAITS_IN_MEMORY, Fate.MOVES, Fate.DELAYED, Fate.DROPPED)
        alone = alone or fate is Fate.RELEASED
        return Failure(fate, verdict, goes_on=alone)

    def _hold(self, run: Run[RecordInHand], rest: list[RecordInHand]) -> None:
        self._not_running(rest)
        self.lanes.hold(run, [record for record in rest if not record.stream.owned.closing])

    def _hold_until(self, run: Run[RecordInHand], rest: list[RecordInHand], due_ms: int) -> None:
        """Hold the lane in memory, the failed record first."""
        assert run.lane is not None
        self._hold(run, rest)
        self.waits.add(due_ms, LaneWait(run.lane.name))

    def _hold_until_written(
        self, run: Run[RecordInHand], rest: list[RecordInHand], failure: Failure
    ) -> None:
        """Hold the lane until the copies are written. With exactly once they are written with the
        rest of the run.
        """
        if run.lane is None or self.subscription.exactly_once:
            failure.goes_on = True
            return
        self._hold(run, rest)
        held = HeldLane(run.lane.name, len(failure.writes))
        for write in failure.writes:
            write.held = held

    def _let_go(self, run: Run[RecordInHand], at: int) -> None:
        """Another worker has its partition: let go of this record and, in a lane, of the rest of
        the run."""
        rest = run.records[at:] if run.lane is not None else run.records[at : at + 1]
        self._not_running(rest)
        self.lanes.done(run)

    # ---- copies that are written

    def written(self, write: Write) -> int:
        """The copy is written, and so the record is done."""
        ready = self._over([write.record], Acknowledgement.REJECT)
        held = write.held
        if held is not None:
            held.writes -= 1
            if not held.writes:
                self.lanes.release(held.lane)
                ready = self.lanes.ready
        return ready

    def not_written(self, write: Write, now_ms: int) -> None:
        """The copy was not written; `tick` returns it again later."""
        if self._still_wanted(write):
            self.waits.add(now_ms + WRITE_AGAIN_MS, write)

    def _still_wanted(self, write: Write) -> list[Write]:
        """Returns nothing if the partition was revoked: its new owner has the record."""
        if not write.record.stream.owned.gone:
            return [write]
        self._not_running([write.record])
        if write.held is not None:
            self.lanes.release(write.held.lane)
        return []

    # ---- records in one transaction with offsets

    def _move(self, record: RecordInHand, made: int, due_ms: int) -> None:
        owned = record.stream.owned
        if not owned.gone:
            owned.blocked.appending(record.lane)
            owned.moves.append(Move(record, made, due_ms))

    def _move_key(self, run: Run[RecordInHand], at: int, made: int, due_ms: int) -> None:
        """Move the failed record and all that came after it, in its run and in its lane."""
        failed, *later = run.records[at:]
        self._not_running(run.records[at:])
        self._move(failed, made, due_ms)
        for record in later + self.lanes.empty(run):
            if record.stream.retry:
                record.stream.owned.blocked.returned(record)
            else:
                self._move(record, made=record.made, due_ms=0)
        self.lanes.done(run)

    def transact(
        self,
        results: Sequence[tuple[RecordInHand, list[Outgoing[Any, Any]]]],
        transacted: Transacted,
    ) -> None:
        """Exactly once: these results and the offsets of their records go into one transaction."""
        for record, outgoing in results:
            owned = record.stream.owned
            if owned.gone:
                transacted.left -= 1
            else:
                owned.moves.append(Move(record, results=outgoing, of=transacted))

    def begin_transaction(self, owned: OwnedPartition) -> list[Move]:
        """All moves to write together with the partition's offsets, which from now on include them.
        May be called again after a failed transaction.
        """
        for move in owned.moves:
            # The offsets of this transaction include the moved records. If it fails, the same moves
            # go into the next one (`moving`), so a record is never finished without its copy.
            move.record.stream.completion.finish(move.record.offset)
        owned.moving += owned.moves
        owned.moves = []
        return list(owned.moving)

    def results_refused(self, move: Move, error: BaseException, now_ms: int) -> Write | None:
        """Exactly once: the cluster will never accept these results."""
        # The transaction would lose its other records too. So the record is given up: its dead
        # letter, if any, replaces the results.
        move.given_up, move.results = True, []
        self.stats.failed += 1
        if not self.subscription.dead_letters:
            return None
        self.stats.parked += 1
        self.stats.last_parked_at_ms = now_ms
        return Write(move.record, Fate.DEAD_LETTER, error, move.record.made + 1, now_ms)

    def transaction_committed(
        self, owned: OwnedPartition, copies: Iterable[tuple[Move, int]]
    ) -> tuple[int, list[Transacted]]:
        """The transaction is committed; `copies` have these offsets. Returns how many runs may
        begin, and the transactions whose slots may continue."""
        moves, owned.moving = owned.moving, []
        for move, offset in copies:
            owned.blocked.appended(move.record.lane, offset)
        ready = 0
        for move in moves:
            if move.record.stream.retry and not owned.gone:
                owned.blocked.finished(move.record)
                ready = self._let_out(owned) or ready
        return ready, ended_by(moves)
