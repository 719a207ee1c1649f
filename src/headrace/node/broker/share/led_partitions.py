"""The share partitions that this broker leads: opened on first use, dropped with the leadership.

A share partition is opened by the first fetch of its group: its state is read from the share
coordinator, and a start that was never decided is found by `share.auto.offset.reset` and written,
so that a new leader begins at the same record. It is closed when this broker does not lead the
partition any more, when the coordinator knows a newer state or leader (FENCED_...), and when the
last session of the group on this broker has ended. The locks of a closed share partition are gone:
the records that were acquired and not acknowledged are available at the next opening. So are those
that were waiting after a release.

An acknowledgement is answered when the coordinator has its state. Locks expire and waits end at
their deadline, by an alarm in the purgatory.

With a dead-letter topic (`errors.deadletterqueue.topic.name` of the group) a record that is given
up is archived in three steps: its state is written, then its letter, then its state again. A letter
that cannot be written is tried again, with pauses; its record is not delivered meanwhile. A new
leader finds the first state and writes the letter again, with the same `headrace-dead-id`. A share
partition with letters to write stays open without sessions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.environment import Now
from headrace.node.broker.replicas.topics import Topics
from headrace.node.broker.share.letter_batch import LETTERS_AT_ONCE, LetterBatch, letters_of
from headrace.node.broker.share.sessions import ShareSession, ShareSessions
from headrace.node.coordination.deadlines import Deadlines
from headrace.node.coordination.share.runs import DeliveryState
from headrace.node.coordination.share.share_partition import (
    Acknowledgement,
    ShareLimits,
    SharePartition,
    StateBatch,
    StateUpdate,
)
from headrace.node.coordination.share.state_key import SharePartitionKey
from headrace.node.replication.replica import PartitionLeader
from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.purgatory import Purgatory
from headrace.wire.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from headrace.wire.protocol.messages import read_share_group_state, write_share_group_state

log = logging.getLogger(__name__)

# Pauses after a refused letter.
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 500, 30_000
NOT_DECIDED = -1  # the start offset of a group that has not begun
# After these errors the state here is out of date.
FENCING = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
# The codes that members get instead; others pass unchanged (as in Apache Kafka 4.3).
TOLD_INSTEAD = {
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.INVALID_REQUEST: ErrorCode.UNKNOWN_SERVER_ERROR,
}

Answered = Callable[[ErrorCode], None]


class ShareStates(Protocol):
    """The storage of share partitions' state; replies come once, maybe at once."""

    def read(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        reply: Callable[[read_share_group_state.PartitionResult], None],
    ) -> None: ...

    def write(
        self,
        key: SharePartitionKey,
        data: write_share_group_state.PartitionData,
        reply: Callable[[write_share_group_state.PartitionResult], None],
    ) -> None: ...


class GroupSettings(Protocol):
    """The settings of a share group that its partitions need."""

    @property
    def record_lock_ms(self) -> int: ...
    @property
    def delivery_limit(self) -> int: ...
    @property
    def max_record_locks(self) -> int: ...
    @property
    def backoff_ms(self) -> int: ...
    @property
    def backoff_max_ms(self) -> int: ...
    @property
    def offset_reset(self) -> str: ...
    @property
    def offset_reset_ms(self) -> int: ...
    @property
    def dead_letter_topic(self) -> str: ...


class Letters(Protocol):
    """The way to the dead-letter topics; the reply comes once, maybe at once."""

    def write(
        self,
        topic: str,
        like: tuple[str, int],
        batch: bytes,
        reply: Callable[[KafkaError | None], None],
    ) -> None: ...


@dataclass(slots=True)
class LettersUnderWay:
    """The dead letters of one share partition that are being written."""

    is_writing: bool = False
    at_once: int = LETTERS_AT_ONCE
    after: int = -1  # the last offset that was tried: letters that are refused hold up no others
    pause_ms: int = 0  # after a refusal
    again_ms: int | None = None  # time of the next attempt; None: none is planned


class LedSharePartition:
    """One share partition, from its opening until it is closed."""

    __slots__ = (
        "key",
        "leader",
        "led_since",
        "leader_epoch",
        "state_epoch",
        "machine",
        "refused",
        "is_closed",
        "waiting",
        "letters",
    )

    def __init__(self, key: SharePartitionKey, leader: PartitionLeader) -> None:
        self.key = key
        self.leader = leader
        self.led_since = leader.led_since
        self.leader_epoch = leader.epoch
        self.state_epoch = 0
        self.machine: SharePartition | None = None  # None: its state is being read
        self.refused: KafkaError | None = None  # why it could not be opened
        self.is_closed = False
        self.waiting: dict[WaitingRequest, None] = {}
        self.letters = LettersUnderWay()

    @property
    def is_led(self) -> bool:
        return self.leader.leads and self.leader.led_since == self.led_since


