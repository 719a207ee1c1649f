"""The coordinators on this broker: an internal topic each, and a shard on every partition it leads.

`ask` brings a request to its shard and answers when the log is committed so far: at once where
appends commit at once, else by `Parked` on the partition. `follow` opens and drops shards as the
metadata image says; `tick` lets time pass. The state machines know nothing of partitions, requests
that wait or topics to be created; that is here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

from headrace.broker.topics import Topic
from headrace.coordination.deadlines import NEVER_MS
from headrace.coordination.shard import UNKNOWN, Decision, Later, Machine, Shard
from headrace.environment import Now
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.java_hash import partition_for_group
from headrace.replication.replica import PartitionLeader
from headrace.serving.api import Parked
from headrace.serving.purgatory import Purgatory

log = logging.getLogger(__name__)

READ_BYTES = 4 << 20
MOST_PLACES = 10_000
LONGEST_PLACE = 255  # characters; clients may make names of 32 KB up, nobody needs them
# A request that waits for others has no deadline of its own: the machine's timers end the wait.
NO_DEADLINE_MS = 1 << 62
# What time has brought and the disk refuses is not tried at each look, ten times a second.
AGAIN_AFTER_REFUSAL_MS = 1_000
# Kafka's refusals of an append, as a client of a coordinator is to see them: all ask it to come
# again, to whoever is the coordinator then.
REFUSED_APPEND = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
}


class PartitionJournal:
    """A partition as its shard sees it."""

    __slots__ = ("leader", "led_since", "_appended")

    def __init__(
        self, leader: PartitionLeader, appended: Callable[[PartitionLeader], None]
    ) -> None:
        self.leader = leader
        self.led_since = leader.led_since
        self._appended = appended

    @property
    def is_led(self) -> bool:
        """Without a break since the state was loaded: others may have written meanwhile."""
        return self.leader.led_since == self.led_since

    @property
    def epoch(self) -> int:
        return self.leader.epoch

    @property
    def start_offset(self) -> int:
        return int(self.leader.log.start_offset)

    @property
    def end_offset(self) -> int:
        return int(self.leader.log.end_offset)

    def append(self, batch: bytes, wall_ms: int) -> int:
        leader = self.leader
        log = leader.log
        if not self.is_led:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if leader.in_sync < leader.min_in_sync:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        most = log.settings.max_message_bytes
        if len(batch) > most:
            # What Apache Kafka answers to a group that has outgrown one record.
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{len(batch)} bytes, but {leader.topic} has max.message.bytes={most}",
            )
        try:
            end_offset: int = leader.writer.append_as_is(memoryview(batch), wall_ms=wall_ms)
        except KafkaError as refusal:
            code = REFUSED_APPEND.get(refusal.code, refusal.code)
            raise KafkaError(code, refusal.message) from refusal
        leader.bytes_in += len(batch)
        if leader.commits_at_once:
            leader.high_watermark = end_offset
        self._appended(leader)
        return end_offset

    def read(self, offset: int) -> bytes:
        found = self.leader.log.read(
            offset, READ_BYTES, up_to=self.leader.log.end_offset, at_least_one=True
        )
        return b"" if found is None else found.file.read(found.length, found.position)


class TopicRules(Protocol):
    """How an internal topic is made; read when it is needed, as settings may change."""

    def __call__(self) -> tuple[int, int, Mapping[str, str]]:
        """Partitions, replicas, settings."""
        ...


class Coordinator:
    """One internal topic, and the shards on the partitions of it that this broker leads."""

    __slots__ = (
        "topic",
        "shards",
        "partitions",
        "topic_rules",
        "_places",
        "_new_machine",
        "_compression",
        "_purgatory",
        "_appended",
        "_again_ms",
        "_alarm",
        "_alarm_ms",
    )

    def __init__(
        self,
        topic: str,
        new_machine: Callable[[list[Later]], Machine],
        topic_rules: TopicRules,
        purgatory: Purgatory,
        appended: Callable[[PartitionLeader], None],
        compression: int = 0,
    ) -> None:
        self.topic = topic
        self.shards: dict[int, Shard] = {}  # by partition; those that this broker leads
        self.partitions = 0  # of the topic, as far as their files are made; 0: it has none yet
        self._places: dict[str, Shard] = {}  # keys that asked lately: hashing costs 3 us
        self.topic_rules = topic_rules
        self._new_machine = new_machine
        self._purgatory = purgatory
        self._appended = appended  # tells readers of the partition, asks for flushes
        self._compression = compression
        # By partition: when what is due is tried again that the disk has refused.
        self._again_ms: dict[int, int] = {}
        # Waits in the purgatory for the first deadline of all shards, so that the loop wakes then.
        self._alarm: Parked | None = None
        self._alarm_ms = NEVER_MS

    # --- requests

    def shard_of(self, key: str) -> Shard:
        """The shard that a group or transactional id belongs to."""
        shard = self._places.get(key)
        if shard is None:
            if self.partitions:
                shard = self.shards.get(partition_for_group(key, self.partitions))
            if shard is None:
                raise KafkaError(ErrorCode.NOT_COORDINATOR)
            if len(self._places) >= MOST_PLACES:
                self._places.clear()
            if len(key) <= LONGEST_PLACE:
                self._places[key] = shard
        return shard

    def ask(
        self, key: str, now: Now, decide: Callable[..., Decision], *arguments: Any
    ) -> Any | Parked:
        """The answer of the key's shard, now or later; refusals are raised."""
        return self.ask_shard(self.shard_of(key), now, decide, *arguments)

    def ask_shard(
        self, shard: Shard, now: Now, decide: Callable[..., Decision], *arguments: Any
    ) -> Any | Parked:
        try:
            response = shard.run(now, decide, *arguments)
        finally:
            if shard.settled:
                self._wake(shard)
            if shard.machine.deadlines.earliest_ms < self._alarm_ms:
                self._set_alarm(shard.machine.deadlines.earliest_ms, now)
        leader = journal_of(shard).leader
        if type(response) is Later:
            if response.answer is None or leader.high_watermark < response.at_offset:
                return wait_for_later(leader, response)
            return response.answer
        if leader.high_watermark < leader.log.end_offset:
            return wait_for_commit(leader, leader.log.end_offset, response)
        return response

    def _wake(self, shard: Shard) -> None:
        for later in shard.settled:
            self._purgatory.wake(later)
        shard.settled.clear()

    # --- time and change

    def tick(self, now: Now) -> None:
        now_ms = now.monotonic_ms
        for index, shard in list(self.shards.items()):
            due_ms = 0 if shard.applied_to == UNKNOWN else shard.machine.next_due_ms
            if due_ms is not None and max(due_ms, self._again_ms.get(index, 0)) <= now_ms:
                self._run_due(index, shard, now)
                if shard.settled:
                    self._wake(shard)
        # What is due still, the disk has refused: a later look tries it again.
        ahead = [shard.machine.deadlines.earliest_ms for shard in self.shards.values()]
        first_ms = min((at_ms for at_ms in ahead if at_ms > now_ms), default=NEVER_MS)
        if first_ms < self._alarm_ms:
            self._set_alarm(first_ms, now)

    def _set_alarm(self, at_ms: int, now: Now) -> None:
        """A session or a rebalance ends when its time is over, not at the next look at all."""

        def attempt(expired: bool) -> bool | None:
            if not expired:
                return None
            self._alarm, self._alarm_ms = None, NEVER_MS
            self.tick(now)
            return True

        if self._alarm is not None:
            self._purgatory.forget(self._alarm)
        self._alarm, self._alarm_ms = Parked(attempt, deadline_ms=at_ms, hangs_on=[]), at_ms
        self._purgatory.park(self._alarm)

    def _run_due(self, index: int, shard: Shard, now: Now) -> None:
        try:
            if shard.applied_to == UNKNOWN:
                shard.catch_up(now)
            shard.run_due(now)
        except KafkaError:  # the disk says no
            self._again_ms[index] = now.monotonic_ms + AGAIN_AFTER_REFUSAL_MS
        except Exception:  # noqa: BLE001 - one group's bug must not end the node
            log.exception("what was due in %s failed: its state is loaded anew", self.topic)
            shard.machine.abandon()
            with suppress(KafkaError):
                shard.load(now)

    def follow(self, topic: Topic | None, now: Now) -> None:
        """Open what this broker leads now, drop what it does not lead any more, or leads anew;
        `topic` is None while there is none."""
        replicas = [] if topic is None else topic.replicas
        for index, shard in list(self.shards.items()):
            journal = journal_of(shard)
            replica = replicas[index] if index < len(replicas) else None
            if replica is not journal.leader or not journal.is_led:
                self._drop(index)
        self.partitions = len(replicas)
        for index, replica in enumerate(replicas):
            if replica is None or not replica.leads or index in self.shards:
                continue
            shard = Shard(
                PartitionJournal(replica, self._appended), self._new_machine, self._compression
            )
            with suppress(KafkaError):  # damage is said; requests are refused until it is mended
                shard.load(now)
            self.shards[index] = shard
        self._places.clear()

    def log_was_cut_back(self, leader: PartitionLeader) -> None:
        """Its shard loads anew, also if a marker makes the log as long as it was before the next
        request looks.
        """
        for shard in self.shards.values():
            if journal_of(shard).leader is leader:
                shard.applied_to = UNKNOWN

    @property
    def damaged(self) -> int:
        """Partitions whose log cannot be loaded."""
        return sum(shard.damage is not None for shard in self.shards.values())

    def _drop(self, index: int) -> None:
        shard = self.shards.pop(index)
        shard.machine.abandon()
        self._wake(shard)
        self._again_ms.pop(index, None)

    def look(self, key: str, now: Now, look: Callable[..., Decision], waits: list[Parked]) -> Any:
        """What `look` finds in the key's shard, which may be told when `waits` are over."""
        answer = self.ask(key, now, look, key)
        if type(answer) is not Parked:
            return answer
        waits.append(answer)
        return answer.attempt(True)

    def uncommitted(self) -> list[Parked]:
        """What to wait for before anything of `machines` is told."""
        leaders = [journal_of(shard).leader for shard in self.shards.values()]
        return [
            wait_for_commit(leader, leader.log.end_offset, True)
            for leader in leaders
            if leader.high_watermark < leader.log.end_offset
        ]

    def machines(self, now: Now) -> Iterator[Any]:
        """All state, up to date with the logs; to look at, not to change."""
        for shard in list(self.shards.values()):
            if shard.applied_to != shard.journal.end_offset:
                shard.catch_up(now)
            yield shard.machine


