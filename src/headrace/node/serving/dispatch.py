"""Decodes frames, calls handlers and encodes replies: one look-up per request, replies in order.

`feed` gets the bytes received on a connection, handles every complete frame in them and returns how
many bytes it used. Before a frame is complete, only its first eight bytes count: its size, which is
bounded, and its API key and version, which must be in the table. An invalid request ends its
connection by `ClosesConnection`; a bug in one handler ends that connection only.

Dispatch does not know sockets: the loop calls `feed`, and sends the outboxes of `dirty` sessions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from struct import Struct
from types import GeneratorType
from typing import Any

from headrace.environment import Now
from headrace.node.serving.api import Call, ClosesConnection, WaitingRequest
from headrace.node.serving.around_logins import answer_out_of_turn, feed_tokens
from headrace.node.serving.long_answers import answer_later, answering_of, begin
from headrace.node.serving.purgatory import Purgatory
from headrace.node.serving.quotas import ClientQuotas, Meter
from headrace.node.serving.route import (
    API_VERSIONS_KEY,
    PRODUCE_KEY,
    Route,
    body_of,
    decoded,
    error_response,
    throttled,
)
from headrace.node.serving.session import Piece, Reply, Session
from headrace.node.serving.slices import FairLane
from headrace.wire.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

SMALLEST_FRAME = 10  # API key, version, correlation id, length of the client id
# Only Produce carries records. Any other request of this size is an attack: decoded, it would take
# up to 58 times as much memory and about a second of the loop's time (estimated, not measured).
LARGEST_WITHOUT_RECORDS = 4 * 1024 * 1024
# librdkafka and the Java client have at most five in flight; a connection with more unanswered
# requests is not read until some are answered.
MOST_REQUESTS_IN_LINE = 100
# With this many unread bytes of replies, a connection's next requests wait.
MOST_BYTES_OWED = 1024 * 1024

_read_prefix = Struct(">iI").unpack_from  # size; API key and version as one number
_read_header = Struct(">Iih").unpack_from  # the same number, correlation id, client id's length


class Dispatch:
    __slots__ = (
        "routes",
        "api_keys",
        "purgatory",
        "now",
        "dirty",
        "resumed",
        "failed",
        "max_frame",
        "stopwatch",
        "quotas",
        "long_answers",
        "holds_back",
        "large_answer",
        "share_is_over",
    )

    def __init__(
        self,
        routes: Iterable[Route],
        purgatory: Purgatory,
        now: Now,
        *,
        max_frame: int,
        stopwatch: Callable[[], int] | None = None,
    ) -> None:
        # API key and version are adjacent in the frame, so one 32-bit number finds the route. A
        # version that is not served has no entry: nothing else checks versions.
        self.routes = {route.api_key << 16 | route.version: route for route in routes}
        self.api_keys = {route.api_key for route in self.routes.values()}
        self.purgatory = purgatory
        self.now = now  # one object, set by the loop once per turn
        self.dirty: list[Session] = []  # sessions with something to send
        self.resumed: list[Session] = []  # sessions that may be read again
        self.failed: list[tuple[Session, str]] = []  # connections to close, and why
        self.max_frame = max_frame
        self.stopwatch = stopwatch  # nanoseconds; None: latencies are not measured
        self.quotas: ClientQuotas | None = None  # None: no client is limited
        self.long_answers = FairLane()
        self.holds_back = False  # clients have left too many bytes unread: no large answer is made
        self.large_answer: Reply | None = None  # the large answer that is being made
        # Whether the connection that is fed has used its share of the turn; the loop sets it.
        self.share_is_over: Callable[[], bool] = _never

    def feed(self, session: Session, view: memoryview, filled: int) -> int:
        """Answer the complete frames in view[:filled]; returns how many bytes were used."""
        if session.login is not None and session.login.takes_bare_tokens:
            return feed_tokens(self, session, view, filled)
        position = 0
        session.frame_size = 0
        while filled - position >= 8 and not session.muted and session.owed < MOST_BYTES_OWED:
            size, key = _read_prefix(view, position)
            # These checks see only the first eight bytes, before the frame is complete. So a client
            # cannot make the node hold memory for a request that would be refused anyway.
            in_turn = session.login is None or session.login.admits(key >> 16, size, self.now)
            if not SMALLEST_FRAME <= size <= self.max_frame:
                self._require_size(size)
            if key not in self.routes:
                self._require_answerable(key)
            if size > LARGEST_WITHOUT_RECORDS and key >> 16 != PRODUCE_KEY:
                raise ClosesConnection(f"a request without records of {size} bytes")
            end = position + 4 + size
            if end > filled:
                session.frame_size = size + 4
                break
            if in_turn:
                self._answer(session, view[position + 4 : end])
            else:
                answer_out_of_turn(self, session, view[position + 4 : end])
            position = end
            # A connection that pipelines a thousand requests continues in the next turn.
            if filled - position >= 8 and self.share_is_over():
                break
        if 4 <= filled - position < 8:
            self._require_size(int.from_bytes(view[position : position + 4], "big", signed=True))
        return position

    def _require_size(self, size: int) -> None:
        if not SMALLEST_FRAME <= size <= self.max_frame:
            raise ClosesConnection(f"a frame of {size} bytes (at most {self.max_frame} are taken)")

    def _answer(self, session: Session, frame: memoryview) -> None:
        key, correlation_id, client_id_length = _read_header(frame, 0)
        route = self.routes.get(key)
        if route is None:
            self._answer_unknown_api_versions(session, correlation_id)
            return
        # A plain counter and no object: metrics add nothing else to the path of a request.
        route.requests += 1
        started = self.stopwatch() if self.stopwatch is not None else 0
        meter = self.quotas.meter(session, frame) if self.quotas is not None else None
        wait_ms = 0
        try:
            # A recognized request is one that this connection sent before, except for a part that
            # may differ. None means: not recognized, and nothing was done.
            # `broker/recognized/__init__.py` says why both paths give the same answer, and which
            # test compares them.
            answer = None
            if route.recognize is not None:
                answer = route.recognize(route.owner, route.version, frame, session, self.now)
            if answer is None:
                if len(frame) >= route.large_from:
                    self._answer_in_slices(session, route, frame, started, meter)
                    return
                request = decoded(route, frame, client_id_length)
                call = Call(self.now, route.version, frame, session, correlation_id, meter)
                answer = route.handle(route.owner, request, call)
                if type(answer) is GeneratorType:  # a small request with a long answer
                    call.frame = memoryview(frame.tobytes())  # the buffer is reused meanwhile
                    begin(self, session, route, correlation_id, answer, started, meter)
                    return
            if answer is None:
                if meter is not None:
                    self.throttle(session, meter.finish(route.api_key, answered=False))
                return
            if meter is not None and type(answer) is not WaitingRequest:
                wait_ms = meter.finish(route.api_key)
                answer = throttled(route, answer, wait_ms)
            # `type(...) is` instead of `isinstance`: these classes have no subclasses, and this
            # runs for every request.
            if type(answer) is bytes:
                pieces = route.frame_of_body(correlation_id, answer)
            elif type(answer) is WaitingRequest:
                self.reply_later(session, route, correlation_id, answer, started, meter)
                return
            else:
                pieces = route.frame(correlation_id, answer)
        except KafkaError as refusal:
            refused = error_response(route, refusal)
            if meter is not None:
                wait_ms = meter.finish(route.api_key)
                refused = throttled(route, refused, wait_ms)
            pieces = route.frame(correlation_id, refused)
        except ClosesConnection:
            raise
        except Exception as bug:  # one request's bug must not end the others
            raise self.blame(session, route, bug) from bug
        if started:
            self.note_time(route, started)
        self.reply(session, pieces)
        if wait_ms:
            self.throttle(session, wait_ms)

    def _answer_in_slices(
        self, session: Session, route: Route, frame: memoryview, started: int, meter: Meter | None
    ) -> None:
        """Handle a large request in slices; its frame is copied, as the receive buffer is
        reused."""
        _, correlation_id, client_id_length = _read_header(frame, 0)
        copied = frame.tobytes()
        call = Call(self.now, route.version, memoryview(copied), session, correlation_id, meter)
        at = body_of(route, call.frame, client_id_length)
        answering = answering_of(route, call, at)
        begin(self, session, route, correlation_id, answering, started, meter, len(copied))

    def blame(self, session: Session, route: Route, bug: Exception) -> ClosesConnection:
        # A read error of the disk is not a bug, so its traceback would not help.
        of_disk = isinstance(bug, OSError)
        log.error(
            "%s v%d from %s failed%s",
            route.name,
            route.version,
            session.client_host,
            f": {bug}" if of_disk else "",
            exc_info=None if of_disk else bug,
        )
        return ClosesConnection(f"a {route.name} v{route.version} that failed here")

    def reply(self, session: Session, pieces: list[Piece]) -> None:
        # Replies leave in the order of the requests, as clients expect. As long as an earlier
        # request waits, a ready reply goes to the end of `line`; otherwise straight to the outbox.
        # tests/unit/node/serving/test_dispatch.py: test_a_later_answer_waits_for_an_earlier_one.
        if session.line:
            session.line.append(Reply(None, pieces))
            session.line_bytes += len(pieces[0])
            if not session.line_is_full and is_full(session):
                session.line_is_full = True
                self.mute(session)
            return
        # Invariant: a session is in `dirty` if its outbox has something new. It is added once, with
        # the first piece; the loop empties `dirty` at the end of the turn, after the write to the
        # files.
        if not session.outbox:
            self.dirty.append(session)
        session.outbox += pieces
        session.owed += len(pieces[0])

    def forget(self, session: Session) -> None:
        """The connection is closed: drop its waiting requests and replies."""
        for reply in session.line:
            if reply.waiting is not None:
                self.purgatory.forget(reply.waiting)
        if session.throttled is not None:
            self.purgatory.forget(session.throttled)
        session.line.clear()
        session.outbox.clear()
        session.closing = True
        if session.when_closed is not None:
            session.when_closed(session)

    def mute(self, session: Session) -> None:
        """Read nothing more from this connection until the reason for it has ended (`unmute`)."""
        session.muted += 1

    def unmute(self, session: Session) -> None:
        """One reason has ended; after the last one the connection is read again."""
        session.muted -= 1
        assert session.muted >= 0, "a reason ends once"
        if not session.muted:
            self.resumed.append(session)

    def throttle(self, session: Session, wait_ms: int) -> None:
        """Throttle: after the reply, read nothing from this connection for `wait_ms` (KIP-219)."""
        until_ms = self.now.monotonic_ms + wait_ms
        if not wait_ms or (session.throttled and session.throttled.deadline_ms >= until_ms):
            return
        if session.throttled is not None:
            self.purgatory.forget(session.throttled)
        else:
            self.mute(session)

        def complete(answer: Any) -> None:
            session.throttled = None
            self.unmute(session)

        waits = WaitingRequest(lambda expired: expired or None, deadline_ms=until_ms, hangs_on=[])
        waits.complete = complete
        session.throttled = waits
        self.purgatory.add(waits)

    def reply_later(
        self,
        session: Session,
        route: Route,
        correlation_id: int,
        waiting: WaitingRequest,
        started: int = 0,
        meter: Meter | None = None,
        reply: Reply | None = None,
    ) -> None:
        """Let a request wait in purgatory. `reply` is given for a large request, which already is
        among the replies."""
        is_large = reply is not None
        if reply is None:
            reply = Reply(waiting, None)
            session.line.append(reply)
        else:
            reply.waiting = waiting
        if meter is not None:
            meter.waits()

        def complete(answer: Any) -> None:
            if started:
                self.note_time(route, started)
            reply.waiting = None
            try:
                if isinstance(answer, KafkaError):
                    answer = error_response(route, answer)
                elif isinstance(answer, Exception):
                    raise answer
                if is_large:
                    answer_later(self, session, route, correlation_id, reply, answer, meter)
                else:
                    if meter is not None:
                        wait_ms = meter.finish(route.api_key)
                        answer = throttled(route, answer, wait_ms)
                        self.throttle(session, wait_ms)
                    frame = route.frame_of_body if type(answer) is bytes else route.frame
                    reply.pieces = frame(correlation_id, answer)
                    session.line_bytes += len(reply.pieces[0])
            except ClosesConnection as reason:
                self.failed.append((session, str(reason)))
                return
            except Exception as bug:  # noqa: BLE001 - as above
                self.failed.append((session, str(self.blame(session, route, bug))))
                return
            if mutes:
                self.unmute(session)
            self.release(session)

        # `muted` counts the reasons not to read this connection. Each reason is added once and
        # removed once; the connection is read again when the count is 0.
        mutes = waiting.mutes or len(session.line) >= MOST_REQUESTS_IN_LINE
        if mutes:
            self.mute(session)
        waiting.complete = complete
        self.purgatory.add(waiting)

    def release(self, session: Session) -> None:
        """Move the answered requests at the head of the line to the outbox."""
        line = session.line
        while line and line[0].pieces is not None:
            if not session.outbox:
                self.dirty.append(session)
            pieces = line.popleft().pieces or []
            session.outbox += pieces
            session.owed += len(pieces[0])
            session.line_bytes -= len(pieces[0])
        if session.line_is_full and not is_full(session):
            session.line_is_full = False
            self.unmute(session)

    def _require_answerable(self, key: int) -> None:
        """Refuse an unknown API or version, except for ApiVersions in a newer version."""
        api_key, version = key >> 16, key & 0xFFFF
        if api_key == API_VERSIONS_KEY:
            return
        if api_key in self.api_keys:
            raise ClosesConnection(f"API {api_key} in version {version}, which is not served")
        raise ClosesConnection(f"API {api_key}, which is not served")

    def _answer_unknown_api_versions(self, session: Session, correlation_id: int) -> None:
        """KIP-511: answer in version 0 with UNSUPPORTED_VERSION and the supported range."""
        route = self.routes[API_VERSIONS_KEY << 16]
        route.requests += 1
        call = Call(self.now, 0, memoryview(b""), session, correlation_id)
        answer = route.handle(route.owner, None, call)
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        answer.api_keys = [line for line in answer.api_keys if line.api_key == API_VERSIONS_KEY]
        self.reply(session, route.frame(correlation_id, answer))

    def note_time(self, route: Route, started: int) -> None:
        assert self.stopwatch is not None
        microseconds = (self.stopwatch() - started) // 1000
        route.microseconds += microseconds
        route.buckets[min(microseconds.bit_length(), 31)] += 1


def _never() -> bool:
    return False


def is_full(session: Session) -> bool:
    """Returns whether too many replies, or too many bytes of them, wait for one that is not
    ready."""
    return len(session.line) >= MOST_REQUESTS_IN_LINE or session.line_bytes >= MOST_BYTES_OWED
