"""The polling thread: the only one that touches the consumers, and it never waits for a handler.

It polls for ever, so heartbeats and `max.poll.interval.ms` do not depend on how long handlers take;
when too many records wait it pauses partitions. One consumer is the member of the group and reads
the sources. A second consumer, which is assigned by hand, reads the retry partitions of the owned
sources: so the owner of a source partition owns the retry partition of the same number under every
assignor and both group protocols, and a rebalance never separates the two.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator

from headrace.app.dispatch import arrivals
from headrace.app.dispatch.arrivals import Arrivals
from headrace.app.dispatch.owned_partition import Stream
from headrace.app.worker.group_commits import GroupCommits, NotOurs
from headrace.app.worker.membership import Membership
from headrace.app.worker.places import ResumeOffsets
from headrace.app.worker.subscription_runner import HandledPartition, SubscriptionRunner
from headrace.app.worker.topic_ids import TopicIds
from headrace.client.admin.requests import Requests
from headrace.client.connection import ClientSettings
from headrace.client.faults import NOT_OURS, Fault
from headrace.client.intake import BEGINNING, Arrived, Intake, RawRecord
from headrace.client.once.outcome import Committed, NothingWritten, Unknown
from headrace.client.records import TopicPartition

log = logging.getLogger("headrace.app")

COMMIT_EVERY_S = 0.5
LAST_ANSWER_S = 5.0  # at the end, for the answer to the commit before the last
LAST_COMMIT_S = 5.0  # after this time a rebalance is over, or another member has our partitions
CHUNK = 2_000
CHUNK_BYTES = 32_000_000
# A partition with so many records under way is paused until most of them are done.
MOST_PER_PARTITION = 10_000
LEAST_PER_PARTITION = 20
MOST_BYTES = 128_000_000  # of all partitions together, roughly
IDLE_POLL_S = 0.05
BUSY_POLL_S = 0.002
# How often finished records are deleted from retry partitions.
TRIM_EVERY_S = 60.0

Place = tuple[str, int]


class WorkerIntake:
    def __init__(
        self,
        connection: ClientSettings,
        *,
        group: str,
        start_from: str,
        runner_for: Callable[[str], SubscriptionRunner],
        ensure: Callable[[str, int], None],
        loop_work: Callable[[], bool],
        revoke_wait_s: float,
        fetch_wait_ms: int,
    ) -> None:
        """`runner_for` finds the runner for a topic; `ensure` makes its retry partitions, if this
        one is new; `loop_work` is called in every turn, and returns whether to hurry.
        """
        self.connection = connection
        self._start_from = start_from
        self._runner_for = runner_for
        self._ensure = ensure
        self._loop_work = loop_work
        self._revoke_wait_s = revoke_wait_s
        membership = Membership.of(connection, group=group, fetch_wait_ms=fetch_wait_ms)
        self._conf = membership.settings
        self.lease_s = membership.lease_s
        self.session_text = membership.session_text
        self.member = Intake(self._conf, commits_ended=self._told)
        self._retries: Intake | None = None
        self._requests = Requests(connection)
        self.commits = GroupCommits(self.member, connection)
        self._resume_offsets = ResumeOffsets(
            self.member,
            self._requests,
            meanwhile=self._keep_going,
            stopping=lambda: self.stopping,
        )
        self._ids = TopicIds(self._requests)
        self._arrivals: Arrivals[HandledPartition] = Arrivals(self._ids)
        self.owned: dict[Place, HandledPartition] = {}
        self._by_retry: dict[Place, HandledPartition] = {}
        self._in_doubt: list[HandledPartition] = []  # the outcome of their transaction is unknown
        self.assigned_once = False
        self.stopping = False
        self.failure: BaseException | None = None
        self._mean_bytes = 1_000.0
        self._commit_at = self._trim_at = 0.0
        self._polled_at = time.monotonic()

    def subscribe(self, topics: Iterable[str]) -> None:
        self.member.follow(topics, given=self._assigned, taken=self._revoked, lost=self._lost)

    @property
    def must_hurry(self) -> bool:
        """Whether a transaction waits or is under way."""
        return any(one.moves or one.moving for one in self.owned.values())

    # ---- the loop

    def turn(self, timeout_s: float) -> None:
        """One turn: read, run transactions, commit."""
        self._renew_lease()
        arrived = self._read(timeout_s)
        if arrived:
            self._feed(arrived)
        if self._by_retry:
            self._read_retries()
        self._transact()
        if self._in_doubt:
            self._begin_in_doubt()
        self._balance()
        self._commit_now_and_then()
        self._look_at_topics()
        now = time.monotonic()
        if now >= self._trim_at:
            self._trim_at = now + TRIM_EVERY_S
            self._trim()

    def run(self) -> None:
        hurry = True
        while not self.stopping:
            poll_s = BUSY_POLL_S if hurry else IDLE_POLL_S
            self.turn(arrivals.POLL_S if self._arrivals else poll_s)
            hurry = self._loop_work()

    def _read(self, timeout_s: float) -> Arrived:
        most = max(1, min(CHUNK, int(CHUNK_BYTES / self._mean_bytes)))
        arrived = self.member.read(timeout_s, most + 1)
        if count := sum(len(records) for _, records in arrived.stretches):
            mean = sum(sum(map(len, records)) for _, records in arrived.stretches) / count
            self._mean_bytes += (max(mean, 1.0) - self._mean_bytes) * 0.2
        return arrived

    def _feed(self, arrived: Arrived) -> None:
        """Pass records on in stretches of one partition, then the ends that were reached."""
        for _, fault in arrived.faults:
            if fault.is_fatal:
                # Fenced by a member of the same name: this client gets no more records.
                raise fault.explained(self.connection.bootstrap)
            log.warning("%s", fault)  # librdkafka recovers from most of them
        for place, records in arrived.stretches:
            self._feed_one(place, records)
        for place, end in arrived.ends.items():
            if (owned := self.owned.get(place)) is not None:
                owned.source.read_to = end

    def _told(self, refused: dict[TopicPartition, Fault]) -> None:
        """Takes the result of a commit that was not waited for; what failed is committed again."""
        self.commits.unanswered = max(0, self.commits.unanswered - 1)
        for place, fault in refused.items():
            log.info("an offset of %s was not committed: %s", place, fault.named)
            for stream in self._streams_at(place):
                stream.committed = None

    def _streams_at(self, place: Place) -> Iterator[Stream]:
        if (owned := self.owned.get(place)) is not None:
            yield owned.source
        if (owned := self._by_retry.get(place)) is not None:
            yield owned.retry

    def _feed_one(self, place: Place, records: list[RawRecord]) -> None:
        owned = self.owned.get(place)
        if owned is None:
            return
        if owned.runner.subscription.counts_once and owned.topic_id is not None:
            self._arrivals.add(owned, records)
        else:
            owned.runner.read(owned, records)

    def _read_retries(self) -> None:
        assert self._retries is not None
        arrived = self._retries.read(0, CHUNK)
        for _, fault in arrived.faults:
            log.warning("%s", fault)
        for place, records in arrived.stretches:
            if (owned := self._by_retry.get(place)) is not None:
                for record in records:
                    owned.runner.read_retries(owned, [record])
        for place, end in arrived.ends.items():
            if (owned := self._by_retry.get(place)) is not None:
                owned.runner.retries_read_to(owned, end)

    # ---- commits

    def _transact(self) -> bool:
        """Run a transaction if one is needed. False: the group or the cluster refused it, try again
        later."""
        moving = [one for one in self.owned.values() if one.moves or one.moving]
        if not moving:
            return True
        try:
            outcome = self.commits.transact(moving)
        except Fault as fault:
            log.warning("retries or results are not written yet: %s", fault)
            return False
        match outcome:
            case None | Committed():
                return True
            case Unknown():
                log.warning(
                    "it is unknown whether a transaction was committed (%s): %s start again from "
                    "the group's offsets, which show it",
                    outcome.fault,
                    ", ".join(str(one.source.place) for one in moving),
                )
                for one in moving:
                    one.runner.forget(one)
                self._in_doubt += moving
            case NothingWritten() if outcome.fault.code in NOT_OURS:
                log.info("retries or results were not written: the group is being rebalanced")
            case NothingWritten():
                log.warning("retries or results are not written yet: %s", outcome.fault)
        return False

    def _commit_now_and_then(self) -> None:
        now = time.monotonic()
        if now >= self._commit_at:
            self._commit_at = now + COMMIT_EVERY_S
            self._commit(wait=False)

    def _commit(self, *, wait: bool) -> None:
        try:
            self.commits.commit(self.owned.values(), wait=wait)
        except NotOurs as told:
            log.info("offsets were not committed: %s", told)

    def _trim(self) -> None:
        """Delete finished records from the retry partitions; after a failure the next call does
        it."""
        before = {
            owned.retry.place: offset
            for owned in self._by_retry.values()
            if (offset := owned.retry.committed_offset)
        }
        if before:
            self._requests.delete_records(before, TRIM_EVERY_S)

    def _balance(self) -> None:
        """Pause partitions with too many waiting records, resume them when there are fewer."""
        share = MOST_BYTES / self._mean_bytes / max(1, len(self.owned))
        most = max(LEAST_PER_PARTITION, min(MOST_PER_PARTITION, int(share)))
        for owned in self.owned.values():
            must_pause = owned.runner.must_pause(owned, most)
            if must_pause != owned.paused:
                self._set_paused(owned, must_pause)

    def _set_paused(self, owned: HandledPartition, paused: bool) -> None:
        try:
            (self.member.pause if paused else self.member.resume)([owned.source.place])
        except Fault as fault:  # it is being revoked at this moment
            log.debug("%s: %s", owned.source.place, fault)
            return
        owned.paused = paused

    def _renew_lease(self) -> None:
        """After a long standstill of the whole process the group may have removed us: ask it before
        another record begins.
        """
        now = time.monotonic()
        if now - self._polled_at > self.lease_s and self.owned:
            ours = self.commits.still_ours(self.owned.values())
            if ours is None:
                return  # until the group answers, the lease stays as it is
            if not ours:
                log.warning(
                    "this worker stood still for too long; its partitions are another's now"
                )
                for owned in self.owned.values():
                    owned.runner.forget(owned)
        self._polled_at = time.monotonic()
        for runner in {owned.runner for owned in self.owned.values()}:
            runner.lease_until = self._polled_at + self.lease_s

    # ---- assignment and revocation

    def _assigned(self, member: Intake, given: list[TopicPartition]) -> None:
        self.assigned_once = True
        if not given:
            log.info("joined, and every partition is with another member for now")
            return
        self._ids.learn({place.topic for place in given}, self._resume_offsets.asked)
        self._begin(given, anew=False)

    def _begin(self, places: Iterable[Place], *, anew: bool) -> None:
        """Read these partitions from the group's committed offsets. With `anew` the topic was
        created again, and is read from its beginning: the group's offset may belong to the earlier
        topic.
        """
        new = []
        for topic, partition in places:
            self._ensure(topic, partition)
            new.append(self._runner_for(topic).own(topic, partition, self._ids.of(topic)))
        streams = [stream for owned in new for stream in owned.streams]
        self._resume_offsets.find(streams, anew=anew, start_from=self._start_from)
        for owned in new:
            self.owned[owned.source.place] = owned
            owned.closing = self.stopping
        starts = {owned.source.place: owned.source.completion.position for owned in new}
        self.member.add(starts)
        # A partition that was paused when it was revoked stays paused in librdkafka.
        self.member.resume(starts)
        self._read_retries_of(new)
        log.info("took over %s", ", ".join(str(owned.source.place) for owned in new))

    def _look_at_topics(self) -> None:
        if not self._arrivals and not self._ids.is_due:
            return
        changed = self._ids.look({topic for topic, _ in self.owned}, self._arrivals.topics)
        if changed:
            self._begin_anew(changed)
        for owned, read in self._arrivals.certain():
            owned.runner.read(owned, read)

    def _begin_anew(self, changed: dict[str, int]) -> None:
        going = [owned for owned in self.owned.values() if owned.topic in changed]
        log.warning(
            "%s was deleted and created again: the new topic is read from its beginning",
            " and ".join(changed),
        )
        for owned in going:
            owned.runner.close(owned)
        self._wait_for(going)
        self._drop(going)
        self.member.drop(one.source.place for one in going)
        left = [(one.topic, one.partition) for one in going if one.partition < changed[one.topic]]
        if left:
            self._begin(left, anew=True)

    def _begin_in_doubt(self) -> None:
        """Restart partitions whose transaction's outcome is unknown: the committed offsets show
        it."""
        going = [one for one in self._in_doubt if self.owned.get(one.source.place) is one]
        self._in_doubt = []
        if going:
            self._wait_for(going)
            self._drop(going)
            self.member.drop(one.source.place for one in going)
            self._begin([(one.topic, one.partition) for one in going], anew=False)

    def _keep_going(self) -> None:
        """Continue the other work while waiting for the group: our partitions are still ours."""
        self._renew_lease()
        self._loop_work()
        self._commit_now_and_then()

    def _read_retries_of(self, new: list[HandledPartition]) -> None:
        if not new:
            return
        if self._retries is None:
            conf = {name: value for name, value in self._conf.items() if name != "group.protocol"}
            self._retries = Intake(conf)
        in_order = [owned for owned in new if owned.runner.subscription.blocks_keys]
        ends = self._resume_offsets.ends([owned.retry.place for owned in in_order])
        starts = {}
        for owned in new:
            place = owned.retry.place
            self._by_retry[place] = owned
            start = owned.retry.completion.position
            starts[place] = start or BEGINNING
            if ends.get(place, 0) > start:
                owned.loading_to = ends[place]
                self._set_paused(owned, True)
        self._retries.add(starts)

    def _revoked(self, member: Intake, taken: list[TopicPartition]) -> None:
        going = self._owned_of(taken)
        for owned in going:
            owned.runner.close(owned)
        self._wait_for(going)
        self._transact()
        self._commit(wait=True)
        self._drop(going)
        member.drop(taken)

    def _owned_of(self, places: Iterable[Place]) -> list[HandledPartition]:
        return [self.owned[place] for place in places if place in self.owned]

    def _wait_for(self, going: list[HandledPartition]) -> None:
        """Wait until running records of these partitions have ended, within the limit. With
        exactly-once their transaction must have ended.
        """
        deadline = time.monotonic() + self._revoke_wait_s
        may_move = True
        while any(owned.running > 0 for owned in going) and time.monotonic() < deadline:
            self._loop_work()
            self._renew_lease()
            may_move = may_move and self._transact()
            time.sleep(0.002)
        late = [owned for owned in going if owned.running > 0]
        if late:
            log.warning(
                "handlers of %s are still at work; another member will handle their records again",
                ", ".join(str(owned.source.place) for owned in late),
            )

    def _lost(self, member: Intake, taken: list[TopicPartition]) -> None:
        going = self._owned_of(taken)
        log.warning("lost %s", ", ".join(str(owned.source.place) for owned in going))
        self._drop(going)
        member.drop(taken)

    def _drop(self, going: list[HandledPartition]) -> None:
        for owned in going:
            owned.runner.forget(owned)
            self._arrivals.forget(owned)
            self.owned.pop(owned.source.place, None)
        retries = [owned.retry.place for owned in going]
        for place in retries:
            self._by_retry.pop(place, None)
        if retries and self._retries is not None:
            self._retries.drop(retries)

    # ---- the end

    def _commit_to_the_end(self, within_s: float) -> None:
        """During a rebalance, as when several workers end at once, the group accepts no offsets:
        wait until it is over, else the finished records would be handled again.
        """
        deadline = time.monotonic() + min(within_s, LAST_ANSWER_S)
        while self.commits.unanswered and time.monotonic() < deadline:
            self.member.read(BUSY_POLL_S, 1)  # an older commit must not be the last to arrive
            self._renew_lease()
        deadline = time.monotonic() + min(within_s, LAST_COMMIT_S)
        while self.owned:
            try:
                self.commits.commit(self.owned.values(), wait=True)
                return
            except NotOurs as told:
                if time.monotonic() > deadline:
                    log.info("offsets were not committed: %s", told)
                    return
            self.member.read(BUSY_POLL_S, 1)
            self._renew_lease()

    def drain(self, within_s: float) -> None:
        """Begin no more records, wait for running ones, commit and leave the group."""
        deadline = time.monotonic() + within_s
        for owned in self.owned.values():
            owned.runner.close(owned)
        while any(owned.running > 0 for owned in self.owned.values()):
            if time.monotonic() > deadline:
                break
            self.member.read(BUSY_POLL_S, 1)
            self._renew_lease()
            self._loop_work()
            self._transact()
        self._commit_to_the_end(max(0.0, deadline - time.monotonic()))
        self.close(max(0.0, deadline - time.monotonic()))

    def close(self, within_s: float = 0.0) -> None:
        """Leave the group, also after a failure: others then get the partitions at once."""
        self._revoke_wait_s = within_s
        self.member.close()  # calls _revoked, which commits
        if self._retries is not None:
            self._retries.close()
        self.commits.close()