def journal_of(shard: Shard) -> PartitionJournal:
    assert isinstance(shard.journal, PartitionJournal)
    return shard.journal


def wait_for_commit(leader: PartitionLeader, offset: int, response: Any) -> Parked:
    led_since = leader.led_since

    def attempt(expired: bool) -> Any | None:
        require_kept(leader, offset, led_since)
        return response if expired or leader.high_watermark >= offset else None

    return Parked(attempt, deadline_ms=NO_DEADLINE_MS, hangs_on=[leader])


def require_kept(leader: PartitionLeader, offset: int, led_since: int) -> None:
    """The disk may have refused what is waited for, or another broker has taken over, which may
    lack it; others will fill its place."""
    if leader.led_since != led_since or leader.log.end_offset < offset:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)


def wait_for_later(leader: PartitionLeader, later: Later) -> Parked:
    led_since = leader.led_since

    def attempt(expired: bool) -> Any | None:
        if leader.led_since == led_since:
            if later.answer is not None and leader.high_watermark >= later.at_offset:
                return later.answer
            if expired:
                return later.otherwise
        require_kept(leader, later.at_offset, led_since)
        return None

    return Parked(attempt, deadline_ms=NO_DEADLINE_MS, hangs_on=[later, leader])


def after_all(waits: list[Parked], response: Any) -> Any | Parked:
    """The response when all that it speaks of is committed."""
    if not waits:
        return response

    def attempt(expired: bool) -> Any | None:
        return response if all(one.attempt(expired) for one in waits) else None

    things = [thing for one in waits for thing in one.hangs_on]
    return Parked(attempt, deadline_ms=waits[0].deadline_ms, hangs_on=things)
