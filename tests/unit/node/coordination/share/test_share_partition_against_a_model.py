"""A share partition against a plain model: one object per record, rules without runs or heaps.

Members acquire, acknowledge, let locks expire and leave in an order that a seed decides; writes
succeed, fail, and overtake each other. After each event every offset is compared, and what is kept
(the updates that were written) must never make a new leader forget a record or deliver again one
whose acknowledgement was answered. In half of the stories released records wait, and in half dead
letters are kept: then a record has a letter or was accepted, never both, and no letter is missing
when it is archived. Each broken rule below has to be caught.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from headrace.node.coordination.share.runs import DeliveryState
from headrace.node.coordination.share.share_partition import (
    UNCHANGED,
    Acknowledgement,
    AcknowledgeType,
    LogBatch,
    ShareLimits,
    SharePartition,
    StateBatch,
    StateUpdate,
)
from headrace.wire.protocol.errors import KafkaError
from tests.effort import examples

AVAILABLE, ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
ACKNOWLEDGED = DeliveryState.ACKNOWLEDGED
ARCHIVING, ARCHIVED = DeliveryState.ARCHIVING, DeliveryState.ARCHIVED
MEMBERS = ("a", "b", "c")
LOCK_MS = 100
BACKOFF_MS, BACKOFF_MAX_MS = 80, 200
EVENTS = 60


@dataclass
class Plain:
    """One record, as the model knows it."""

    state: DeliveryState = AVAILABLE
    deliveries: int = 0
    member: str = ""
    lock_until_ms: int = 0
    waits_until_ms: int = 0
    released_at_ms: int = 0  # its wait begins here, when the release is written
    written_soon: DeliveryState | None = None
    kept_state: DeliveryState | None = None  # the last that was written
    answered: bool = False  # a member knows that its acknowledgement counts
    has_letter: bool = False  # its dead letter is stored

    @property
    def is_final(self) -> bool:
        return self.state in (ACKNOWLEDGED, ARCHIVED)


class Story:
    def __init__(self, seed: int, kind: type[SharePartition]) -> None:
        self.random = Random(seed)
        self.limits = ShareLimits(
            LOCK_MS,
            self.random.choice((2, 3, 5)),
            self.random.choice((5, 15, 80)),
            self.random.choice((0, BACKOFF_MS)),
            BACKOFF_MAX_MS,
            self.random.random() < 0.5,
        )
        self.part = kind(0, self.limits)
        self.kind = kind
        self.now_ms = 0
        self.batches = self.a_log()
        self.records = {
            offset: Plain() for first, last in self.batches for offset in range(first, last + 1)
        }
        self.log_end = self.batches[-1].last + 1
        self.seen_to = 0  # the model's own end of the window
        self.under_way: list[StateUpdate] = []
        self.kept_start = 0

    def a_log(self) -> list[LogBatch]:
        batches, offset = [], 0
        for _ in range(8):
            offset += self.random.choice((0, 0, 0, 1, 3))
            size = self.random.randint(1, 9)
            batches.append(LogBatch(offset, offset + size - 1))
            offset += size
        return batches

    def run(self) -> None:
        events = [
            (6, self.acquire),
            (6, self.acknowledge),
            (2, self.acknowledge_at_random),
            (6, self.settle),
            (3, self.time_passes),
            (1, self.leave),
            (3, self.bury),
        ]
        weights = [weight for weight, _ in events]
        for _ in range(EVENTS):
            self.random.choices([event for _, event in events], weights)[0]()
            self.compare()
        while self.under_way:
            self.settle()
            self.compare()
        self.compare_with_a_new_leader()

    # --- events

    def acquire(self) -> None:
        member, exactly = self.random.choice(MEMBERS), self.random.random() < 0.5
        most = self.random.choice((1, 4, 20))
        start = self.part.next_fetch_offset
        readable = [batch for batch in self.batches if batch.last >= start]
        read = readable[: self.random.randint(1, 4)]
        read_to = read[-1].last if read else self.log_end - 1
        free = [
            offset
            for first, last in read
            for offset in range(max(first, start), last + 1)
            if self.may_be_acquired(offset)
        ]
        has_room = self.in_flight() < self.limits.in_flight
        found = self.part.acquire(member, read, read_to, most, self.now_ms, exactly=exactly)
        offsets = []
        for first, last, deliveries in found:
            for offset in range(first, last + 1):
                assert offset in self.records, f"{offset} has no record"
                one = self.records[offset]
                assert self.may_be_acquired(offset), f"{offset} is not available: {one}"
                assert deliveries == one.deliveries + 1, f"{offset} was delivered {one.deliveries}"
                one.state, one.deliveries, one.member = ACQUIRED, deliveries, member
                one.lock_until_ms = self.now_ms + LOCK_MS
                offsets.append(offset)
        assert offsets == sorted(set(offsets))
        if exactly:
            assert len(offsets) <= most
        if free and (free[0] < self.seen_to or has_room):
            assert offsets and offsets[0] == free[0], "the first that can be had is handed out"
        careful = max(2, (self.limits.deliveries + 1) // 2)
        attempts = {self.records[offset].deliveries - 1 for offset in offsets}
        assert len(attempts) == 1 or max(attempts, default=0) < careful
        if max(attempts, default=0) == self.limits.deliveries - 1 >= careful:
            assert len(offsets) == 1, "the last attempt is for one record alone"
        self.seen_to = max([self.seen_to, *(offset + 1 for offset in offsets)])
        assert self.in_flight() <= max(self.limits.in_flight, 0)

    def may_be_acquired(self, offset: int) -> bool:
        one = self.records[offset]
        return one.state is AVAILABLE and one.written_soon is None and not one.waits_until_ms

    def in_flight(self) -> int:
        return sum(
            not one.is_final for offset, one in self.records.items() if offset < self.seen_to
        )

    def acknowledge(self) -> None:
        """A member speaks of what it holds."""
        member = self.random.choice(MEMBERS)
        held = [offset for offset in self.records if self.is_held(offset, member)]
        if held:
            first = self.random.choice(held)
            last = first
            while self.random.random() < 0.8 and last + 1 in held:
                last += 1
            self.acknowledge_range(member, first, last)

    def acknowledge_at_random(self) -> None:
        first = self.random.randint(0, self.log_end)
        member = self.random.choice(MEMBERS)
        self.acknowledge_range(member, first, first + self.random.randint(0, 5))

    def acknowledge_range(self, member: str, first: int, last: int) -> None:
        count = last - first + 1
        size = self.random.choice((1, count))
        types = [self.random.choice(list(AcknowledgeType)) for _ in range(size)]
        spoken_of = range(max(first, self.part.start_offset), last + 1)
        allowed = last < self.part.end_offset and all(
            offset in self.records and self.is_held(offset, member) for offset in spoken_of
        )
        try:
            update = self.part.acknowledge(
                member, [Acknowledgement(first, last, types)], self.now_ms
            )
        except KafkaError:
            assert not allowed, f"{member} holds {first} to {last}"
            return
        assert allowed, f"{member} does not hold all of {first} to {last}"
        for offset in spoken_of:
            kind = types[(offset - first) % size]
            one = self.records[offset]
            if kind is AcknowledgeType.RENEW:
                one.lock_until_ms = self.now_ms + LOCK_MS
            elif kind is AcknowledgeType.ACCEPT:
                one.written_soon = ACKNOWLEDGED
            elif kind is AcknowledgeType.RELEASE and one.deliveries < self.limits.deliveries:
                one.written_soon = AVAILABLE
                one.released_at_ms = self.now_ms
            elif kind is AcknowledgeType.GAP:
                one.written_soon = ARCHIVED
            else:
                one.written_soon = self.given_up
        if update is not None:
            self.under_way.append(update)

    @property
    def given_up(self) -> DeliveryState:
        return ARCHIVING if self.limits.keeps_letters else ARCHIVED

    def is_held(self, offset: int, member: str) -> bool:
        one = self.records[offset]
        return (
            one.state is ACQUIRED
            and one.member == member
            and one.written_soon is None
            and one.lock_until_ms > self.now_ms
        )

    def settle(self) -> None:
        """One of the writes that are under way ends, not always the first."""
        if not self.under_way:
            return
        update = self.under_way.pop(self.random.randrange(len(self.under_way)))
        succeeded = self.random.random() < 0.8
        self.part.written(update, succeeded=succeeded)
        for batch in update.batches:
            for offset in range(batch.first, batch.last + 1):
                one = self.records[offset]
                one.written_soon = None
                if succeeded:
                    one.state = batch.state
                    one.answered = one.is_final or one.state is ARCHIVING
                    if one.state is AVAILABLE:
                        self.begin_wait(offset, one.released_at_ms)
        if succeeded:
            self.keep(update)

    def keep(self, update: StateUpdate) -> None:
        """As the share coordinator merges it: the last written state of each record counts."""
        for batch in update.batches:
            for offset in range(batch.first, batch.last + 1):
                self.records[offset].kept_state = batch.state
        if update.start_offset != UNCHANGED:
            assert update.start_offset >= self.kept_start, "a start offset does not go back"
            self.kept_start = update.start_offset

    def time_passes(self) -> None:
        self.now_ms += self.random.choice((1, LOCK_MS // 2, LOCK_MS))
        due_ms = self.part.next_expiry_ms
        late = [
            one
            for one in self.records.values()
            if one.state is ACQUIRED
            and one.written_soon is None
            and one.lock_until_ms <= self.now_ms
        ]
        over = [
            one
            for one in self.records.values()
            if one.state is AVAILABLE and 0 < one.waits_until_ms <= self.now_ms
        ]
        assert not (late or over) or (due_ms is not None and due_ms <= self.now_ms), (
            "the node would not wake for it"
        )
        given_up = self.part.give_up_expired(self.now_ms)
        update = self.part.expire(self.now_ms)
        for one in over:
            one.waits_until_ms = 0
        for offset, one in self.records.items():
            if any(one is each for each in late):
                is_last = one.deliveries >= self.limits.deliveries
                if is_last and self.limits.keeps_letters:
                    one.written_soon = ARCHIVING  # it waits for the write, the rest does not
                    continue
                one.state = ARCHIVED if is_last else AVAILABLE
                if not is_last:
                    self.begin_wait(offset, self.now_ms)
        if given_up is not None:
            self.under_way.append(given_up)
        if update is not None:
            self.keep(update)

    def bury(self) -> None:
        """One of the letters that are due is stored; then its records may be archived."""
        due = self.part.letters_due
        if not due:
            return
        first, last, deliveries = self.random.choice(due)
        last = self.random.randint(first, last)
        for offset in range(first, last + 1):
            one = self.records[offset]
            assert one.kept_state is ARCHIVING, "a new leader would deliver it again"
            assert one.deliveries == deliveries
            one.has_letter = True
            one.written_soon = ARCHIVED
        update = self.part.letters_stored([(first, last)])
        assert update is not None
        self.under_way.append(update)

    def begin_wait(self, offset: int, since_ms: int) -> None:
        """The share partition decides how long, within a fifth; from then on it must not change."""
        if not self.limits.backoff_ms:
            return
        one = self.records[offset]
        [run] = [run for run in self.part.runs() if run.first <= offset <= run.last]
        most_ms = min(BACKOFF_MS * 2 ** (one.deliveries - 1), BACKOFF_MAX_MS)
        wait_ms = run.waits_until_ms - since_ms
        assert most_ms * 0.8 <= wait_ms <= most_ms, f"{offset} waits {wait_ms} ms"
        one.waits_until_ms = run.waits_until_ms

    def leave(self) -> None:
        member = self.random.choice(MEMBERS)
        update = self.part.release_all(member)
        for one in self.records.values():
            if one.state is ACQUIRED and one.member == member and one.written_soon is None:
                one.state = AVAILABLE
                one.deliveries -= 1
        if update is not None:
            self.keep(update)

    # --- what must hold

    def compare(self) -> None:
        part = self.part
        open_offsets = [offset for offset, one in self.records.items() if not one.is_final]
        first_open = min(open_offsets, default=self.log_end)
        assert part.start_offset <= first_open, "the start offset has passed an open record"
        assert self.kept_start <= first_open, "the kept start offset has passed an open record"
        position = part.start_offset
        for run in part.runs():
            assert run.first == position and run.last >= run.first
            position = run.last + 1
            for offset in range(run.first, run.last + 1):
                one = self.records.get(offset)
                if one is None:
                    assert run.state in (AVAILABLE, ARCHIVED)
                    continue
                assert (run.state, run.deliveries) == (one.state, one.deliveries), offset
                assert run.becomes is one.written_soon, offset
                if one.state is ACQUIRED:
                    assert (run.member, run.lock_until_ms) == (one.member, one.lock_until_ms)
                if one.state is AVAILABLE:
                    assert run.waits_until_ms == one.waits_until_ms, offset
                if one.state is ACKNOWLEDGED:
                    assert not one.has_letter, f"{offset} was accepted and has a letter"
        assert position == part.end_offset

    def compare_with_a_new_leader(self) -> None:
        """It delivers everything that is open, and nothing whose acknowledgement was answered."""
        kept = [
            StateBatch(offset, offset, one.kept_state, one.deliveries)
            for offset, one in self.records.items()
            if one.kept_state is not None and offset >= self.kept_start
        ]
        leader = self.kind(self.kept_start, ShareLimits(LOCK_MS, 100, 1_000), kept)
        delivered: set[int] = set()
        while found := leader.acquire("new", self.batches, self.log_end - 1, 1_000, 0):
            delivered.update(*(range(first, last + 1) for first, last, _ in found))
        due = {offset for first, last, _ in leader.letters_due for offset in range(first, last + 1)}
        for offset, one in self.records.items():
            if one.answered or one.has_letter:
                assert offset not in delivered, f"{offset} was acknowledged"
            if one.state is ARCHIVING:
                assert offset in due, f"the letter of {offset} is forgotten"
            elif not one.is_final:
                assert offset in delivered, f"{offset} is lost"


@pytest.mark.parametrize("seed", range(examples(400)))
def test_the_model_and_the_share_partition_agree(seed):
    Story(seed, SharePartition).run()


class ForgetsACount(SharePartition):
    def expire(self, now_ms):
        late = [run for run in self.runs() if run.lock_until_ms <= now_ms and run.becomes is None]
        for run in late:
            run.deliveries -= 1
        return super().expire(now_ms)


class KeepsALock(SharePartition):
    def expire(self, now_ms):
        return super().expire(now_ms - 1)


class PassesAnOpenRecord(SharePartition):
    def written(self, update, *, succeeded):
        super().written(update, succeeded=True)


class AcknowledgesForOthers(SharePartition):
    def _require_held(self, member, first, last, now_ms):
        holders = {run.member for run in self._window.whole_between(first, last)}
        super()._require_held(holders.pop() if holders else member, first, last, now_ms)


class MovesTheKeptStart(SharePartition):
    def _update_of(self, changed, *, waits):
        self._writes, before = 0, self._writes
        update = super()._update_of(changed, waits=waits)
        self._writes += before
        if update is not None and update.start_offset == self.start_offset:
            update.start_offset = update.batches[0].first
        return update


class ForgetsAWait(SharePartition):
    def acquire(self, *wish, **how):
        for run in self.runs():
            run.waits_until_ms = 0
        return super().acquire(*wish, **how)


class WaitsForever(SharePartition):
    """The node sets no deadline for the end of a wait."""

    def written(self, update, *, succeeded):
        deadlines = list(self._deadlines)
        super().written(update, succeeded=succeeded)
        if succeeded:
            self._deadlines = deadlines


class ArchivesBeforeTheLetter(SharePartition):
    def written(self, update, *, succeeded):
        super().written(update, succeeded=succeeded)
        for run in self.runs():
            if run.state is ARCHIVING and run.becomes is None:
                run.state = ARCHIVED


class WritesTheLetterTooSoon(SharePartition):
    """Before it is stored that the record is given up."""

    def give_up_expired(self, now_ms):
        update = super().give_up_expired(now_ms)
        if update is not None:
            self.written(update, succeeded=True)


class ForgetsALetter(SharePartition):
    """A new leader takes a record that is archiving for an archived one."""

    def __init__(self, start_offset, limits, batches=()):
        known = [b._replace(state=ARCHIVED) if b.state is ARCHIVING else b for b in batches]
        super().__init__(start_offset, limits, known)


@pytest.mark.parametrize(
    "broken",
    [
        ForgetsACount,
        KeepsALock,
        PassesAnOpenRecord,
        AcknowledgesForOthers,
        MovesTheKeptStart,
        ForgetsAWait,
        WaitsForever,
        ArchivesBeforeTheLetter,
        WritesTheLetterTooSoon,
        ForgetsALetter,
    ],
)
def test_a_broken_rule_is_caught(broken):
    with pytest.raises(AssertionError):
        for seed in range(20):
            Story(seed, broken).run()