class LedSharePartitions:
    __slots__ = (
        "sessions",
        "_states",
        "_settings_of",
        "_letters",
        "_purgatory",
        "_now",
        "letters_written",
        "letters_refused",
        "_open",
        "_deadlines",
        "_alarm",
    )

    def __init__(
        self,
        states: ShareStates,
        settings_of: Callable[[str], GroupSettings],
        purgatory: Purgatory,
        now: Now,
        letters: Letters,
    ) -> None:
        self.letters_written = self.letters_refused = 0
        self._letters = letters
        self.sessions = ShareSessions(self._session_ended)
        self._states = states
        self._settings_of = settings_of
        self._purgatory = purgatory
        self._now = now
        self._open: dict[SharePartitionKey, LedSharePartition] = {}
        self._deadlines = Deadlines()  # of locks and waits, by share partition
        self._alarm: WaitingRequest | None = None

    def __len__(self) -> int:
        return len(self._open)

    # --- opening and closing

    def opened(self, group: str, leader: PartitionLeader) -> LedSharePartition:
        """Returns the share partition, which may not have its state yet. Raises the reason if it
        cannot be opened."""
        key = SharePartitionKey(group, leader.topic_id, leader.index)
        found = self._open.get(key)
        if found is not None and found.leader is leader and found.is_led:
            return found
        if found is not None:
            self.close(found)
        opened = self._open[key] = LedSharePartition(key, leader)
        self._states.read(key, opened.leader_epoch, lambda result: self._read(opened, result))
        if opened.refused is not None:
            raise opened.refused
        return opened

    def find(self, group: str, topic_id: bytes, index: int) -> LedSharePartition | None:
        """Returns None if no member of the group has fetched from it since this broker leads it."""
        found = self._open.get(SharePartitionKey(group, topic_id, index))
        return found if found is not None and found.is_led else None

    def _read(
        self, part: LedSharePartition, result: read_share_group_state.PartitionResult
    ) -> None:
        if part.is_closed:
            return
        try:
            if result.error_code != ErrorCode.NONE:
                raise _told(ErrorCode(result.error_code), result.error_message)
            part.state_epoch = result.state_epoch
            self._make_machine(part, result)
        except KafkaError as refusal:
            part.refused = refusal
            self.close(part)
        self._purgatory.wake(part)

    def _make_machine(
        self, part: LedSharePartition, result: read_share_group_state.PartitionResult
    ) -> None:
        start_offset = result.start_offset
        is_new = start_offset == NOT_DECIDED
        if is_new:
            start_offset = self._first_offset(part)
        kept = sorted(
            StateBatch(
                batch.first_offset,
                batch.last_offset,
                _kept_state(batch.delivery_state),
                batch.delivery_count,
            )
            for batch in result.state_batches
        )
        part.machine = SharePartition(start_offset, self._limits(part), kept)
        if is_new:
            self._write(part, StateUpdate([], start_offset, 0, waits=False), _ignored)
        elif part.machine.letters_due:
            self._write_letters_soon(part)

    def _first_offset(self, part: LedSharePartition) -> int:
        """Returns the offset at which a group begins that has read nothing yet."""
        settings, leader = self._settings_of(part.key.group_id), part.leader
        if settings.offset_reset == "earliest":
            return leader.log.start_offset
        latest = leader.latest_offset(committed=False)
        if settings.offset_reset == "latest":
            return latest
        since_ms = self._now.wall_ms - settings.offset_reset_ms
        try:
            leader.log.write_pending()
            found = leader.log.offset_for_time(since_ms)
        except MalformedMessage as damage:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage)) from damage
        except OSError as problem:
            leader.log.unwritten.on_problem(leader.log.folder, problem)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(problem)) from problem
        return latest if found is None else min(found[1], latest)

    def _limits(self, part: LedSharePartition) -> ShareLimits:
        settings = self._settings_of(part.key.group_id)
        return ShareLimits(
            settings.record_lock_ms,
            settings.delivery_limit,
            settings.max_record_locks,
            settings.backoff_ms,
            settings.backoff_max_ms,
            # The records of a dead-letter topic are letters already.
            settings.dead_letter_topic not in ("", part.leader.topic),
        )

    def close(self, part: LedSharePartition) -> None:
        if part.is_closed:
            return
        part.is_closed = True
        if self._open.get(part.key) is part:
            del self._open[part.key]
        self._deadlines.drop(part)
        self._purgatory.wake(part)

    def follow(self, topics: Topics) -> None:
        """Call after the metadata has changed: close what this broker does not lead any more."""
        for part in list(self._open.values()):
            topic = topics.by_id.get(part.key.topic_id)
            leader = None if topic is None else topic.leader_if_here(part.key.partition)
            if leader is not part.leader or not part.is_led:
                self.close(part)

    # --- records

    def prepare(self, part: LedSharePartition) -> SharePartition | None:
        """Returns the machine, with the present settings of the group and the present log start
        offset."""
        machine = part.machine
        if machine is not None:
            machine.limits = self._limits(part)
            machine.log_starts_at(part.leader.log.start_offset)
        return machine

    def acquired(self, part: LedSharePartition) -> None:
        """To be called after records were acquired."""
        self._set_deadline(part)

    def acknowledge(
        self,
        part: LedSharePartition,
        member: str,
        acknowledgements: Sequence[Acknowledgement],
        answered: Answered,
    ) -> None:
        """`answered` is called once, when the acknowledgement is committed or refused."""
        machine = self.prepare(part)
        if machine is None:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE)
        update = machine.acknowledge(member, acknowledgements, self._now.monotonic_ms)
        self._set_deadline(part)
        if update is None:
            answered(ErrorCode.NONE)
        else:
            self._write(part, update, answered)

    def _session_ended(self, session: ShareSession, is_last: bool) -> None:
        """The member is gone; its records are available at once. With the last session of the group
        here its share partitions are closed."""
        for part in [each for each in self._open.values() if each.key.group_id == session.group]:
            if part.machine is not None:
                self._taken_back(part, part.machine.release_all(session.member))
            if is_last:
                self._close_if_done(part)

    def _taken_back(self, part: LedSharePartition, update: StateUpdate | None) -> None:
        if update is not None:
            self._write(part, update, _ignored)
            self._purgatory.wake(part)
        self._set_deadline(part)

    def _write(self, part: LedSharePartition, update: StateUpdate, answered: Answered) -> None:
        data = write_share_group_state.PartitionData(
            part.key.partition,
            part.state_epoch,
            part.leader_epoch,
            update.start_offset,
            update.finished,
            [write_share_group_state.StateBatch(*batch) for batch in update.batches],
        )
        self._states.write(
            part.key, data, lambda result: self._wrote(part, update, result, answered)
        )

    def _wrote(
        self,
        part: LedSharePartition,
        update: StateUpdate,
        result: write_share_group_state.PartitionResult,
        answered: Answered,
    ) -> None:
        assert part.machine is not None
        code = ErrorCode(result.error_code)
        machine = part.machine
        had_room = machine.has_room
        machine.written(update, succeeded=code == ErrorCode.NONE)
        if code != ErrorCode.NONE:
            log.warning(
                "the state of share partition %s was not written: %s", part.key.text, code.name
            )
        if code in FENCING:
            self.close(part)
        elif not part.is_closed:
            if machine.letters_due:
                self._write_letters_soon(part)
            elif not self.sessions.has_any(part.key.group_id):
                self._close_if_done(part)
            self._set_deadline(part)
            # Most acknowledgements accept records, which makes nothing available to waiting
            # fetches.
            if machine.has_room and (
                not had_room or machine.next_fetch_offset < machine.end_offset
            ):
                self._purgatory.wake(part)
        answered(TOLD_INSTEAD.get(code, code))

    # --- dead letters

    @property
    def letters_due(self) -> int:
        """Returns how many records are given up and have no stored letter."""
        return sum(
            last - first + 1
            for part in self._open.values()
            if part.machine is not None
            for first, last, _ in part.machine.letters_due
        )

    def _close_if_done(self, part: LedSharePartition) -> None:
        """Close the share partition of a group without sessions here, unless letters are left."""
        machine = part.machine
        if machine is None or not machine.is_archiving:
            self.close(part)

    def _write_letters_soon(self, part: LedSharePartition) -> None:
        """In a later turn, so that many letters do not hold up requests."""
        letters = part.letters
        if letters.again_ms is None and not letters.is_writing:
            letters.again_ms = self._now.monotonic_ms
            self._set_deadline(part)

    def _write_letters(self, part: LedSharePartition) -> None:
        machine, letters = part.machine, part.letters
        assert machine is not None
        letters.again_ms = None
        due = machine.letters_due
        if letters.is_writing or not due:
            return
        due = [each for each in due if each.first > letters.after] or due
        topic = self._settings_of(part.key.group_id).dead_letter_topic
        if topic in ("", part.leader.topic):  # the setting was removed meanwhile
            log.info("share partition %s has no dead-letter topic any more", part.key.text)
            self._archive(part, [(first, last) for first, last, _ in due])
            return
        letters.is_writing = True
        try:
            found = letters_of(part, due, letters.at_once, self._now.wall_ms)
            letters.after = found.ranges[-1][1]
            if found.batch is None:
                self._letters_answered(part, found, None)
                return
            self._letters.write(
                topic,
                (part.leader.topic, part.key.partition),
                found.batch,
                lambda refusal: self._letters_answered(part, found, refusal),
            )
        except KafkaError as refusal:
            self._letters_answered(part, None, refusal)

    def _letters_answered(
        self, part: LedSharePartition, found: LetterBatch | None, refusal: KafkaError | None
    ) -> None:
        letters = part.letters
        letters.is_writing = False
        if part.is_closed:
            return
        if refusal is None and found is not None:
            letters.pause_ms = 0
            self.letters_written += found.count
            self._archive(part, found.ranges)
            return
        assert refusal is not None
        self.letters_refused += 1
        if refusal.code == ErrorCode.MESSAGE_TOO_LARGE:
            letters.at_once = 1
        if not letters.pause_ms:
            log.warning(
                "dead letters of share partition %s cannot be written, and are tried again; their "
                "records are not archived: %s",
                part.key.text,
                refusal,
            )
        letters.pause_ms = min(max(2 * letters.pause_ms, FIRST_PAUSE_MS), LONGEST_PAUSE_MS)
        letters.again_ms = self._now.monotonic_ms + letters.pause_ms
        self._set_deadline(part)

    def _archive(self, part: LedSharePartition, ranges: Sequence[tuple[int, int]]) -> None:
        assert part.machine is not None
        self._taken_back(part, part.machine.letters_stored(ranges))
        if part.machine.letters_due:
            self._write_letters_soon(part)

    # --- locks that expire, waits that end

    def _set_deadline(self, part: LedSharePartition) -> None:
        due = [] if part.machine is None else [part.machine.next_expiry_ms, part.letters.again_ms]
        at_ms = min((each for each in due if each is not None), default=None)
        if at_ms is None or part.is_closed:
            self._deadlines.drop(part)
            return
        self._deadlines.set(part, at_ms)
        if self._alarm is None or at_ms < self._alarm.deadline_ms:
            self._set_alarm(at_ms)

    def _set_alarm(self, at_ms: int) -> None:
        def attempt(expired: bool) -> bool | None:
            if not expired:
                return None
            self._alarm = None
            self._expire()
            return True

        if self._alarm is not None:
            self._purgatory.forget(self._alarm)
        self._alarm = WaitingRequest(attempt, deadline_ms=at_ms, hangs_on=[])
        self._purgatory.add(self._alarm)

    def _expire(self) -> None:
        now_ms = self._now.monotonic_ms
        while isinstance(part := self._deadlines.reached(now_ms), LedSharePartition):
            self._deadlines.drop(part)
            if part.machine is not None and not part.is_closed:
                self._taken_back(part, part.machine.give_up_expired(now_ms))
                self._taken_back(part, part.machine.expire(now_ms))
                if part.letters.again_ms is not None and part.letters.again_ms <= now_ms:
                    self._write_letters(part)
                    self._set_deadline(part)
                if part.machine.next_fetch_offset < part.machine.end_offset:
                    self._purgatory.wake(part)
        next_ms = self._deadlines.next_ms
        if next_ms is not None and self._alarm is None:
            self._set_alarm(next_ms)


def _told(code: ErrorCode, message: str | None) -> KafkaError:
    return KafkaError(TOLD_INSTEAD.get(code, code), message)


def _kept_state(number: int) -> DeliveryState:
    """A record that was acquired when its state was written is available to the next leader."""
    state = DeliveryState(number)
    is_kept = state.is_final or state is DeliveryState.ARCHIVING
    return state if is_kept else DeliveryState.AVAILABLE


def _ignored(code: Any) -> None:
    """The state here is already in effect; the next write includes what this one did not store."""
