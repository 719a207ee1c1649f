"""The delay service: one loop that reads companions, waits for due times and writes transactions.

    service = DelayService("localhost:9092", folder=Path("store"))
    service.run()          # until stop() is called from another thread

One thread does everything but watching topics, fencing and answering queries, so nothing here is
locked. A turn: what the group gives and takes, records that arrived, answers about partitions that
are being rebuilt, and one transaction for all partitions that have something to do. The error
of a transaction decides what is kept: an aborted one is tried again from the same state, after a
lost producer every partition starts from the committed progress.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic, time_ns

from headrace.client.admin.requests import Requests
from headrace.client.connection import ClientSettings, Setting, connected
from headrace.client.errors import ClientError
from headrace.client.intake import GroupOffset
from headrace.client.once.marks import GroupMark
from headrace.client.once.outcome import Committed, Outcome, RecordsRefused, Unknown
from headrace.client.records import TopicPartition
from headrace.client.transaction_writer import TransactionWriter
from headrace.services.delay import queries, writes
from headrace.services.delay.abandoned_rows import Tidying
from headrace.services.delay.admin.hurry import Hurry
from headrace.services.delay.admin.metrics import Counters
from headrace.services.delay.deliverer import Deliverer, barred, sentence
from headrace.services.delay.far import FarLoading, Trimming
from headrace.services.delay.intake import Fenced, Member, Place, Reader
from headrace.services.delay.obstacles.barred_topics import Barring
from headrace.services.delay.obstacles.open_transactions import Fencing
from headrace.services.delay.partitions.coverage import Coverage
from headrace.services.delay.partitions.departure import leave
from headrace.services.delay.partitions.ends import Ends
from headrace.services.delay.partitions.inquiry import Inquiry
from headrace.services.delay.partitions.owned import Owned, flows, listed, status_of
from headrace.services.delay.timeline.progress import to_metadata
from headrace.services.delay.timeline.store import Store
from headrace.services.delay.timeline.timeline import DelayLimits, Timeline
from headrace.services.delay.timeline.transaction_plan import TransactionPlan
from headrace.services.delay.topics import Catalog, Pair, Topics
from headrace.wire.contract.delay_topics import GROUP, target_of

log = logging.getLogger("headrace.delay")

# librdkafka 2.16 was seen to wait for ever for a coordinator after it had bootstrapped again.
CLIENT: dict[str, Setting] = {"client.id": GROUP, "metadata.recovery.strategy": "none"}
# A moved clock, a stop and the group's changes are noticed after so long at the latest.
LONGEST_WAIT_MS = 25
# A rebuild is checked this often, except where it takes long anyway.
REBUILD_LOOK_MS = 2
REBUILD_LOOK_FOR_S = 2.0
NEVER_MS = 1 << 62
# Transactions begin at most so often: below it they only cost the broker.
SHORTEST_CADENCE_S = 0.005
# To take one record costs some 13 us: what is due waits for a turn that takes many.
RECORDS_PER_TURN = 1_000
RECORDS_PER_TURN_AT_LEISURE = 5_000
LEISURE_MS = 100
# All partitions of one transaction together; each gets its share, so that none starves. Larger ones
# would bring a few per cent in a burst, and make all other partitions wait longer.
RECORDS_PER_TRANSACTION = 10_000
SMALLEST_SHARE = 200
# After an abort, so that a cluster in trouble is not asked without pause.
WAIT_AFTER_ABORT_S = 0.05
MOST_DOUBLINGS = 4
WAIT_AFTER_LOSS_S = 0.2
LEAVE_WITHIN_S = 1.5

_Due = tuple[Owned, Pair, Timeline]
_Planned = tuple[Owned, Pair, TransactionPlan]


def system_clock() -> int:
    return time_ns() // 1_000_000


class DelayService:
    """Everything of one instance; `clock` gives wall time in ms and may be moved by tests.

    `only` limits it to some targets, for a program that runs it for its own topics; such instances
    need a group of their own.
    """

    def __init__(
        self,
        bootstrap: str | ClientSettings | None = None,
        *,
        folder: Path | str,
        clock: Callable[[], int] = system_clock,
        group: str = GROUP,
        instance: str = "delay-1",
        only: Callable[[str], bool] = lambda target: True,
        settings: dict[str, Setting] | None = None,
        limits: DelayLimits | None = None,
    ) -> None:
        self.connection = connected(bootstrap, {**CLIENT, **(settings or {})})
        self.client_id = GROUP  # of the group's member; `main` puts the admin address into it
        self.clock = clock
        self.group = group
        self.instance = instance
        self.transactional_id = f"{group}-{instance}"
        self.limits = limits or DelayLimits()
        self.counters = Counters()
        self.store = Store(Path(folder))
        self.problem: str | None = None
        self._started_ms = clock()
        self._topics = Topics(self.connection, only=only)
        requests = Requests(self.connection)
        self._owned: dict[Place, Owned] = {}
        self._deliverer: Deliverer | None = None
        self._is_clear = False  # of transactions that an earlier producer of ours left open
        self._member: Member
        self._reader: Reader
        self._fencing = Fencing(self.connection, group, self.transactional_id)
        self._trimming = Trimming(requests)
        self._inquiry = Inquiry(self.connection, group)
        self._ends = Ends(self.connection)
        self._coverage = Coverage(requests, group)
        self._tidying = Tidying(self.store)
        self._barring = Barring()
        self._aborted_in_a_row = 0
        self._far = FarLoading(self.connection)
        self._catalog = Catalog()
        self._transact_at = 0.0  # monotonic; not before
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._hurry = Hurry(self._timelines)

    # ---- from other threads

    def stop(self) -> None:
        """Makes `run` return soon: the transaction under way is finished, the group is left."""
        self._stopping.set()

    def wait_until_started(self, timeout_s: float) -> bool:
        """Whether the registry was read and everything given so far delivers, within that time."""
        return self._ready.wait(timeout_s)

    def status(self) -> queries.ServiceStatus:
        now_ms = self.clock()
        return queries.ServiceStatus(
            self.instance,
            self.group,
            self._started_ms,
            now_ms,
            self.counters,
            [status_of(owned) for owned in list(self._owned.values())],
            self.problem or self._topics.problem,
        )

    def store_taken(self) -> None:
        """Everything taken can be listed; waits for that, but not for long."""
        self._hurry.store_taken()

    def _timelines(self) -> list[Timeline]:
        found = [owned.timeline for owned in list(self._owned.values())]
        return [timeline for timeline in found if timeline is not None]

    # ---- the loop

    def run(self) -> None:
        self._member = Member(
            connected(self.connection, {"client.id": self.client_id}),
            self.group,
            self.instance,
            given=self._given,
            taken=self._taken,
        )
        self._reader = Reader(self.connection)
        self._topics.start()
        try:
            while not self._stopping.is_set():
                self._turn()
        except Fenced:
            self.problem = "another process has its name"
            raise
        except Exception:
            self.problem = "it has ended with an error, see the log"
            log.exception("the delay service ends")
            raise
        finally:
            self._close()

    def _turn(self) -> None:
        self._follow_topics()
        self._member.poll()
        if self._coverage.lacks(self._catalog):
            log.info("the group has not assigned all partitions: it rebalances")
            self._member.rejoin()
        now_ms = self.clock()
        due_in_ms = self._due_in_ms(now_ms)
        leisure = due_in_ms > LEISURE_MS
        taken = self._reader.take(
            self._wait_s(due_in_ms), RECORDS_PER_TURN_AT_LEISURE if leisure else RECORDS_PER_TURN
        )
        now_ms = self.clock()
        if taken.count:
            self.counters.taken += taken.count
            for place, records in taken.records.items():
                owned = self._owned.get(place)
                if owned is not None and owned.timeline is not None:
                    owned.timeline.take(records, now_ms)
                    owned.read_to_ms, owned.read_s = max(records[-1][1], 0), monotonic()
                    owned.hear_of_end(self._reader.end(place))
        for place, end in taken.ends.items():
            owned = self._owned.get(place)
            if owned is not None and owned.timeline is not None:
                owned.timeline.skip_to(end)
        for place, why in taken.gone.items():
            log.info("%s-%d cannot be read on: %s", *place, why)
            self._start_again(place)
        self._rebuild()
        self._hurry.heed()
        if monotonic() >= self._transact_at and self._can_deliver():
            self._transact(self.clock())
        self._trimming.look()
        self._tidying.look(self._catalog, self._owned, monotonic())

    def _due_in_ms(self, now_ms: int) -> int:
        """Until there is something to do; what is being rebuilt is looked at often."""
        due_in_ms = NEVER_MS
        for owned in self._owned.values():
            timeline = owned.timeline
            if owned.problem is not None:
                continue
            if timeline is None or owned.loads_far:
                if owned.loads_far or monotonic() - owned.since_s < REBUILD_LOOK_FOR_S:
                    due_in_ms = min(due_in_ms, REBUILD_LOOK_MS)
            else:
                wake_ms = timeline.next_wake_ms()
                if wake_ms is not None and wake_ms - now_ms < due_in_ms:
                    due_in_ms = wake_ms - now_ms
        return due_in_ms

    def _wait_s(self, due_in_ms: int) -> float:
        not_before_s = self._transact_at - monotonic()
        return max(min(due_in_ms, LONGEST_WAIT_MS) / 1000, min(not_before_s, 0.01), 0.0)

    def _follow_topics(self) -> None:
        catalog = self._topics.current
        if catalog is self._catalog:
            return
        self._catalog = catalog
        self._member.follow(catalog.pairs)
        for owned in list(self._owned.values()):
            if owned.is_outlived(catalog):
                log.info("%s-%d was deleted and created again", *owned.place)
                self._start_again(owned.place)
        self._coverage.look_soon()
        deliverer = self._deliverer
        if deliverer is not None and catalog.largest_batch_bytes < deliverer.largest_batch_bytes:
            self._drop_deliverer()

    # ---- what the group gives and takes

    def _given(self, places: list[Place]) -> None:
        log.info("given: %s", listed(places))
        self._coverage.look_soon()
        for place in places:
            self._start_again(place)

    def _taken(self, places: list[Place]) -> None:
        log.info("taken away: %s", listed(places))
        for place in places:
            self._owned.pop(place, None)
            self._inquiry.forget(place)
            self._reader.leave(place)
            self.store.release(*place)

    def _start_again(self, place: Place) -> None:
        """Starts again from what is committed and stored."""
        self._reader.leave(place)
        before = self._owned.get(place)
        refused = before.refused if before is not None else {}
        topic_id = before.topic_id if before is not None else ""
        self._owned[place] = Owned(place, topic_id=topic_id, refused=refused)
        self._inquiry.want(place)

    def _start_all_again(self) -> None:
        for place in list(self._owned):
            self._start_again(place)

    # ---- partitions that are not complete yet

    def _rebuild(self) -> None:
        for place, answer in self._inquiry.answers().items():
            owned = self._owned.get(place)
            if owned is not None and owned.asked:
                read_from = owned.begin(answer, self.store, self.limits, self.group)
                if read_from is not None:
                    self._reader.read(place, read_from)
        if stuck := self._inquiry.stuck():
            self._fencing.fence(stuck)
        for owned in self._far.look(self._owned, stuck):
            assert owned.timeline is not None
            self._reader.read(owned.place, owned.timeline.position)
        if not self._ready.is_set() and self._catalog.complete and self._all_flow():
            self._ready.set()

    def _all_flow(self) -> bool:
        if not self._catalog.pairs:
            return True
        return bool(self._owned) and all(map(flows, self._owned.values()))

    # ---- transactions

    def _transact(self, now_ms: int) -> None:
        planned = self._decide(now_ms)
        if not planned:
            return
        self._transact_at = monotonic() + SHORTEST_CADENCE_S
        rejected, outcome = self._write(planned, now_ms)
        if isinstance(outcome, Committed) and not outcome.is_spent:
            self._committed(planned, rejected)
            return
        self.counters.aborted += 1
        self._transact_at = monotonic() + WAIT_AFTER_ABORT_S
        if isinstance(outcome, Committed | Unknown) or outcome.is_spent:
            log.warning("the producer is lost: %s", outcome.why)
            self._drop_deliverer()
            self._start_all_again()
        elif isinstance(outcome, RecordsRefused):
            self._learn(outcome, planned)
            # The refused batch has used up sequence numbers: librdkafka now and then fails the next
            # transaction because of the gap. A new producer starts with new ones.
            self._drop_deliverer()
        elif (topics := barred(outcome)) is not None:
            self._bar(outcome.why, topics, planned)
            self._drop_deliverer()
        else:
            self._transact_at = monotonic() + WAIT_AFTER_ABORT_S * 2**self._aborted_in_a_row
            self._aborted_in_a_row = min(self._aborted_in_a_row + 1, MOST_DOUBLINGS)
            log.warning("a transaction was aborted: %s", outcome.why)

    def _can_deliver(self) -> bool:
        """Makes a producer as soon as there is a topic, because its first request takes a while.
        Returns whether it can deliver."""
        if self._deliverer is not None:
            return self._is_clear or self._clear()
        if not self._catalog.pairs:
            return False
        deliverer = Deliverer(
            self.connection,
            self.transactional_id,
            largest_batch_bytes=self._catalog.largest_batch_bytes,
        )
        try:
            deliverer.open(self._stopping.is_set)
        except ClientError as failure:
            deliverer.close()
            self._transact_at = monotonic() + WAIT_AFTER_LOSS_S
            log.warning("no producer: %s", failure)
            return False
        self._deliverer = deliverer
        return self._clear()

    def _clear(self) -> bool:
        """A marker ends whatever its producer has open: first what an earlier one left there."""
        try:
            self._is_clear = not self._fencing.own_hangs()
        except ClientError as failure:
            log.info("own transactions cannot be asked for: %s", failure)
        if not self._is_clear:
            self._transact_at = monotonic() + WAIT_AFTER_LOSS_S
            self._fencing.fence(self._owned)
        return self._is_clear

    def _decide(self, now_ms: int) -> list[_Planned]:
        due: list[_Due] = []
        for owned in self._owned.values():
            if owned.timeline is None or owned.loads_far:
                continue
            pair = self._pair_of(owned)
            if pair is None:
                continue
            wake_ms = owned.timeline.next_wake_ms()
            if wake_ms is not None and wake_ms <= now_ms:
                due.append((owned, pair, owned.timeline))
        for together in self._barring.apart(due, lambda each: each[1].companion):
            if planned := self._plans(together, now_ms):
                return planned
        return []

    def _plans(self, due: list[_Due], now_ms: int) -> list[_Planned]:
        share = max(RECORDS_PER_TRANSACTION // max(len(due), 1), SMALLEST_SHARE)
        for place, end in self._ends.of(o.place for o, _, _ in due if o.may_lag(now_ms)).items():
            self._owned[place].hear_of_end(end)
        planned = []
        for owned, pair, timeline in due:
            plan = timeline.plan(owned.due_until(now_ms), share, clock_ms=now_ms)
            if plan is not None:
                planned.append((owned, pair, plan))
            elif not timeline.wants_more():
                self._reader.pause(owned.place)
        if not planned:  # they wait for records that are on their way
            self._transact_at = monotonic() + SHORTEST_CADENCE_S
        return planned

    def _pair_of(self, owned: Owned) -> Pair | None:
        """Returns the pair; None while its target takes no records: then it waits, and so does its
        intake."""
        companion = owned.place[0]
        pair = self._catalog.pairs.get(companion)
        why = self._barring.why(companion, monotonic())
        if pair is None or pair.target_partitions == 0:
            why = f"the topic {target_of(companion)} is missing: create it, or let it be seen"
        if why is None:
            if owned.problem is not None and not self._barring.is_on_trial(companion):
                log.info("%s-%d: goes on", *owned.place)
                owned.problem = None
                self._reader.resume(owned.place)
            return pair
        if owned.problem != why:
            owned.problem = why
            log.error("%s-%d: %s", *owned.place, why)
            self._reader.pause(owned.place)
        return None

    def _bar(self, why: str, topics: dict[str, str], planned: list[_Planned]) -> None:
        """A topic takes nothing of ours: its pair waits, or each is tried alone to find it."""
        named = {
            pair.companion: said
            for topic, said in topics.items()
            for _, pair, plan in planned
            if writes.writes_to(pair, plan, topic)
        }
        tried = {pair.companion for _, pair, _ in planned}
        log.info("a transaction of %s was aborted: %s", ", ".join(sorted(tried)), why)
        self._barring.failed(tried, named, monotonic())

    def _write(self, planned: list[_Planned], now_ms: int) -> tuple[int, Outcome]:
        """Writes one transaction. Returns how many records it rejects, and its outcome."""
        deliverer = self._deliverer
        assert deliverer is not None
        rejected = 0
        offsets = []

        def write(calls: TransactionWriter) -> None:
            nonlocal rejected
            for owned, pair, plan in planned:
                place, progress = TopicPartition(*owned.place), plan.progress
                rejected += writes.write(calls, pair, place.partition, plan, now_ms)
                metadata = to_metadata(progress, self.transactional_id, owned.topic_id)
                offsets.append(GroupOffset(place, progress.position, metadata))

        outcome = deliverer.write(write, GroupMark(lambda: offsets, self._member.metadata))
        return rejected, outcome

    def _committed(self, planned: list[_Planned], rejected: int) -> None:
        now_ms = self.clock()
        counters = self.counters
        counters.transactions += 1
        self._aborted_in_a_row = 0
        self._barring.succeeded({pair.companion for _, pair, _ in planned})
        counters.rejected += rejected
        for owned, _, plan in planned:
            assert owned.timeline is not None
            owned.timeline.committed(plan)
            if plan.trim_to is not None:
                self._trimming.trim(owned.place, plan.trim_to)
            counters.delivered += len(plan.deliveries)
            counters.cancelled += len(plan.outcomes)
            for delivery in plan.deliveries:
                counters.late(max(now_ms - delivery.from_ms, 0))
            if owned.timeline.wants_more():
                self._reader.resume(owned.place)

    def _learn(self, refused: RecordsRefused, planned: list[_Planned]) -> None:
        """The next plan rejects what the cluster did not take; its neighbours go on."""
        self._topics.look_again()
        cramped = writes.cramped({pair.target for _, pair, _ in planned}, refused.records)
        learnt = sum(self._topics.make_room(*each) for each in cramped.items())
        for owned, pair, plan in planned:
            for offset, why in writes.guilty(pair, plan.deliveries, refused.records):
                log.warning("%s refuses %s/%d/%d: %s", pair.target, *owned.place, offset, why)
                learnt += 1
                if owned.timeline is not None:
                    owned.timeline.refuse(offset, why)
        if not learnt:
            topics = {each.topic: sentence(each) for each in refused.records}
            self._bar(str(refused.records[0].fault), topics, planned)

    def _drop_deliverer(self) -> None:
        if self._deliverer is not None:
            self._deliverer.close()
            self._deliverer = None
            self._is_clear = False

    def _close(self) -> None:
        self._topics.stop()
        self._member.close()
        self._reader.close()
        self._far.close()
        self._ends.close()
        if self._stopping.is_set():
            leave(replace(self.connection, timeout_s=LEAVE_WITHIN_S), self.group, self.instance)
        self._drop_deliverer()
        self.store.close()
