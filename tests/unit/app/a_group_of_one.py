"""A world for a dispatcher: logs, a group's offsets, a delay service and slots, all plain lists.

The world plays the runner and the slots, one step at a time, and lets anything fail. Beside them it
keeps the model: which records have ever been finished, and how. Records are known by their number,
which is their value through all copies. `check` holds after every step; what is about one attempt
is asserted where the attempt begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Message as NativeMessage

from headrace.app.attempts.handler import plan
from headrace.app.decoding import Undecodable
from headrace.app.dispatch.blocked_keys import BlockedKeys
from headrace.app.dispatch.completion import Completion, decode
from headrace.app.dispatch.dispatcher import Dispatcher
from headrace.app.dispatch.effects import Failure, Move, Transacted, Write
from headrace.app.dispatch.lanes import Run
from headrace.app.dispatch.owned_partition import OwnedPartition, Stream
from headrace.app.dispatch.record_in_hand import RecordInHand
from headrace.app.retries.copies import copy_to_move, copy_to_write
from headrace.app.retries.failure_fate import Fate
from headrace.app.retry import Retry, TryLater
from headrace.app.subscription import Subscription
from headrace.client.consumer.fetched import headers_of
from headrace.client.records import Outgoing
from headrace.wire.contract.headers import DELIVER_AT

TOPIC, GROUP, WORKER = "orders", "billing", "host/1"
MOST_OUT = 4  # slots
MOST_WAITING, CHUNK = 6, 3  # per partition
MOST_BLOCKED, MOST_IN_MEMORY = 4, 2
ATTEMPTS = 3  # a short wait follows the first, a long one the second
RETRY = Retry(ATTEMPTS, first="500ms", longest="1m", factor=120, jitter=0, fatal=(KeyError,))
START_MS = 1_000_000

Headers = list[tuple[str, bytes | None]]


@dataclass
class Written:
    """A record of a log."""

    offset: int
    number: int
    key: bytes | None
    headers: Headers = field(default_factory=list)

    def native(self, topic: str, partition: int) -> NativeMessage:
        value = b"%d" % self.number
        headers: Any = self.headers or None
        return NativeMessage(topic, partition, self.offset, self.key, value, headers=headers)


@dataclass
class Log:
    """A partition. Offsets have holes, as transactions leave them."""

    records: list[Written] = field(default_factory=list)
    end: int = 0

    def append(self, number: int, key: bytes | None, headers: Headers | None = None) -> int:
        self.records.append(Written(self.end, number, key, headers or []))
        self.end += 1
        return self.end - 1


@dataclass
class Committed:
    position: int = 0
    metadata: str = ""

    def finished(self, offset: int) -> bool:
        ranges = decode(self.position, self.metadata)
        return offset < self.position or any(first <= offset < after for first, after in ranges)


class Partition:
    """What outlives a worker: both logs, and what the group has of them."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.source, self.retry = Log(), Log()
        self.committed = {False: Committed(), True: Committed()}  # by Stream.retry


@dataclass
class Slot:
    """Has a run in hand, and is at one of its records."""

    run: Run[RecordInHand]
    at: int = 0
    begun: bool = False
    results: list[tuple[RecordInHand, list[Outgoing[Any, Any]]]] = field(default_factory=list)
    over: bool = True  # nothing of the run went elsewhere
    batch: list[RecordInHand] = field(default_factory=list)
    waits_for: Transacted | None = None
    transacted: bool = False

    @property
    def record(self) -> RecordInHand:
        return self.run.records[self.at]


