"""The coordinators on this broker: an internal topic each, and a shard on every partition it leads.

`ask` brings a request to its shard and answers when the log is committed up to its records: at once
where appends commit at once, else by a `WaitingRequest` on the partition (`coordinator_waits.py`).
`read` and `look` also wait until followers have confirmed that no other broker leads
(`confirmed_reads.py`). `follow` opens and drops shards according to the metadata image: a shard
with a log that is not empty is loaded in slices, and clients get COORDINATOR_LOAD_IN_PROGRESS
meanwhile; when another broker leads the partition, its shard is dropped, and waiting requests get
NOT_COORDINATOR. `tick` runs what is due. The state machines know nothing of partitions, waiting
requests or topics that have to be created; this module does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

from headrace.environment import Now
from headrace.node.broker.coordinators.confirmed_reads import ConfirmedReads
from headrace.node.broker.coordinators.coordinator_waits import (
    wait_for_commit,
    wait_for_confirmation,
    wait_for_later,
)
from headrace.node.broker.coordinators.partition_journal import PartitionJournal, journal_of
from headrace.node.broker.replicas.topics import Topic
from headrace.node.coordination.deadlines import NEVER_MS
from headrace.node.coordination.shard import UNKNOWN, Decision, Later, Machine, Shard
from headrace.node.replication.replica import PartitionLeader
from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.purgatory import Purgatory
from headrace.node.serving.slices import FairLane, Lane
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.java_hash import partition_for_group

log = logging.getLogger(__name__)

MOST_KEYS_REMEMBERED = 10_000
LONGEST_PLACE = 255  # characters; clients can send names of up to 32 KB, which have no use
# A due decision that the disk refused is not retried at each tick, ten times a second.
AGAIN_AFTER_REFUSAL_MS = 1_000
QUIET_MS = 30_000  # between two log lines about the same thing
# Work of one tick: 1 for each due decision, record and ended transaction, which take 20 to 100 us
# each. The rest is done between other requests: 2,000 transactions that timed out together held the
# loop for 200 ms.
WORK_AT_ONCE = 100


class TopicRules(Protocol):
    """The rules by which an internal topic is created; read when they are needed, as settings may
    change."""

    def __call__(self) -> tuple[int, int, Mapping[str, str]]:
        """Returns the number of partitions, the number of replicas, and the settings."""
        ...


def replicas_of_topic(peers: Any, wanted: int) -> int:
    """Returns the number of replicas of a coordinator's topic; `peers` are None on a node that is
    alone. In a cluster the topic waits for enough brokers, as in Apache Kafka: created too early,
    it would keep too few replicas."""
    return wanted if peers is not None else 1


class Coordinator:
    """One internal topic, and the shards on the partitions of it that this broker leads."""

    __slots__ = (
        "topic",
        "shards",
        "loading",
        "partitions",
        "waiting",
        "topic_rules",
        "_shards_by_key",
        "_new_machine",
        "_compression",
        "_purgatory",
        "_reads",
        "_appended",
        "_loads",
        "_chores",
        "_is_behind",
        "_commit_timeout_ms",
        "_again_ms",
        "_quiet_until_ms",
        "_alarm",
        "_alarm_ms",
    )

    def __init__(
        self,
        topic: str,
        new_machine: Callable[[list[Later]], Machine],
        topic_rules: TopicRules,
        purgatory: Purgatory,
        reads: ConfirmedReads,
        appended: Callable[[PartitionLeader], None],
        loads: Lane,
        chores: FairLane,
        commit_timeout_ms: Callable[[], int],
        compression: int = 0,
    ) -> None:
        self.topic = topic
        self.shards: dict[int, Shard] = {}  # by partition; only those that this broker leads
        self.loading: dict[int, Shard] = {}  # by partition; their logs are being read
        self.partitions = 0  # partitions of the topic whose files exist; 0 if there is no topic yet
        self.waiting: dict[WaitingRequest, None] = {}  # until the topic's files exist
        self._shards_by_key: dict[str, Shard] = {}  # of recent keys: hashing costs 3 us
        self.topic_rules = topic_rules
        self._new_machine = new_machine
        self._purgatory = purgatory
        self._reads = reads
        self._appended = appended  # wakes readers of the partition, requests flushes
        self._loads = loads
        self._chores = chores
        self._is_behind = False  # more was due than one tick does; a chore continues
        self._commit_timeout_ms = commit_timeout_ms  # how long an answer waits for replicas
        self._compression = compression
        # By partition: when a due decision is retried after the disk refused it.
        self._again_ms: dict[int, int] = {}
        self._quiet_until_ms = 0
        # Waits in the purgatory for the first deadline of all shards, so that the loop wakes then.
        self._alarm: WaitingRequest | None = None
        self._alarm_ms = NEVER_MS

    # --- requests

    def shard_of(self, key: str) -> Shard:
        """Returns the shard that a group or transactional id belongs to."""
        shard = self._shards_by_key.get(key)
        if shard is None:
            index = partition_for_group(key, self.partitions) if self.partitions else -1
            if index in self.loading:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            shard = self.shards.get(index)
            if shard is None:
                raise KafkaError(ErrorCode.NOT_COORDINATOR)
            if len(self._shards_by_key) >= MOST_KEYS_REMEMBERED:
                self._shards_by_key.clear()
            if len(key) <= LONGEST_PLACE:
                self._shards_by_key[key] = shard
        return shard

    def ask(
        self, key: str, now: Now, decide: Callable[..., Decision], *arguments: Any
    ) -> Any | WaitingRequest:
        """Returns the answer of the key's shard, now or later; raises refusals."""
        return self.ask_shard(self.shard_of(key), now, decide, *arguments)

    def ask_shard(
        self, shard: Shard, now: Now, decide: Callable[..., Decision], *arguments: Any
    ) -> Any | WaitingRequest:
        response = self._run(shard, now, decide, *arguments)
        leader = journal_of(shard).leader
        if type(response) is Later:
            if response.answer is None or leader.high_watermark < response.at_offset:
                return wait_for_later(leader, response)
            return response.answer
        if leader.high_watermark < leader.log.end_offset:
            return self._when_committed(leader, response, now)
        return response

    def read(
        self, key: str, now: Now, decide: Callable[..., Decision], *arguments: Any
    ) -> Any | WaitingRequest:
        """Returns what `look` finds in the key's shard, once it is certain that no newer
        coordinator has changed it."""
        shard = self.shard_of(key)
        response = self._run(shard, now, decide, *arguments)
        wait = self._wait_to_tell(journal_of(shard).leader, response, now)
        return response if wait is None else wait

    def _wait_to_tell(
        self, leader: PartitionLeader, response: Any, now: Now
    ) -> WaitingRequest | None:
        """Returns a wait until the answer may be sent; None: it may be sent at once."""
        if leader.leading is None:  # no other broker has a replica
            if leader.high_watermark < leader.log.end_offset:
                return self._when_committed(leader, response, now)
            return None
        now_ms = now.monotonic_ms
        deadline_ms = now_ms + self._commit_timeout_ms()
        read = self._reads.begin(leader, now_ms, deadline_ms)
        if read.is_confirmed and leader.high_watermark >= leader.log.end_offset:
            return None
        return wait_for_confirmation(read, leader.log.end_offset, response, deadline_ms)

    def _run(self, shard: Shard, now: Now, decide: Callable[..., Decision], *arguments: Any) -> Any:
        """Returns the answer, whether it may leave yet or not."""
        if not journal_of(shard).is_led:  # the metadata image is newer than the last `follow`
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        try:
            return shard.run(now, decide, *arguments)
        finally:
            if shard.answered:
                self._wake(shard)
            if shard.machine.deadlines.earliest_ms < self._alarm_ms:
                self._set_alarm(shard.machine.deadlines.earliest_ms, now)

    def _when_committed(self, leader: PartitionLeader, response: Any, now: Now) -> WaitingRequest:
        deadline_ms = now.monotonic_ms + self._commit_timeout_ms()
        return wait_for_commit(leader, leader.log.end_offset, response, deadline_ms)

    def _wake(self, shard: Shard) -> None:
        for later in shard.answered:
            self._purgatory.wake(later)
        shard.answered.clear()

    def say_why_not(self, replicas: int, registered: int, now: Now) -> None:
        """Logs that more brokers are needed; clients only get COORDINATOR_NOT_AVAILABLE."""
        if now.monotonic_ms >= self._quiet_until_ms:
            self._quiet_until_ms = now.monotonic_ms + QUIET_MS
            log.warning(
                "%s is not made yet: it is to have %d replicas, and %d brokers are registered",
                self.topic, replicas, registered,
            )  # fmt: skip

    # --- time and change

    def tick(self, now: Now) -> None:
        """Do what is due; if there is much of it, do the rest between other requests."""
        if self._is_behind:
            return
        steps, work = self._pass_time(now), 0
        for taken in steps:
            work += taken
            if work >= WORK_AT_ONCE:
                self._is_behind = True
                self._chores.add(self._catch_up(steps))
                return

    def _catch_up(self, steps: Iterator[int]) -> Iterator[int]:
        try:
            yield from steps
        finally:
            self._is_behind = False

    def _pass_time(self, now: Now) -> Iterator[int]:
        """Run the decisions that are due, one in each step; yields the work that it took. `now` is
        the present time in each step."""
        for index, shard in list(self.shards.items()):
            while self._is_due(index, shard, now.monotonic_ms):
                before = shard.applied_to
                is_done = self._run_due(index, shard, now)
                if shard.answered:
                    self._wake(shard)
                yield 1 + max(shard.applied_to - before, 0)
                if not is_done:
                    break
        # A decision that is still due was refused by the disk: a later tick retries it.
        now_ms = now.monotonic_ms
        ahead = [shard.machine.deadlines.earliest_ms for shard in self.shards.values()]
        first_ms = min((at_ms for at_ms in ahead if at_ms > now_ms), default=NEVER_MS)
        if first_ms < self._alarm_ms:
            self._set_alarm(first_ms, now)

    def _is_due(self, index: int, shard: Shard, now_ms: int) -> bool:
        if self.shards.get(index) is not shard or not journal_of(shard).is_led:
            return False  # `follow` drops it
        due_ms = 0 if shard.applied_to == UNKNOWN else shard.machine.next_due_ms
        return due_ms is not None and max(due_ms, self._again_ms.get(index, 0)) <= now_ms

    def _set_alarm(self, at_ms: int, now: Now) -> None:
        """Set an alarm for the next deadline, so that a session or a rebalance ends on time and not
        at the next regular tick."""

        def attempt(expired: bool) -> bool | None:
            if not expired:
                return None
            self._alarm, self._alarm_ms = None, NEVER_MS
            self.tick(now)
            return True

        if self._alarm is not None:
            self._purgatory.forget(self._alarm)
        self._alarm, self._alarm_ms = WaitingRequest(attempt, deadline_ms=at_ms, hangs_on=[]), at_ms
        self._purgatory.add(self._alarm)

    def _run_due(self, index: int, shard: Shard, now: Now) -> bool:
        """Run one decision; false if it failed or none is due."""
        try:
            if shard.applied_to == UNKNOWN:
                shard.catch_up(now)
            return shard.run_next_due(now)
        except KafkaError:  # the disk refused the record
            self._again_ms[index] = now.monotonic_ms + AGAIN_AFTER_REFUSAL_MS
        except Exception:  # one group's bug must not end the node
            log.exception("a deadline of %s failed: its state is loaded again", self.topic)
            shard.machine.abandon()
            with suppress(KafkaError):
                shard.load(now)
        return False

    def follow(self, topic: Topic | None, now: Now) -> None:
        """Open the shards of partitions that this broker leads now; drop those that it no longer
        leads, or leads in a new term. `topic` is None while the topic does not exist."""
        replicas = [] if topic is None else topic.replicas
        for index, shard in [*self.shards.items(), *self.loading.items()]:
            journal = journal_of(shard)
            replica = replicas[index] if index < len(replicas) else None
            if replica is not journal.leader or not journal.is_led:
                self._drop(index)
        self.partitions = len(replicas)
        for index, replica in enumerate(replicas):
            is_known = index in self.shards or index in self.loading
            if replica is not None and replica.leads and not is_known:
                self._open(index, replica, now)
        self._shards_by_key.clear()
        self._purgatory.wake(self)

    def _open(self, index: int, leader: PartitionLeader, now: Now) -> None:
        journal = PartitionJournal(leader, self._appended)
        shard = Shard(journal, self._new_machine, self._compression)
        self.loading[index] = shard
        work = self._load(index, shard, now)
        if journal.start_offset == journal.end_offset:
            for _ in work:
                pass
        else:
            self._loads.add(work)

    def _load(self, index: int, shard: Shard, now: Now) -> Iterator[None]:
        """Read to the end of the log, as Apache Kafka does: the former leader may have committed
        records that are not committed here yet, and answers wait for the high watermark in any
        case."""
        steps = shard.load_in_slices(now)
        try:
            while self._still_loads(index, shard):
                next(steps)
                yield
        except StopIteration:
            pass
        except KafkaError:
            pass  # damage is logged; requests are refused until it is repaired
        except Exception:  # one group's bug must not keep the others waiting
            log.exception("%s-%d cannot be loaded", self.topic, index)
            del self.loading[index]
        if self._still_loads(index, shard):
            del self.loading[index]
            self.shards[index] = shard
            self._opened(shard)

    def _still_loads(self, index: int, shard: Shard) -> bool:
        return self.loading.get(index) is shard and journal_of(shard).is_led

    def _opened(self, shard: Shard) -> None:
        """Called when the shard has been loaded and begins to answer requests."""

    def log_was_cut_back(self, leader: PartitionLeader, now: Now) -> None:
        """Load its shard again, also if a marker makes the log as long as it was before the next
        request looks."""
        for index, shard in list(self.loading.items()):
            if journal_of(shard).leader is leader:
                self._open(index, leader, now)
        for shard in self.shards.values():
            if journal_of(shard).leader is leader:
                shard.applied_to = UNKNOWN

    @property
    def damaged(self) -> int:
        """Returns the number of partitions whose log cannot be loaded."""
        return sum(shard.damage is not None for shard in self.shards.values())

    def _drop(self, index: int) -> None:
        """Drop the shard and its timers; requests that wait for it get NOT_COORDINATOR."""
        self.loading.pop(index, None)
        self._again_ms.pop(index, None)
        shard = self.shards.pop(index, None)
        if shard is not None:
            shard.machine.abandon()
            self._wake(shard)
            self._loads.add(shard.machine.dismantle())

    def look(
        self, key: str, now: Now, look: Callable[..., Decision], waits: list[WaitingRequest]
    ) -> Any:
        """Returns the result of `look` in the key's shard; it may be sent when `waits` are over."""
        shard = self.shard_of(key)
        answer = self._run(shard, now, look, key)
        wait = self._wait_to_tell(journal_of(shard).leader, True, now)
        if wait is not None:
            waits.append(wait)
        return answer

    def uncommitted(self, now: Now) -> list[WaitingRequest]:
        """Returns the conditions to wait for before any state of `machines` is sent in an
        answer."""
        leaders = [journal_of(shard).leader for shard in self.shards.values()]
        return [
            self._when_committed(leader, True, now)
            for leader in leaders
            if leader.high_watermark < leader.log.end_offset
        ]

    def machines(self, now: Now) -> Iterator[Any]:
        """Yields all state machines, up to date with the logs; read them, do not change them."""
        if self.loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for shard in list(self.shards.values()):
            if not journal_of(shard).is_led:
                continue
            if shard.applied_to != shard.journal.end_offset:
                shard.catch_up(now)
            yield shard.machine
