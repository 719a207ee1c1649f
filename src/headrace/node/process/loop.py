"""The reactor: one thread, one turn after the other.

A turn: wait for sockets, read the clocks once, answer the requests that arrived, try the waiting
requests that were woken, write the gathered batches, and only then send replies; so nothing is
acknowledged before it is in the page cache. Long work (`serving/slices.py`) gets a few milliseconds
of each turn. An invalid request ends its own connection only, and so does a bug in the code that
handles it: the bug is logged, and other connections are served. The loop does not accept
connections (`listener.py`) and does not parse Kafka's protocol (`serving/dispatch.py`).
"""

from __future__ import annotations

import logging
import mmap
import socket
import sys
from collections.abc import Callable
from errno import EIO
from time import perf_counter_ns

from headrace.environment import FileSlice, Now
from headrace.node.process.clock import Clock
from headrace.node.process.listeners.connection import Connection
from headrace.node.process.poller import Poller
from headrace.node.process.timers import Timers
from headrace.node.serving.api import ClosesConnection
from headrace.node.serving.dispatch import Dispatch
from headrace.node.serving.purgatory import Purgatory
from headrace.node.serving.session import Session

log = logging.getLogger(__name__)

RECEIVE_BUFFER_BYTES = 1024 * 1024
BIG_FRAME_BYTES = RECEIVE_BUFFER_BYTES // 2
# An incomplete frame from this size on is not copied back to the front of the shared buffer, which
# would copy it twice, but continues in a buffer of its own while one of these is free.
OWN_BUFFER_FROM = 64 * 1024
OWN_BUFFERS = 16
LONGEST_WAIT_MS = 1_000
# The time for long work in each turn: short enough that other clients do not notice it, and long
# compared with the overhead of a turn (some 20 us).
SLICE_NS = 5_000_000
# The time for the requests of a turn, shared by the connections that have requests. Each connection
# has its first request answered in any case, and continues in the next turn if its share is used
# up. A share is never smaller than the least one: to leave a connection and come back would cost
# more than it saves.
REQUESTS_NS = 20_000_000
LEAST_SHARE_NS = 2_000_000
# While there is long work, a thread that computes gives Python's lock back after this time. The
# loop gives it up at each system call: with the usual 5 ms, a turn that made files took 75 ms
# beside a flush of 5,000 new logs, 4 ms of it the loop's own. At other times the short time only
# costs: an offset commit took 27 to 31 us in place of 24.
SWITCH_IN_LONG_WORK_S = 0.000_5
# Bytes of replies that clients have not read, over all connections; records in files do not count.
# Above it no long answer is made, and after UNREAD_FOR_MS the connections with the most unread
# bytes are closed.
MOST_UNREAD_BYTES = 128 * 1024 * 1024
UNREAD_FOR_MS = 10_000
MOST_LINES_PER_SECOND = 20


class Slice:
    """The part of a turn that long work may use."""

    __slots__ = ("_ends_ns",)

    def __init__(self) -> None:
        self._ends_ns = perf_counter_ns() + SLICE_NS

    def is_over(self) -> bool:
        return perf_counter_ns() >= self._ends_ns