class World:
    def __init__(self, partitions: int, **options: Any) -> None:
        delayed = options.pop("delayed", False)
        self.options, self.delayed = options, delayed
        self.now_ms = START_MS
        self.partitions = [Partition(number) for number in range(partitions)]
        self.place: dict[int, tuple[Partition, Written]] = {}  # by number
        self.delay: list[tuple[int, int, Written]] = []  # due, partition: not delivered yet
        self.dead: list[int] = []
        self.results: list[int] = []  # exactly once: one of each record that is not dead
        self.done: dict[int, int] = {}  # number -> in which epoch of its partition
        self.made: dict[int, int] = {}  # attempts that count
        self.due_ms: dict[int, int] = {}
        self.epochs = [0] * partitions
        # Of records that were not committed when their partition changed hands: those may be
        # handled again, and how often they failed may be forgotten.
        self.doubtful: set[int] = set()
        self.begin()

    # ---- the worker

    def begin(self) -> None:
        """A new process: it knows what is committed and nothing else."""
        concurrency = 1 if self.options.get("exactly_once") else MOST_OUT
        subscription = Subscription(
            (TOPIC,), plan(_nothing), retry=RETRY, concurrency=concurrency, **self.options
        )
        self.dispatcher = Dispatcher(subscription, most_in_memory=MOST_IN_MEMORY)
        self.dispatcher.delayed = self.delayed
        self.subscription = subscription
        self.owned: dict[int, OwnedPartition] = {}
        self.read_to: dict[int, dict[bool, int]] = {}
        self.slots: list[Slot] = []
        self.writes: list[Write] = []
        for partition in self.partitions:
            self.assign(partition)

    def assign(self, partition: Partition) -> None:
        owned = OwnedPartition(
            TOPIC,
            partition.number,
            retry_topic=f"{TOPIC}.{GROUP}.retry",
            headers_of=headers_of,
        )
        owned.blocked = BlockedKeys(MOST_BLOCKED)
        for stream in owned.streams:
            at = partition.committed[stream.retry]
            stream.completion = Completion(at.position, decode(at.position, at.metadata))
            stream.committed = (at.position, at.metadata)
        if partition.retry.end > owned.retry.completion.position and self.in_keys:
            owned.loading_to = partition.retry.end
        self.owned[partition.number] = owned
        self.read_to[partition.number] = {s.retry: s.completion.position for s in owned.streams}
        self.epochs[partition.number] += 1
        self.dispatcher.own(owned)

    @property
    def in_keys(self) -> bool:
        return self.subscription.order_by == "key"

    def change_hands(self, partition: Partition) -> None:
        """The model's side of it: what is not committed is in doubt."""
        for number, (of, written) in self.place.items():
            if of is partition and not of.committed[False].finished(written.offset):
                self.doubtful.add(number)
        for copy in partition.retry.records:
            if not partition.committed[True].finished(copy.offset):
                self.doubtful.add(copy.number)
        self.doubtful |= {c.number for _, of, c in self.delay if of == partition.number}

    def lose(self, number: int) -> None:
        """Another has it: nothing of what we had counts. Then it comes back."""
        owned = self.owned.pop(number)
        self._told(self.dispatcher.forget(owned))
        self.change_hands(self.partitions[number])
        self.assign(self.partitions[number])

    def crash(self) -> None:
        for partition in self.partitions:
            self.change_hands(partition)
        for write in self.writes:
            self.doubtful.add(number_of(write.record))
        self.begin()

    # ---- what is read

    def send(self, partition: Partition, key: bytes | None) -> None:
        number = len(self.place)
        partition.source.append(number, key)
        self.place[number] = partition, partition.source.records[-1]

    def poll(self, number: int) -> None:
        owned, partition = self.owned[number], self.partitions[number]
        owned.paused = owned.must_pause(MOST_WAITING)
        if not owned.paused:
            read = self._next(owned.source, partition.source)
            self.dispatcher.read(owned, read)

    def poll_retries(self, number: int) -> None:
        owned, partition = self.owned[number], self.partitions[number]
        read = self._next(owned.retry, partition.retry)
        if read:
            self.dispatcher.read_retries(owned, read)
        if self.read_to[number][True] >= partition.retry.end:
            self.dispatcher.retries_read_to(owned, partition.retry.end)

    def _next(self, stream: Stream, log: Log) -> list[NativeMessage]:
        to = self.read_to[stream.partition]
        found = [one for one in log.records if one.offset >= to[stream.retry]][:CHUNK]
        to[stream.retry] = found[-1].offset + 1 if found else log.end
        return [one.native(stream.topic, stream.partition) for one in found]

    # ---- slots

    def take(self) -> None:
        if len(self.slots) == self.subscription.concurrency:
            return
        run = self.dispatcher.take()
        if run is None:
            return
        assert run.records
        assert not any(record.owned.closing for record in run.records), "begun after it was closed"
        if run.lane is not None:
            out = [slot.run.lane.name for slot in self.slots if slot.run.lane is not None]
            assert run.lane.name not in out, "two slots have one lane"
        self.slots.append(Slot(run))

    def step(self, slot: Slot, how: BaseException | None) -> None:
        """Begin the next attempt of a slot, or end it as `how` says."""
        if slot.waits_for is not None:
            self._go_on_after_transaction(slot)
        elif self.subscription.batch is not None:
            self._step_batch(slot, how)
        elif slot.at == len(slot.run.records):
            self._end(slot)
        elif not slot.begun:
            self._begin_attempt(slot)
        else:
            slot.begun = False
            self._end_attempt(slot, how)

    def _begin_attempt(self, slot: Slot) -> None:
        if slot.record.owned.closing:
            self.dispatcher.not_begun([slot.record])
            slot.at += 1
            return
        self.begins(slot.record)
        slot.begun = True

    def _end_attempt(self, slot: Slot, how: BaseException | None) -> None:
        record = slot.record
        if how is not None:
            failure = self.fails(slot.run, slot.at, how)
            if self.subscription.exactly_once and (failure.writes or failure.fate is Fate.DROPPED):
                instead = [_copy(write) for write in failure.writes] or [_result(record, "nothing")]
                slot.results.append((record, instead))
                if failure.fate is not Fate.DELAYED:
                    self.finishes(record)
            elif not failure.goes_on:
                slot.over = False
                slot.at = len(slot.run.records)
                self._end(slot)
                return
        elif self.subscription.exactly_once:
            slot.results.append((record, [_result(record, "results")]))
            self.finishes(record)
        else:
            self.finishes(record)
            self.dispatcher.completed([record])
        slot.at += 1

    def _end(self, slot: Slot) -> None:
        if slot.results:
            slot.waits_for = Transacted(len(slot.results), lambda: _mark(slot))
            self.dispatcher.transact(slot.results, slot.waits_for)
            if not slot.waits_for.left:
                slot.transacted = True
            return
        self.slots.remove(slot)
        if slot.over:
            self.dispatcher.ended(slot.run, 0.001)

    def _go_on_after_transaction(self, slot: Slot) -> None:
        if slot.transacted:
            self.dispatcher.transacted([record for record, _ in slot.results])
            slot.results, slot.waits_for = [], None
            self._end(slot)

    def _step_batch(self, slot: Slot, how: BaseException | None) -> None:
        if not slot.begun:
            here = [record for record in slot.run.records if not record.owned.closing]
            self.dispatcher.not_begun([r for r in slot.run.records if r.owned.closing])
            for record in here:
                self.begins(record, batch=here)
            slot.batch, slot.begun = here, True
            return
        self.slots.remove(slot)
        over, whole = True, Run(slot.batch, slot.run.lane)
        if how is None:
            for record in slot.batch:
                self.finishes(record)
            self.dispatcher.completed(slot.batch)
        elif slot.batch and whole.lane is not None:
            over = self.fails_together(whole, how)
        else:
            for at in range(len(slot.batch)):
                self.fails(whole, at, how)
        if over:
            self.dispatcher.ended(slot.run, 0.001)

    # ---- the model: one attempt

    def begins(self, record: RecordInHand, batch: Sequence[RecordInHand] = ()) -> None:
        number, partition = number_of(record), record.stream.partition
        assert not record.owned.gone
        if number not in self.doubtful:
            assert number not in self.done, f"{number} is handled again"
            assert record.made == self.made.get(number, 0), f"{number}: attempts miscounted"
            assert self.due_ms.get(number, 0) <= self.now_ms, f"{number} is tried too early"
        elif self.done.get(number) == self.epochs[partition] and not self.delayed:
            raise AssertionError(f"{number} is handled again by the same owner")
        assert record.made < ATTEMPTS
        assert not record.stream.retry or record.due_ms <= self.now_ms
        together = {number_of(one) for one in batch}
        for earlier in self._before(number):
            assert earlier in self.done or earlier in together, f"{number} overtakes {earlier}"

    def _before(self, number: int) -> Iterable[int]:
        """Those that must be finished first."""
        partition, written = self.place[number]
        for earlier, (of, one) in self.place.items():
            if earlier >= number or of is not partition:
                continue
            same_key = one.key is not None and one.key == written.key
            if self.subscription.order_by == "partition" or (self.in_keys and same_key):
                yield earlier

    def finishes(self, record: RecordInHand) -> None:
        if not record.owned.gone:
            self.done[number_of(record)] = self.epochs[record.stream.partition]
        else:  # the handler had its effect, and whoever owns the record may repeat it
            self.done.setdefault(number_of(record), -1)

    def fails(self, run: Run[RecordInHand], at: int, error: BaseException) -> Failure:
        record = run.records[at]
        made = record.made
        failure = self.dispatcher.failed(run, at, error, now_ms=self.now_ms, chance=0.5)
        self._note(record, made, error, failure)
        if not self.subscription.exactly_once:
            self.writes += failure.writes
        return failure

    def fails_together(self, run: Run[RecordInHand], error: BaseException) -> bool:
        records = [(record, record.made) for record in run.records]
        failure = self.dispatcher.batch_failed(run, error, now_ms=self.now_ms, chance=0.5)
        for record, made in records:
            self._note(record, made, error, failure)
        self.writes += failure.writes
        return failure.goes_on

    def _note(
        self, record: RecordInHand, made: int, error: BaseException, failure: Failure
    ) -> None:
        """`made`: attempts before this one."""
        number, later = number_of(record), isinstance(error, TryLater)
        if failure.fate is Fate.COMES_ELSEWHERE:
            assert record.owned.gone
            return
        self.made[number] = made if later else made + 1
        wait_ms = failure.verdict.wait_ms
        gives_up = isinstance(error, KeyError | Undecodable) or (made + 1 == ATTEMPTS and not later)
        assert (wait_ms is None) == gives_up, "given up too early, or tried too often"
        if wait_ms is not None:
            self.due_ms[number] = self.now_ms + wait_ms
        if failure.fate is Fate.DROPPED and not self.subscription.exactly_once:
            self.finishes(record)
        for write in failure.writes:
            write.outgoing = _copy(write)

    # ---- writes, transactions, commits

    def end_write(self, write: Write, *, safe: bool) -> None:
        self.writes.remove(write)
        if not safe:
            self.dispatcher.not_written(write, self.now_ms)
            return
        assert write.outgoing is not None
        self._store(number_of(write.record), write.record.stream.partition, write.outgoing)
        if write.fate is Fate.DEAD_LETTER:
            self.finishes(write.record)
        self.dispatcher.written(write)

    def _store(self, number: int, partition: int, outgoing: Outgoing[Any, Any]) -> None:
        headers = dict(outgoing.headers)
        if outgoing.topic in ("results", "nothing"):
            self.results.append(number)
        elif DELIVER_AT in headers:
            due_ms = int(headers.pop(DELIVER_AT) or 0)
            copy = Written(0, number, outgoing.key, list(headers.items()))
            self.delay.append((due_ms, partition, copy))
        else:
            assert number not in self.dead or number in self.doubtful
            self.dead.append(number)

    def deliver(self) -> None:
        """The delay service has its turn."""
        for entry in list(self.delay):
            due_ms, number, copy = entry
            if due_ms <= self.now_ms:
                self.delay.remove(entry)
                self.partitions[number].retry.append(copy.number, copy.key, copy.headers)

    def transaction(self, *, commits: bool) -> None:
        """One transaction of all partitions that have something to be written with offsets."""
        moving = [one for one in self.owned.values() if one.moves or one.moving]
        moves = [(one, move) for one in moving for move in self.dispatcher.begin_transaction(one)]
        if not moves or not commits:
            return
        copies: list[tuple[OwnedPartition, Move, int]] = []
        for owned, move in moves:
            for outgoing in move.results or ():
                self._store(number_of(move.record), owned.partition, outgoing)
            if move.results is None:
                outgoing = copy_to_move(move, self.now_ms, worker=WORKER)
                log = self.partitions[owned.partition].retry
                number = number_of(move.record)
                copies.append((owned, move, log.append(number, outgoing.key, outgoing.headers)))
        for owned in moving:
            self._commit(owned, owned.offsets())
            self.partitions[owned.partition].retry.end += 1  # the marker
        for owned in moving:
            own = [(move, offset) for of, move, offset in copies if of is owned]
            self._told(self.dispatcher.transaction_committed(owned, own)[1])

    def commit(self) -> None:
        for owned in self.owned.values():
            self._commit(owned, owned.changed_offsets(sent_too=False))

    def _commit(self, owned: OwnedPartition, offsets: list[tuple[Stream, tuple[int, str]]]) -> None:
        for stream, said in offsets:
            self.partitions[owned.partition].committed[stream.retry] = Committed(*said)
            stream.committed = said

    def _told(self, ended: list[Transacted]) -> None:
        for one in ended:
            one.then()

    # ---- time

    def pass_ms(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.tick()

    def tick(self) -> None:
        writes = self.dispatcher.tick(self.now_ms)[1]
        assert not any(write.record.owned.gone for write in writes), "another has that record"
        self.writes += writes

    # ---- what always holds

    def check(self) -> None:
        for number, (partition, written) in self.place.items():
            if not self.is_over(number):
                assert self._can_be_read(number, partition, written), f"{number} is lost"
        for owned in self.owned.values():
            outstanding = owned.source.completion.outstanding
            assert outstanding <= MOST_WAITING + CHUNK, "too much of it waits in memory"
            assert owned.blocked.count <= MOST_BLOCKED + MOST_WAITING + CHUNK or not self.in_keys
            assert owned.running >= 0
        assert self.dispatcher.in_memory <= MOST_IN_MEMORY or self.subscription.exactly_once
        assert self.subscription.stats.in_flight >= 0
        if self.subscription.exactly_once:
            ends = self.results + self.dead
            assert len(ends) == len(set(ends)), "a record counts twice"

    def is_over(self, number: int) -> bool:
        """Whether it need not be read again."""
        if self.subscription.exactly_once:
            return number in self.results or number in self.dead
        return number in self.done

    def _can_be_read(self, number: int, partition: Partition, written: Written) -> bool:
        """Whether whoever starts from what is committed will come to it."""
        if not partition.committed[False].finished(written.offset):
            return True
        copies = [one for one in partition.retry.records if one.number == number]
        if any(not partition.committed[True].finished(one.offset) for one in copies):
            return True
        return any(copy.number == number for _, _, copy in self.delay)

    # ---- the end: nothing fails any more

    def finish(self) -> None:
        for _ in range(5_000):
            if self._is_finished():
                break
            self._one_turn()
        assert all(map(self.is_over, self.place)), "some were never finished"
        assert self._is_finished()
        assert not self.dispatcher.in_memory
        for owned in self.owned.values():
            assert not owned.running and not owned.blocked.count
            partition = self.partitions[owned.partition]
            assert all(
                partition.committed[False].finished(r.offset) for r in partition.source.records
            )
            assert all(
                partition.committed[True].finished(r.offset) for r in partition.retry.records
            )

    def _one_turn(self) -> None:
        self.transaction(commits=True)
        for write in list(self.writes):
            self.end_write(write, safe=True)
        for number in range(len(self.partitions)):
            self.poll_retries(number)
            self.poll(number)
        self.take()
        for slot in list(self.slots):
            self.step(slot, None)
        self.deliver()
        self.pass_ms(1_000)
        self.commit()
        self.check()

    def _is_finished(self) -> bool:
        """Nothing is under way, nothing waits and nothing is left to be read."""
        waits = self.slots or self.writes or self.delay or self.dispatcher.lanes.waiting
        if waits or self.dispatcher.in_memory or self.subscription.stats.in_flight:
            return False
        for owned in self.owned.values():
            partition, to = self.partitions[owned.partition], self.read_to[owned.partition]
            if owned.blocked.count or owned.moves or owned.moving:
                return False
            if to[False] < partition.source.end or to[True] < partition.retry.end:
                return False
            if owned.changed_offsets(sent_too=False):
                return False
        return True


def number_of(record: RecordInHand) -> int:
    return int(record.native.value() or b"")


def _copy(write: Write) -> Outgoing[Any, Any]:
    return write.outgoing or copy_to_write(write, group=GROUP, worker=WORKER, more=[])


def _result(record: RecordInHand, topic: str) -> Outgoing[Any, Any]:
    return Outgoing(topic, record.native.value(), None, [])


def _mark(slot: Slot) -> None:
    slot.transacted = True


def _nothing(value: Any) -> None:
    """The world plays the handler."""
