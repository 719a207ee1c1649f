"""From bytes to handlers and back: one look-up per request, replies in request order.

`feed` takes what arrived on a connection, answers every complete frame in it and says how much it
took. Only the first eight bytes of a frame are believed before it is complete: its size, bounded,
and its API and version, which must be in the table. Anything a client must not send ends its
connection by `Refused`; a bug in one handler ends that connection only.

Does not know sockets: the listener calls `feed`, and sends the outboxes of `dirty` sessions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from struct import Struct
from types import GeneratorType
from typing import Any

from headrace.environment import Now
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.serving.api import Call, Parked, Refused
from headrace.serving.around_logins import answer_out_of_turn, feed_tokens
from headrace.serving.long_answers import answer_later, answering_of, begin
from headrace.serving.purgatory import Purgatory
from headrace.serving.quotas import ClientQuotas, Meter
from headrace.serving.route import (
    API_VERSIONS_KEY,
    PRODUCE_KEY,
    Route,
    body_of,
    decoded,
    error_response,
    throttled,
)
from headrace.serving.session import Piece, Reply, Session
from headrace.serving.slices import Lane

log = logging.getLogger(__name__)

SMALLEST_FRAME = 10  # API key, version, correlation id, length of the client id
# Only Produce carries records. Any other request of this size is an attack: decoded, it would take
# up to 58 times as much memory and about a second of everybody's time (estimated, not measured).
LARGEST_WITHOUT_RECORDS = 4 * 1024 * 1024
# librdkafka and the Java client keep at most five; a client that sends on without reading replies
# is not read until some are answered.
MOST_REQUESTS_IN_LINE = 100
# Replies beyond this wait until the client has taken what it is owed.
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
        self.routes = {route.api_key << 16 | route.version: route for route in routes}
        self.api_keys = {route.api_key for route in self.routes.values()}
        self.purgatory = purgatory
        self.now = now  # one object, set by the loop once per turn
        self.dirty: list[Session] = []  # have something to send
        self.resumed: list[Session] = []  # may be read again
        self.failed: list[tuple[Session, str]] = []  # to be closed, and why
        self.max_frame = max_frame
        self.stopwatch = stopwatch  # nanoseconds; None while nobody asks for latencies
        self.quotas: ClientQuotas | None = None  # None: nobody is limited
        self.long_answers = Lane()
        self.holds_back = False  # too many answers are unread: no long one is made meanwhile

    def feed(self, session: Session, view: memoryview, filled: int) -> int:
        """Answer the complete frames in view[:filled]; returns how many bytes were taken."""
        if session.login is not None and session.login.takes_bare_tokens:
            return feed_tokens(self, session, view, filled)
        position = 0
        session.frame_size = 0
        while filled - position >= 8 and not session.muted and session.owed < MOST_BYTES_OWED:
            size, key = _read_prefix(view, position)
            in_turn = session.login is None or session.login.admits(key >> 16, size, self.now)
            if not SMALLEST_FRAME <= size <= self.max_frame:
                self._require_size(size)
            if key not in self.routes:
                self._require_answerable(key)
            if size > LARGEST_WITHOUT_RECORDS and key >> 16 != PRODUCE_KEY:
                raise Refused(f"a request without records of {size} bytes")
            end = position + 4 + size
            if end > filled:
                session.frame_size = size + 4
                break
            if in_turn:
                self._answer(session, view[position + 4 : end])
            else:
                answer_out_of_turn(self, session, view[position + 4 : end])
            position = end
        if 4 <= filled - position < 8:
            self._require_size(int.from_bytes(view[position : position + 4], "big", signed=True))
        return position

    def _require_size(self, size: int) -> None:
        if not SMALLEST_FRAME <= size <= self.max_frame:
            raise Refused(f"a frame of {size} bytes (at most {self.max_frame} are taken)")

    def _answer(self, session: Session, frame: memoryview) -> None:
        key, correlation_id, client_id_length = _read_header(frame, 0)
        route = self.routes.get(key)
        if route is None:
            self._answer_unknown_api_versions(session, correlation_id)
            return
        route.requests += 1
        started = self.stopwatch() if self.stopwatch is not None else 0
        meter = self.quotas.meter(session, frame) if self.quotas is not None else None
        wait_ms = 0
        try:
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
                    begin(self, session, route, correlation_id, answer, started, meter)
                    return
            if answer is None:
                if meter is not None:
                    self.throttle(session, meter.finish(route.api_key, answered=False))
                return
            if meter is not None and type(answer) is not Parked:
                wait_ms = meter.finish(route.api_key)
                answer = throttled(route, answer, wait_ms)
            if type(answer) is bytes:
                pieces = route.frame_of_body(correlation_id, answer)
            elif type(answer) is Parked:
                self.park(session, route, correlation_id, answer, started, meter)
                return
            else:
                pieces = route.frame(correlation_id, answer)
        except KafkaError as refusal:
            refused = error_response(route, refusal)
            if meter is not None:
                wait_ms = meter.finish(route.api_key)
                refused = throttled(route, refused, wait_ms)
            pieces = route.frame(correlation_id, refused)
        except Refused:
            raise
        except Exception as bug:  # noqa: BLE001 - one request's bug must not end the others
            raise self.blame(session, route, bug) from bug
        if started:
            self.note_time(route, started)
        self.reply(session, pieces)
        if wait_ms:
            self.throttle(session, wait_ms)

    def _answer_in_slices(
        self, session: Session, route: Route, frame: memoryview, started: int, meter: Meter | None
    ) -> None:
        """The receive buffer is used again meanwhile, so the frame is copied."""
        _, correlation_id, client_id_length = _read_header(frame, 0)
        copied = frame.tobytes()
        call = Call(self.now, route.version, memoryview(copied), session, correlation_id, meter)
        at = body_of(route, call.frame, client_id_length)
        answering = answering_of(route, call, at)
        begin(self, session, route, correlation_id, answering, started, meter)

    def blame(self, session: Session, route: Route, bug: Exception) -> Refused:
        # What a disk refuses to read is no bug of ours: where it stands in the code says nothing.
        of_disk = isinstance(bug, OSError)
        log.error(
            "%s v%d from %s failed%s",
            route.name,
            route.version,
            session.client_host,
            f": {bug}" if of_disk else "",
            exc_info=None if of_disk else bug,
        )
        return Refused(f"a {route.name} v{route.version} that failed here")

    def reply(self, session: Session, pieces: list[Piece]) -> None:
        if session.line:
            session.line.append(Reply(None, pieces))
            session.line_bytes += len(pieces[0])
            if not session.line_is_full and is_full(session):
                session.line_is_full = True
                session.muted += 1
            return
        if not session.outbox:
            self.dirty.append(session)
        session.outbox += pieces
        session.owed += len(pieces[0])

    def forget(self, session: Session) -> None:
        """The connection is gone: nobody waits for its answers any more."""
        for reply in session.line:
            if reply.parked is not None:
                self.purgatory.forget(reply.parked)
        if session.throttled is not None:
            self.purgatory.forget(session.throttled)
        session.line.clear()
        session.outbox.clear()
        session.closing = True

    def throttle(self, session: Session, wait_ms: int) -> None:
        """Answered, and then not read for a while (KIP-219)."""
        until_ms = self.now.monotonic_ms + wait_ms
        if not wait_ms or (session.throttled and session.throttled.deadline_ms >= until_ms):
            return
        if session.throttled is not None:
            self.purgatory.forget(session.throttled)
        else:
            session.muted += 1

        def complete(answer: Any) -> None:
            session.throttled = None
            session.muted -= 1
            if not session.muted:
                self.resumed.append(session)

        waits = Parked(lambda expired: expired or None, deadline_ms=until_ms, hangs_on=[])
        waits.complete = complete
        session.throttled = waits
        self.purgatory.park(waits)

    def park(
        self,
        session: Session,
        route: Route,
        correlation_id: int,
        parked: Parked,
        started: int = 0,
        meter: Meter | None = None,
        place: Reply | None = None,
    ) -> None:
        """`place` is that of a large request, which has one already."""
        is_large = place is not None
        if place is None:
            place = Reply(parked, None)
            session.line.append(place)
        else:
            place.parked = parked
        if meter is not None:
            meter.parked()

        def complete(answer: Any) -> None:
            if started:
                self.note_time(route, started)
            place.parked = None
            try:
                if isinstance(answer, KafkaError):
                    answer = error_response(route, answer)
                elif isinstance(answer, Exception):
                    raise answer
                if is_large:
                    answer_later(self, session, route, correlation_id, place, answer, meter)
                else:
                    if meter is not None:
                        wait_ms = meter.finish(route.api_key)
                        answer = throttled(route, answer, wait_ms)
                        self.throttle(session, wait_ms)
                    frame = route.frame_of_body if type(answer) is bytes else route.frame
                    place.pieces = frame(correlation_id, answer)
                    session.line_bytes += len(place.pieces[0])
            except Refused as reason:
                self.failed.append((session, str(reason)))
                return
            except Exception as bug:  # noqa: BLE001 - as above
                self.failed.append((session, str(self.blame(session, route, bug))))
                return
            if mutes:
                session.muted -= 1
                if not session.muted:
                    self.resumed.append(session)
            self.release(session)

        mutes = parked.mutes or len(session.line) >= MOST_REQUESTS_IN_LINE
        session.muted += mutes
        parked.complete = complete
        self.purgatory.park(parked)

    def release(self, session: Session) -> None:
        """Move what is answered from the head of the line to the outbox."""
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
            session.muted -= 1
            if not session.muted:
                self.resumed.append(session)

    def _require_answerable(self, key: int) -> None:
        """ApiVersions in a version of the future is answered; anything else unknown is not."""
        api_key, version = key >> 16, key & 0xFFFF
        if api_key == API_VERSIONS_KEY:
            return
        if api_key in self.api_keys:
            raise Refused(f"API {api_key} in version {version}, which is not served")
        raise Refused(f"API {api_key}, which is not served")

    def _answer_unknown_api_versions(self, session: Session, correlation_id: int) -> None:
        """KIP-511: the answer is version 0: UNSUPPORTED_VERSION, and what would be understood."""
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


def is_full(session: Session) -> bool:
    """Answers that stand behind one that is not ready are somebody's memory too: ours."""
    return len(session.line) >= MOST_REQUESTS_IN_LINE or session.line_bytes >= MOST_BYTES_OWED
