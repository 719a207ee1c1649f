"""Ships lines: finds files, reads them in turn, sends, and stores positions.

One thread. Reading stops while the producer's buffer is full, so memory is bounded by that buffer
and, for each file, by the longest line and group. Positions are kept once a second, and also before
lines are sent that could not be identified after a kill: lines of a new file, and a group that ends
because of a pause (`followed.py`). Such lines wait for the end of the pass over all files, so that
positions are written once for all of them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from headrace.client.connection import ONLY_ERRORS, ClientSettings
from headrace.client.errors import BufferFull, ClientError
from headrace.client.faults import PURGED, TOO_LARGE, codes, fault_of
from headrace.client.producer.producer import Producer
from headrace.services.shipping import files
from headrace.services.shipping.counters import Counters
from headrace.services.shipping.files import OpenFile
from headrace.services.shipping.followed import Followed
from headrace.services.shipping.formats import AUTO, TEXT
from headrace.services.shipping.line_groups import Group
from headrace.services.shipping.piped import Piped
from headrace.services.shipping.positions import StateFolder
from headrace.services.shipping.records import Origin, RecordMaker
from headrace.services.shipping.roster import MOST_DELETED_BYTES, Roster
from headrace.services.shipping.runs import Ending, Run
from headrace.services.shipping.topic import LARGEST_BATCH_BYTES
from headrace.wire.contract.headers import MESSAGE_ID

CHUNK = 256 * 1024
LOOK_EVERY_MS = 1_000
KEEP_EVERY_MS = 1_000
QUIET_MS = 1_000
IDLE_S = 0.1
# While the buffer is full, a stop is noticed after so long at the latest.
BLOCK_S = 0.5
BUFFER_MESSAGES, BUFFER_KIB = 50_000, 32 * 1024
# Bytes of lines that wait until positions are on disk.
MOST_UNKEPT_BYTES = 4 * 1024 * 1024
# A producer that failed for good is replaced by a new one. If that happens more often, the cause is
# permanent.
MOST_NEW_PRODUCERS = 5
NEW_PRODUCERS_WITHIN_MS = 60_000
DEAD = PURGED | codes("_FATAL")


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
    most_deleted_bytes: int = MOST_DELETED_BYTES
    compression: str = "zstd"
    batch_bytes: int = LARGEST_BATCH_BYTES  # what the topic takes at once

    @property
    def joins(self) -> bool:
        return self.origin.form in (AUTO, TEXT)


class Shipper:
    """`run` until `stop` is called, or with `once` until all is written."""

    def __init__(
        self,
        connection: ClientSettings,
        settings: Settings,
        state: StateFolder | None,
        note: Callable[[str], None],
        *,
        wall_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        monotonic_ms: Callable[[], int] = lambda: int(time.monotonic() * 1000),
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex[:16],
    ) -> None:
        self.connection, self.settings, self.state, self.note = connection, settings, state, note
        self.counters = Counters()
        self.failure: ClientError | None = None
        self.to_send_again = 0  # by the next run
        # The wall's is for times in records only: it may be set forward or back at any moment.
        self._wall_ms, self._now_ms = wall_ms, monotonic_ms
        self._stopping = False
        self.roster = Roster(
            patterns=settings.patterns,
            max_line=settings.max_line,
            joins=settings.joins,
            from_end=settings.from_end,
            new_id=new_id,
            note=note,
            counters=self.counters,
            wall_ms=wall_ms,
            most_deleted_bytes=settings.most_deleted_bytes,
        )
        self.piped: Piped | None = None
        if settings.stdin is not None:
            self.piped = Piped.of(
                settings.stdin, new_id(), most=settings.max_line, joins=settings.joins
            )
        self._producers_made: list[int] = []
        self._kept: list[object] = []
        self._why_dead: ClientError | None = None
        self._runs: dict[Run, None] = {}  # not written yet, in the order in which they were made
        self._ended: list[Run] = []
        self._unkept: list[tuple[Followed, list[Group]]] = []
        self._unkept_bytes = 0
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
            self._end_emptied(self.roster.without_copy(self._now_ms(), 0))
            if self.piped is not None:  # what was read of it cannot be read again
                self._send(self.piped.followed, self.piped.followed.at_end())
            self._flush()
        finally:
            self._close()

    def _loop(self) -> None:
        looked_ms = kept_ms = self._now_ms()
        self.roster.look(looked_ms, first=True)
        while not self._stopping:
            self._raise_failure()
            now_ms = self._now_ms()
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
        """Returns whether nothing can follow: the pipe has ended and no file has to be
        waited for."""
        if self.piped is not None and not self.piped.is_over:
            return False
        return not self.settings.patterns or (self.settings.once and not self.roster.waits)

    def _read_all(self) -> bool:
        """Reads one chunk of each file. Returns whether there was any."""
        moved = False
        self._keep_what_is_new()
        for one in list(self.roster.open.values()):
            if self._stopping:
                break
            try:
                moved |= self._read(one)
            except OSError as failure:
                self.roster.fails(one, failure)
        self._send_unkept()
        if self.piped is not None and not self._stopping:
            moved |= self._read_pipe(self.piped)
        return moved

    def _read(self, one: OpenFile) -> bool:
        now_ms = self._now_ms()
        if one.is_rewritten():
            self.roster.rewritten(one, now_ms)
            return True  # what it holds now is read by the next pass, when this is kept
        chunk = one.chunk(CHUNK)
        if not chunk:
            self._at_the_end(one, now_ms)
            return False
        self.counters.bytes_read += len(chunk)
        groups = one.followed.feed(chunk, now_ms)
        if groups and not one.is_known_by_its_head:
            self._send_once_kept(one.followed, groups)
        else:
            self._send(one.followed, groups)
        return True

    def _at_the_end(self, one: OpenFile, now_ms: int) -> None:
        """No byte is there right now: a pause, or the end of a file that was rotated away."""
        followed, is_over = one.followed, self.roster.is_over(one, now_ms)
        if is_over or self.settings.once:
            if followed.finish():
                self._send_once_kept(followed, followed.at_end())
            if is_over and followed.is_all_written:
                self.roster.let_go(one)
        elif followed.pause(now_ms, QUIET_MS):
            self._send_once_kept(followed, followed.after_pause())
        if one.key in self.roster.open and self.roster.may_rest(one, now_ms):
            self.roster.rest(one)

    def _end_emptied(self, ended: list[Followed]) -> None:
        for followed in ended:
            if followed.finish():
                self._send_once_kept(followed, followed.at_end())
        self._send_unkept()

    def _send_once_kept(self, followed: Followed, groups: list[Group]) -> None:
        """The place where they end, or the file itself, is not on disk yet."""
        self._unkept.append((followed, groups))
        self._unkept_bytes += sum(one.size for one in groups)
        if self._unkept_bytes > MOST_UNKEPT_BYTES:
            self._send_unkept()

    def _send_unkept(self) -> None:
        if not self._unkept:
            return
        self._keep()
        waiting, self._unkept, self._unkept_bytes = self._unkept, [], 0
        producers = self._producers_made
        for followed, groups in waiting:
            # After a failure files are read again from what is written: to go on here would leave
            # out what is before these groups.
            if producers is self._producers_made or not self._is_read_again(followed):
                self._send(followed, groups)

    def _is_read_again(self, followed: Followed) -> bool:
        return any(one.followed is followed for one in self.roster.open.values())

    def _read_pipe(self, piped: Piped) -> bool:
        now_ms = self._now_ms()
        chunk = piped.chunk(CHUNK)
        if chunk:
            self.counters.bytes_read += len(chunk)
            self._send(piped.followed, piped.followed.feed(chunk, now_ms))
        elif piped.is_over:
            self._send(piped.followed, piped.followed.at_end())
        elif piped.followed.pause(now_ms, QUIET_MS):
            self._send(piped.followed, piped.followed.after_pause())
        return bool(chunk)

    # ---- sending

    def _send(self, followed: Followed, groups: list[Group]) -> None:
        if not groups:
            return
        position, counters = followed.position, self.counters
        maker = RecordMaker(position.id, position.path, self.settings.origin, self._wall_ms())
        records = [one for group in groups if (one := maker.record(group)) is not None]
        counters.lines += len(records)
        counters.blank += maker.blank
        counters.bad += maker.bad
        counters.cut += maker.cut
        if records:  # its end is behind blank lines too
            self._take_run(Run(followed, position.id.encode(), records, groups[-1].end))
        else:
            followed.skipped(groups[-1].end)

    def _take_run(self, run: Run) -> None:
        """Hands a run to the producer; not all of it if the shipper is asked to stop: then the next
        start reads it again."""
        run.begin()
        self._runs[run] = None
        topic, poll, everything = self.settings.topic, self._producer_poll, len(run.records)
        produce = self._producer.native()
        ending = Ending(run, self._ended, self._fail)
        while run.taken < everything:
            run.take(produce, poll, topic, ending)
            if run.taken < everything:
                if not self._take(ending, run.taken):
                    break
                run.taken += 1
        if self._is_dead:
            self._begin_anew()

    def _take(self, ending: Ending, number: int) -> bool:
        """Hands over the record at this place. Returns False if it was asked to stop, or the
        producer is dead."""
        run, producer = ending.run, self._producer
        while True:
            value, id = run.records[number]
            try:
                headers = [(MESSAGE_ID, id)]
                producer.take(self.settings.topic, value, run.key, None, ending, None, headers)
                return True
            except BufferFull:
                self.counters.waits += 1
                if self._stopping or self.failure is not None:
                    return False
                if producer.failed_for_good:
                    self._is_dead = True
                    return False
            except ClientError as refusal:
                if producer.failed_for_good:
                    self._is_dead = True
                    return False
                if not self._shorten(run, number):
                    self.failure = refusal
                    return False

    def _fail(self, ending: Ending, error: object, message: Any) -> None:
        """Notes that a record is not written. Runs on this thread, from a poll."""
        run, code = ending.run, fault_of(error).code
        if self._producer.failed_for_good or code in DEAD:
            self._is_dead = True  # the loop makes another one, and reads again
            self._why_dead = self._producer.explain_delivery(error, self.settings.topic)
            return
        if code in TOO_LARGE:
            number = run.number_of(message.value())
            if number is not None and self._shorten(run, number):
                run.failures -= self._take(ending, number)
                return
        if self.failure is None:
            self.failure = self._producer.explain_delivery(error, self.settings.topic)

    def _shorten(self, run: Run, number: int) -> bool:
        """False if it was shortened before."""
        if not run.shorten(number):
            return False
        self.counters.shortened += 1
        return True

    def _note_written(self) -> None:
        """Runs that have ended since; after a poll, and only if the producer has not failed: a poll
        that hears of that may swallow the failures of records."""
        ended = self._ended.copy()
        self._ended.clear()
        for run in ended:
            if run.is_written and run in self._runs:
                del self._runs[run]
                self.counters.written += len(run.records)
                run.followed.written(run.sent)

    def _poll(self, timeout_s: float) -> None:
        self._producer_poll(timeout_s)
        if self._is_dead or self._producer.failed_for_good:
            self._begin_anew()
        else:
            self._note_written()

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
                "batch.size": self.settings.batch_bytes,
                "compression.type": self.settings.compression,
                "message.timeout.ms": 0,  # the file has it: try for ever
                ONLY_ERRORS: True,  # `runs.py`
            },
        )
        self._producer_poll = self._producer.poll_by_hand()
        self._is_dead = False
        self._why_dead = None

    def _begin_anew(self) -> None:
        """The producer takes nothing any more: makes another one, and reads again what is not
        written."""
        now_ms = self._now_ms()
        recent = [one for one in self._producers_made if now_ms - one < NEW_PRODUCERS_WITHIN_MS]
        self._producers_made = [*recent, now_ms]
        if len(recent) >= MOST_NEW_PRODUCERS:
            self.failure = self._why_dead or ClientError(
                f"The producer failed {len(recent) + 1} times within a minute: look at the log of "
                f"the cluster at {self.connection.bootstrap}."
            )
            return
        self.note(
            "The producer failed; a new one sends what is not written"
            + (f": {self._why_dead}" if self._why_dead else ".")
        )
        self._producer.close(0)
        self._ended = []  # of the old one: nothing is known of them
        self._new_producer()
        for one in self.roster.open.values():
            offset = one.followed.position.offset
            one.followed.rewind(mid=files.is_mid_line(one.descriptor, offset))
            one.followed.tail = files.tail_before(one.descriptor, offset)
        self._send_again()

    def _send_again(self) -> None:
        """Sends runs again whose bytes cannot be read again: of the pipe, and of files that were
        emptied."""
        runs, self._runs = self._runs, {}
        for run in runs:  # in the order of each file
            if not self._is_read_again(run.followed):
                self._take_run(run)

    # ---- what is kept

    def _keep_what_is_new(self) -> None:
        if self.roster.is_new:
            self._keep()

    def _keep(self) -> None:
        """Unchanged positions are not written again: an idle shipper leaves the disk alone."""
        positions = self.roster.positions()
        standing = [one.standing() for one in positions]
        if self.state is not None and standing != self._kept:
            self.state.save(positions)
            self._kept = standing
        self.roster.is_new = False

    def _flush(self) -> None:
        """Waits until all that was sent is written, at most so long."""
        deadline_ms = self._now_ms() + int(self.settings.grace_s * 1000)
        self._poll(0)  # all may have ended while the last were sent
        while len(self._producer) and self._now_ms() < deadline_ms:
            self._raise_failure()
            self._poll(IDLE_S)
        self._raise_failure()

    def _close(self) -> None:
        opened = {one.followed for one in self.roster.open.values()}
        self.to_send_again = sum(len(run.records) for run in self._runs if run.followed in opened)
        try:
            self._keep()
        finally:
            self.roster.close()
            self._producer.close(0)  # it reports the outcome of each record
            if self.piped is not None:
                piped = self.piped.followed
                lost = [run.unwritten for run in self._runs if run.followed is piped]
                self.counters.pipe_lost += sum(lost)
            if self.state is not None:
                self.state.close()

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Returns the state for metrics; called on another thread."""
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
