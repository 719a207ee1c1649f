"""Ships lines: looks for files, reads them in turn, sends, and keeps what is written.

One thread. Reading stops while the producer's buffer is full, so memory is bounded by that buffer
and, for each file, by the longest line and group. Positions are kept once a second, and before
lines are sent that could not be told from others after a kill: of a file that is new, and of a
group that ends because of a pause (`followed.py`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError

from headrace.client.connection import Connection
from headrace.client.errors import BufferFull, ClientError
from headrace.client.producer import Producer
from headrace.services.shipping import files
from headrace.services.shipping.counters import Counters
from headrace.services.shipping.files import OpenFile
from headrace.services.shipping.followed import Followed, Sent
from headrace.services.shipping.formats import AUTO, TEXT
from headrace.services.shipping.joining import Group
from headrace.services.shipping.piped import Piped
from headrace.services.shipping.positions import StateFolder
from headrace.services.shipping.records import Made, Origin, made, shortened
from headrace.services.shipping.roster import Roster

CHUNK = 256 * 1024
LOOK_EVERY_MS = 1_000
KEEP_EVERY_MS = 1_000
QUIET_MS = 1_000
IDLE_S = 0.1
# A full buffer is looked at so often, to hear of a wish to stop.
BLOCK_S = 0.5
BUFFER_MESSAGES, BUFFER_KIB = 50_000, 32 * 1024
# A producer that failed for good is made anew; more often, something is wrong that stays so.
MOST_NEW_PRODUCERS = 5
NEW_PRODUCERS_WITHIN_MS = 60_000
DEAD = (KafkaError._FATAL, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)


@dataclass(slots=True, kw_only=True)
class Settings:
    patterns: list[str]
    topic: str
    origin: Origin
    max_line: int = 64 * 1024
    stdin: int | None = None  # a descriptor to read too
    from_end: bool = False
    once: bool = False  # to the end of what is there, and no further
    grace_s: float = 30.0  # to write what was read, at the end
    compression: str = "zstd"

    @property
    def joins(self) -> bool:
        return self.origin.form in (AUTO, TEXT)


class Shipper:
    """`run` until `stop` is called, or with `once` until all is written."""

    def __init__(
        self,
        connection: Connection,
        settings: Settings,
        state: StateFolder | None,
        note: Callable[[str], None],
        *,
        wall_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex[:16],
    ) -> None:
        self.connection, self.settings, self.state, self.note = connection, settings, state, note
        self.counters = Counters()
        self.failure: ClientError | None = None
        self._wall_ms = wall_ms
        self._stopping = False
        self.roster = Roster(
            patterns=settings.patterns,
            max_line=settings.max_line,
            joins=settings.joins,
            from_end=settings.from_end,
            new_id=new_id,
            note=note,
            counters=self.counters,
        )
        self.piped: Piped | None = None
        if settings.stdin is not None:
            self.piped = Piped.of(
                settings.stdin, new_id(), most=settings.max_line, joins=settings.joins
            )
        self._producers_made: list[int] = []
        self._kept: list[object] = []
        self._why_dead: ClientError | None = None
        self._new_producer()

    def stop(self) -> None:
        self._stopping = True

    # ---- the loop

    def run(self) -> None:
        """Raises ClientError for what keeps records from being written, StateError for a state
        folder that cannot be written to."""
        if self.state is not None:
            self.roster.load(self.state.load())
        try:
            self._loop()
            self._end_emptied(self.roster.without_copy(self._wall_ms(), 0))
            self._flush()
        finally:
            self._close()

    def _loop(self) -> None:
        looked_ms = kept_ms = self._wall_ms()
        self.roster.look(looked_ms, first=True)
        while not self._stopping:
            self._raise_failure()
            now_ms = self._wall_ms()
            if now_ms - looked_ms >= LOOK_EVERY_MS:
                self.roster.look(now_ms)
                looked_ms = now_ms
            moved = self._read_all()
            self._end_emptied(self.roster.without_copy(now_ms))
            if now_ms - kept_ms >= KEEP_EVERY_MS:
                self._keep()
                kept_ms = now_ms
            if moved:
                self._poll(0)
            elif self._is_done():
                return
            else:
                self._poll(IDLE_S)

    def _is_done(self) -> bool:
        """Whether nothing can follow: the pipe has ended and there is no file to wait for."""
        if self.piped is not None and not self.piped.is_over:
            return False
        return not self.settings.patterns or (self.settings.once and not self.roster.waits)

    def _read_all(self) -> bool:
        """One chunk of each; whether there was any."""
        moved = False
        for one in list(self.roster.open.values()):
            if self._stopping:
                return moved
            moved |= self._read(one)
        if self.piped is not None and not self._stopping:
            moved |= self._read_pipe(self.piped)
        return moved

    def _read(self, one: OpenFile) -> bool:
        now_ms = self._wall_ms()
        if one.is_rewritten():
            self.roster.rewritten(one, now_ms)
            self._keep_what_is_new()
            return True
        self._keep_what_is_new()
        chunk = one.chunk(CHUNK)
        if not chunk:
            self._at_the_end(one, now_ms)
            return False
        self.counters.bytes_read += len(chunk)
        groups = one.followed.feed(chunk, now_ms)
        if groups and not one.is_known_by_its_head:
            self._keep()
        self._send(one.followed, groups, now_ms)
        return True

    def _at_the_end(self, one: OpenFile, now_ms: int) -> None:
        """No byte right now: a pause, or the end of a file that was rotated away."""
        followed, is_over = one.followed, self.roster.is_over(one, now_ms)
        if is_over or self.settings.once:
            if self._cut_and_keep(followed.finish()):
                self._send(followed, followed.at_end(), now_ms)
            if is_over and followed.is_all_written:
                self.roster.let_go(one, now_ms)
        elif self._cut_and_keep(followed.pause(now_ms, QUIET_MS)):
            self._send(followed, followed.after_pause(), now_ms)

    def _end_emptied(self, ended: list[Followed]) -> None:
        for followed in ended:
            if self._cut_and_keep(followed.finish()):
                self._send(followed, followed.at_end(), self._wall_ms())

    def _cut_and_keep(self, is_cut: bool) -> bool:
        """A place that was cut is kept before what is before it is sent."""
        if is_cut:
            self._keep()
        return is_cut

    def _read_pipe(self, piped: Piped) -> bool:
        now_ms = self._wall_ms()
        chunk = piped.chunk(CHUNK)
        if chunk:
            self.counters.bytes_read += len(chunk)
            self._send(piped.followed, piped.followed.feed(chunk, now_ms), now_ms)
        elif piped.is_over:
            self._send(piped.followed, piped.followed.at_end(), now_ms)
        elif piped.followed.pause(now_ms, QUIET_MS):
            self._send(piped.followed, piped.followed.after_pause(), now_ms)
        return bool(chunk)

    # ---- sending

    def _send(self, followed: Followed, groups: list[Group], now_ms: int) -> None:
        position, origin, counters = followed.position, self.settings.origin, self.counters
        key = position.id.encode()
        for group in groups:
            record = made(group, position.id, position.path, origin, now_ms)
            if record is None:
                counters.blank += 1
                followed.skipped(group.end)
                continue
            counters.lines += 1
            counters.bad += record.problem
            counters.cut += group.cut is not None
            if not self._take(key, record, followed.sending(group.end), followed):
                return

    def _take(self, key: bytes, record: Made, sent: Sent, followed: Followed) -> bool:
        """False if it was told to stop meanwhile; the record is read again by the next one."""
        ended = partial(self._ended, followed, sent, key, record)
        topic, take = self.settings.topic, self._producer.take
        while True:
            try:
                take(topic, record.value, key, None, ended, None, record.headers)
                return True
            except BufferFull:
                self.counters.waits += 1
                if self._stopping or self.failure is not None:
                    return False
                if self._producer.failed_for_good:
                    self._begin_anew()
                    return False
            except ClientError as refusal:
                if self._producer.failed_for_good:
                    self._begin_anew()
                    return False
                if not self._shorten(record):
                    self.failure = refusal
                    return False

    def _ended(
        self,
        followed: Followed,
        sent: Sent,
        key: bytes,
        record: Made,
        error: KafkaError | None,
        message: Any,
    ) -> None:
        """On this thread, from a poll."""
        if error is None:
            self.counters.written += 1
            followed.written(sent)
        elif self._producer.failed_for_good or error.code() in DEAD:
            self._is_dead = True  # the loop makes another one, and reads again
            self._why_dead = self._producer.explain_delivery(error, self.settings.topic)
        elif error.code() in TOO_LARGE and self._shorten(record):
            self._take(key, record, sent, followed)
        elif self.failure is None:
            self.failure = self._producer.explain_delivery(error, self.settings.topic)

    def _shorten(self, record: Made) -> bool:
        """False if it was shortened before."""
        shorter = shortened(record.value)
        if len(shorter) >= len(record.value):
            return False
        record.value = shorter
        self.counters.shortened += 1
        return True

    def _poll(self, timeout_s: float) -> None:
        self._producer_poll(timeout_s)
        if self._is_dead or self._producer.failed_for_good:
            self._begin_anew()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _new_producer(self) -> None:
        self._producer: Producer[bytes, bytes] = Producer(
            self.connection,
            max_block_s=BLOCK_S,
            settings={
                "queue.buffering.max.messages": BUFFER_MESSAGES,
                "queue.buffering.max.kbytes": BUFFER_KIB,
                "linger.ms": 50,
                "compression.type": self.settings.compression,
                "message.timeout.ms": 0,  # the file has it: try for ever
            },
        )
        self._producer_poll = self._producer.poll_by_hand()
        self._is_dead = False
        self._why_dead = None

    def _begin_anew(self) -> None:
        """The producer takes nothing any more: another one, and all that is not written again."""
        now_ms = self._wall_ms()
        recent = [one for one in self._producers_made if now_ms - one < NEW_PRODUCERS_WITHIN_MS]
        self._producers_made = [*recent, now_ms]
        if len(recent) >= MOST_NEW_PRODUCERS:
            self.failure = self._why_dead or ClientError(
                f"The producer failed {len(recent) + 1} times within a minute: look at the log of "
                f"the cluster at {self.connection.bootstrap}."
            )
            return
        self.note(
            "The producer failed, beginning anew with what is not written"
            + (f": {self._why_dead}" if self._why_dead else ".")
        )
        self._producer.close(0)
        self._new_producer()
        for one in self.roster.open.values():
            offset = one.followed.position.offset
            one.followed.rewind(mid=files.is_mid_line(one.descriptor, offset))
            one.followed.tail = files.tail_before(one.descriptor, offset)

    # ---- what is kept

    def _keep_what_is_new(self) -> None:
        if self.roster.is_new:
            self._keep()

    def _keep(self) -> None:
        """What is on disk already is not written again: an idle shipper leaves the disk alone."""
        positions = self.roster.positions(self._wall_ms())
        standing = [one.standing() for one in positions]
        if self.state is not None and standing != self._kept:
            self.state.save(positions)
            self._kept = standing
        self.roster.is_new = False

    def _flush(self) -> None:
        """Wait until all that was sent is written, for so long."""
        deadline_ms = self._wall_ms() + int(self.settings.grace_s * 1000)
        while len(self._producer) and self._wall_ms() < deadline_ms:
            self._raise_failure()
            self._poll(IDLE_S)
        self._raise_failure()

    @property
    def unwritten(self) -> int:
        return self.counters.lines - self.counters.written

    def _close(self) -> None:
        self._keep()
        self.roster.close()
        self._producer.close(0)
        if self.state is not None:
            self.state.close()

    def gauges(self) -> dict[str, tuple[str, float]]:
        """How it stands, for metrics; read by another thread."""
        opened = list(self.roster.open.values())
        behind = 0
        for one in opened:
            with suppress(OSError):  # closed meanwhile
                behind += max(0, one.size() - one.followed.position.offset)
        return {
            "files_open": ("Files that are followed.", len(opened)),
            "bytes_behind": ("Bytes that the cluster does not have.", behind),
            "records_in_flight": ("Records that wait for the cluster.", len(self._producer)),
        }