class Loop:
    def __init__(
        self,
        poller: Poller,
        clock: Clock,
        now: Now,
        dispatch: Dispatch,
        purgatory: Purgatory,
        end_turn: Callable[[], bool],
        *,
        buffer_is_free: Callable[[], None],
        most_held_bytes: int,
        work: Callable[[Callable[[], bool]], bool] = lambda is_over: False,
        stopwatch: Callable[[], int] = perf_counter_ns,
    ) -> None:
        # Invariants: everything here runs on one thread; `_held_bytes` is the sum over all
        # connections of `tail` and the received part of `big`; the contents of `_buffer` belong to
        # one connection at a time, and are gone when the next one is read.
        self.poller = poller
        self.clock = clock
        self.now = now
        self.dispatch = dispatch
        self.purgatory = purgatory
        # The node writes and flushes. Returns False if the disk refused a write, and answers have
        # changed.
        self.end_turn = end_turn
        self.buffer_is_free = buffer_is_free  # called after requests, before the buffer is reused
        self.work = work  # does a slice of long work; returns whether more is left
        self.has_work = False  # the next turn continues it and does not wait
        self._usual_switch_s = sys.getswitchinterval()  # of threads, without long work
        self.timers = Timers()
        self.connections: dict[int, Connection] = {}
        self.callbacks: dict[int, Callable[[], None]] = {}  # listeners, wake-ups
        self.on_close: Callable[[Connection], None] = lambda connection: None
        self.send_to_peers: Callable[[], None] = lambda: (
            None
        )  # sends the requests of this turn to other nodes
        # Called with a file that could not be read while it was sent.
        self.on_unreadable_file: Callable[[str, OSError], object] = lambda path, problem: None
        self.stopping = False
        self.asked_at_ms = 0  # when the last event came
        self.lag_ms = 0  # the longest turn since the metrics were last read
        self.turns = 0
        self.bytes_in = 0
        self.refused = 0
        self._said_since_ms = 0
        self._said = 0  # lines about closed connections, in the second that began then
        self.timers.every(1_000, self._say_the_rest, now.monotonic_ms)
        # Connections for the next turn, in this order: those that were put off because this turn
        # was over, and those that used up their share and have complete frames left. True: continue
        # with what was read. False: the connection had an event; its mask is not kept, as the
        # poller reports it again if it still holds.
        self._put_off: dict[Connection, bool] = {}
        self._again: dict[Connection, bool] = {}
        self._stopwatch = stopwatch  # nanoseconds; measures the shares of a turn
        self._share_ns = REQUESTS_NS  # of each connection, in this turn
        self._taken_at_ns = 0  # when a connection was taken last
        self._turn_ends_ns = 0  # for connections; 0: none was taken yet
        dispatch.share_is_over = self._share_is_over
        self._most_held_bytes = most_held_bytes
        self._held_bytes = 0  # of requests that are not complete, over all connections
        self.unread_bytes = 0  # over all connections
        self._unread: dict[Connection, int] = {}  # connections whose socket buffer is full
        self._too_much_since_ms: int | None = None
        self.timers.every(1_000, self._close_worst_reader, now.monotonic_ms)
        self._own_buffers = [bytearray() for _ in range(OWN_BUFFERS)]  # grown at their first use
        self._buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))

    def call_when_readable(self, sock: socket.socket, do: Callable[[], None]) -> None:
        self.callbacks[sock.fileno()] = do
        self.poller.watch(sock.fileno(), self.poller.READ)

    def call_when_ready(self, sock: socket.socket, interest: int, do: Callable[[], None]) -> None:
        """Call `do` when the chosen events happen: also for sockets that wait to become
        writable."""
        if sock.fileno() in self.callbacks:
            self.poller.change(sock.fileno(), interest)
        else:
            self.poller.watch(sock.fileno(), interest)
        self.callbacks[sock.fileno()] = do

    def stop_calling(self, sock: socket.socket) -> None:
        if self.callbacks.pop(sock.fileno(), None) is not None:
            self.poller.forget(sock.fileno())

    def add(self, connection: Connection) -> None:
        self.connections[connection.descriptor] = connection
        connection.interest = self.poller.READ
        self.poller.watch(connection.descriptor, self.poller.READ)

    def run(self) -> None:
        while not self.stopping:
            self.turn(self.wait_ms())

    def turn(self, wait_ms: int) -> None:
        self.turns += 1
        events = self.poller.poll(wait_ms / 1000)
        now = self.now
        # One reading of the clocks per turn: all requests of a turn see the same time, and no
        # handler reads a clock.
        self.clock.read(now)
        started_ms = now.monotonic_ms
        connections = self.connections
        waiting = len(events)
        self._turn_ends_ns = 0
        self._share_ns = REQUESTS_NS if waiting < 2 else max(REQUESTS_NS // waiting, LEAST_SHARE_NS)
        if self._put_off or self._again:
            events = self._take_those_of_before(events)
        # A callback or a send may close other connections, so each event looks its connection up
        # again.
        for descriptor, mask in events:
            found = connections.get(descriptor)
            if found is not None:
                self._take(found, mask)
            elif descriptor in self.callbacks:
                self.callbacks[descriptor]()
        self.timers.run(now.monotonic_ms)
        has_work = self.work(Slice().is_over)
        if has_work is not self.has_work:
            self.has_work = has_work
            if has_work:
                self._usual_switch_s = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_IN_LONG_WORK_S if has_work else self._usual_switch_s)
        self.finish_turn()
        if waiting:
            self.clock.read(now)
            self.asked_at_ms = now.monotonic_ms
            self.lag_ms = max(self.lag_ms, now.monotonic_ms - started_ms)

    def _take_those_of_before(self, events: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Serve the connections that wait since an earlier turn; returns the events of the others.

        The first one is served in any case. Those that are not served keep their places before all
        connections that were served, so each is served after a bounded number of others.
        """
        later = self._put_off | self._again
        self._put_off, self._again = {}, {}
        self._share_ns = max(REQUESTS_NS // (len(events) + len(later)), LEAST_SHARE_NS)
        masks = dict(events)
        for connection, goes_on in later.items():
            if self.connections.get(connection.descriptor) is not connection:
                continue
            if goes_on:
                self._take(connection, 0)
            else:
                mask = masks.pop(connection.descriptor, 0)
                if mask:
                    self._take(connection, mask)
        return list(masks.items())

    def _take(self, connection: Connection, mask: int) -> None:
        """Write to a connection and read from it; with mask 0, continue with the bytes already
        read."""
        connections, descriptor = self.connections, connection.descriptor
        if connections.get(descriptor) is not connection:
            return
        # Counted from here, not from the first request: a departure with a long unread answer takes
        # time as well.
        self._taken_at_ns = taken_at_ns = self._stopwatch()
        if not self._turn_ends_ns:
            self._turn_ends_ns = taken_at_ns + REQUESTS_NS
        elif taken_at_ns >= self._turn_ends_ns:
            if mask:
                self._put_off.setdefault(connection, False)
            else:
                self._put_off[connection] = True
            return
        if not mask:
            self._resume(connection)
            return
        write = self.poller.WRITE
        if mask & write:
            self._send(connection)
        if mask & ~write and connections.get(descriptor) is connection:
            self._readable(connection)

    def _share_is_over(self) -> bool:
        """Returns whether the connection has used up its share; False if there is no room to keep
        its other requests until the next turn."""
        return (
            self._stopwatch() - self._taken_at_ns >= self._share_ns
            and self._held_bytes + RECEIVE_BUFFER_BYTES <= self._most_held_bytes
        )

    def finish_turn(self) -> None:
        """Try woken requests, write gathered batches, send replies."""
        dispatch, purgatory = self.dispatch, self.purgatory
        while True:
            purgatory.expire(self.now.monotonic_ms)
            while purgatory.woken or dispatch.resumed:
                purgatory.try_woken()
                resumed, dispatch.resumed = dispatch.resumed, []
                for session in resumed:
                    if not session.closing:
                        self._take(session.connection, 0)
            if dispatch.failed:
                failed, dispatch.failed = dispatch.failed, []
                for session, why in failed:
                    self.close(session.connection, why)
            # Writes come before replies (decision 1). If the disk refuses a write, answers that
            # depend on it were changed; they may wake other requests, so the steps above are
            # repeated until the disk has taken everything that is left.
            if self.end_turn():
                break
        self.send_to_peers()
        dirty, dispatch.dirty = dispatch.dirty, []
        # The last sessions are mostly consumers that were woken by a Produce of this turn. In
        # reverse order a record reaches its consumer before the producer's acknowledgement leaves.
        for session in reversed(dirty):
            if session.outbox:
                self._send(session.connection)

    def close(self, connection: Connection, why: str | None = None) -> None:
        """End a connection; a reason is logged, once, because the connection is then closed."""
        if self.connections.get(connection.descriptor) is not connection:
            return  # it is gone, and its descriptor may be another one's
        del self.connections[connection.descriptor]
        if why is not None:
            self.refused += 1
            self._say(connection.address, why)
        self._drop_big(connection)
        self._note_unread(connection, 0)
        self._held_bytes -= len(connection.tail)
        self.dispatch.forget(connection.session)
        self.poller.forget(connection.descriptor)
        connection.close()
        self.on_close(connection)

    def _say(self, address: str, why: str) -> None:
        """Log a closed connection; bounded, so that a client cannot fill the disk with log
        lines."""
        self._say_the_rest()
        self._said += 1
        if self._said <= MOST_LINES_PER_SECOND:
            log.warning("closed the connection of %s: %s", address, why)

    def _say_the_rest(self) -> None:
        """Log how many connections were closed without a line, once the second is over."""
        now_ms = self.now.monotonic_ms
        if now_ms - self._said_since_ms >= 1_000:
            if self._said > MOST_LINES_PER_SECOND:
                log.warning("closed %d more connections", self._said - MOST_LINES_PER_SECOND)
            self._said_since_ms, self._said = now_ms, 0

    def close_idle(self, idle_ms: int) -> None:
        limit = self.now.monotonic_ms - idle_ms
        idle = [c for c in self.connections.values() if c.active_at_ms < limit]
        for connection in idle:
            if not connection.session.line:
                self.close(connection)

    def wait_ms(self) -> int:
        """Returns how long the next turn may sleep if nothing happens."""
        if self._again or self._put_off or self.has_work:
            return 0
        wait_ms = LONGEST_WAIT_MS
        for due_ms in (self.purgatory.next_deadline_ms(), self.timers.next_ms()):
            if due_ms is not None:
                wait_ms = min(wait_ms, due_ms - self.now.monotonic_ms)
        return max(wait_ms, 0)

    def _readable(self, connection: Connection) -> None:
        session = connection.session
        if session.muted or connection.blocked or connection.tail_is_ready:
            # Stop watching until the reason has ended. A usual client never gets here.
            if connection.interest & self.poller.READ:
                self._watch(connection, connection.interest & ~self.poller.READ)
            else:
                self.close(connection)  # an event without a watch for reading: the peer has closed
            return
        connection.active_at_ms = self.now.monotonic_ms
        try:
            if connection.big_view is not None:
                self._receive_big(connection)
            else:
                self._receive(connection)
        except BlockingIOError:
            if connection.has_unsent:
                self._send(connection)
            return
        except ClosesConnection as reason:
            self.close(connection, str(reason))
        except OSError:
            self.close(connection)
        except Exception as bug:  # noqa: BLE001 - one connection's find must not end the others
            self._blame(connection, bug)

    def _blame(self, connection: Connection, bug: Exception) -> None:
        """Log a bug outside of handlers (those are caught in dispatch), and close."""
        log.error("a request of %s failed because of a bug", connection.address, exc_info=bug)
        self.close(connection, "its request failed because of a bug")

    def _receive(self, connection: Connection) -> None:
        # One shared buffer for all connections: a thousand idle connections hold no receive memory.
        # Only the beginning of an unfinished frame is kept, and put back in front of the next
        # bytes.
        buffer, tail = self._buffer, connection.tail
        start = len(tail)
        if start:
            buffer[:start] = tail
            received = connection.receive_into(buffer[start:])
        else:
            received = connection.receive_into(buffer)
        if not received:
            self.close(connection)
            return
        self.bytes_in += received
        self._feed(connection, start + received)

    def _feed(self, connection: Connection, filled: int) -> None:
        """Handle the frames in the shared buffer and keep the incomplete one at its end."""
        session = connection.session
        taken = self._answer(session, self._buffer, filled)
        connection.tail_is_ready = False
        if taken == filled:
            self._keep(connection, b"")
        elif session.frame_size > BIG_FRAME_BYTES or (
            session.frame_size >= OWN_BUFFER_FROM and self._own_buffers
        ):
            self._begin_big(connection, session.frame_size, self._buffer[taken:filled])
        else:
            self._keep(connection, self._buffer[taken:filled].tobytes())
            # `feed` sets frame_size only when it stops at an incomplete frame. So here it stopped
            # at a complete one, because of a bound on replies.
            if session.frame_size == 0 and filled - taken >= 8:
                # Complete requests are left, because too many replies are unread or one waits.
                connection.tail_is_ready = True
                if not session.muted and not connection.blocked:
                    self._again[connection] = True

    def _answer(self, session: Session, view: memoryview, filled: int) -> int:
        try:
            # Appended batches may still point into the buffer. `buffer_is_free` writes them to
            # their files before anything else is received into it, also when `feed` raises.
            return self.dispatch.feed(session, view, filled)
        finally:
            self.buffer_is_free()

    def _resume(self, connection: Connection) -> None:
        """Read this connection again: the reason not to has ended."""
        session = connection.session
        if session.muted or connection.blocked:
            return
        try:
            if connection.tail_is_ready:
                size = len(connection.tail)
                self._buffer[:size] = connection.tail
                self._feed(connection, size)
        except ClosesConnection as reason:
            self.close(connection, str(reason))
            return
        except Exception as bug:  # noqa: BLE001 - as above
            self._blame(connection, bug)
            return
        if not connection.tail_is_ready:
            self._watch(connection, connection.interest | self.poller.READ)
            if connection.has_received:
                self._readable(connection)

    def _begin_big(self, connection: Connection, size: int, start: memoryview) -> None:
        self._keep(connection, b"")
        memory: mmap.mmap | bytearray | None = None
        if size > BIG_FRAME_BYTES:
            # The system allocates pages as bytes arrive: an announced length costs nothing.
            memory = mmap.mmap(-1, size)
        self._hold(len(start))
        if memory is None:
            memory = self._own_buffers.pop() or bytearray(BIG_FRAME_BYTES)
        connection.begin_big(memory, size, start)

    def _keep(self, connection: Connection, tail: bytes) -> None:
        """Keep received bytes that are not handled yet with their connection."""
        if tail or connection.tail:
            self._hold(len(tail) - len(connection.tail))
            connection.tail = tail

    def _hold(self, more: int) -> None:
        """Count bytes of unfinished requests; all connections together share one limit."""
        # `queued.max.request.bytes` counts bytes that have arrived, not announced lengths: a length
        # alone costs nothing (mmap) and blocks no other connection.
        if self._held_bytes + more > self._most_held_bytes:
            raise ClosesConnection(
                f"an unfinished request while {self._held_bytes} bytes of others are held"
            )
        self._held_bytes += more

    def _receive_big(self, connection: Connection) -> None:
        view = connection.big_view
        assert view is not None
        received = connection.receive_into(view[connection.big_filled :])
        if not received:
            self.close(connection)
            return
        self.bytes_in += received
        self._hold(received)
        connection.big_filled += received
        if connection.big_filled == len(view):
            self._answer(connection.session, view, len(view))
            self._drop_big(connection)
            if connection.has_received:
                self._again[connection] = True

    def _drop_big(self, connection: Connection) -> None:
        if isinstance(connection.big, bytearray):
            self._own_buffers.append(connection.big)
        self._held_bytes -= connection.big_filled
        connection.end_big()

    def _file_failed(self, connection: Connection, problem: OSError) -> None:
        for piece in connection.session.outbox:
            if isinstance(piece, FileSlice):
                log.error("%s cannot be read: %s", piece.file.path, problem.strerror)
                self.on_unreadable_file(piece.file.path, problem)
                return

    def _send(self, connection: Connection) -> None:
        try:
            all_sent = connection.send()
        except OSError as problem:
            if problem.errno == EIO:  # sockets do not raise it: it is the file of a sendfile
                self._file_failed(connection, problem)
            self.close(connection)
            return
        if all_sent:
            connection.session.owed = 0
            if connection.blocked:
                self._note_unread(connection, 0)
            if connection.session.closing:
                self.close(connection)
            elif connection.blocked:
                connection.blocked = False
                self._watch(connection, self.poller.READ)
                if connection.tail_is_ready or connection.has_received:
                    self._again[connection] = True
            return
        pieces = connection.session.outbox
        self._note_unread(connection, sum(len(p) for p in pieces if type(p) is not FileSlice))
        if not connection.blocked:
            connection.blocked = True
            self._watch(connection, self.poller.WRITE)

    def _note_unread(self, connection: Connection, size: int) -> None:
        self.unread_bytes += size - self._unread.pop(connection, 0)
        if size:
            self._unread[connection] = size
        self.dispatch.holds_back = self.unread_bytes > MOST_UNREAD_BYTES
        if not self.dispatch.holds_back:
            self._too_much_since_ms = None
        elif self._too_much_since_ms is None:
            self._too_much_since_ms = self.now.monotonic_ms

    def _close_worst_reader(self) -> None:
        """Close the connections with the most unread bytes, if there are too many for too long.

        Until half of the room is free: one at a time, 20 lazy clients kept the large answer of
        another one waiting for a minute.
        """
        since_ms, now_ms = self._too_much_since_ms, self.now.monotonic_ms
        if since_ms is None or now_ms - since_ms < UNREAD_FOR_MS:
            return
        self._too_much_since_ms = now_ms
        while self.unread_bytes > MOST_UNREAD_BYTES // 2:
            worst = max(self._unread, key=self._unread.__getitem__)
            size, total = self._unread[worst], self.unread_bytes
            self.close(worst, f"it has left {size} bytes of answers unread, of {total} in all")

    def _watch(self, connection: Connection, interest: int) -> None:
        if interest != connection.interest:
            connection.interest = interest
            self.poller.change(connection.descriptor, interest)
