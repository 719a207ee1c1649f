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
from typing import Any

from headrace.environment import Now
from headrace.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from headrace.protocol.primitives import BROKEN, read_uvarint, skip_tags
from headrace.serving.api import Api, Call, Parked, Refused
from headrace.serving.around_logins import answer_out_of_turn, feed_tokens
from headrace.serving.purgatory import Purgatory
from headrace.serving.quotas import ClientQuotas, Meter
from headrace.serving.session import Piece, Reply, Session

log = logging.getLogger(__name__)

API_VERSIONS_KEY = 18
SMALLEST_FRAME = 10  # API key, version, correlation id, length of the client id
# Only Produce carries records. Any other request of this size is an attack: decoded, it would take
# up to 58 times as much memory and about a second of everybody's time (estimated, not measured).
LARGEST_WITHOUT_RECORDS = 4 * 1024 * 1024
PRODUCE_KEY, FETCH_KEY = 0, 1
# librdkafka and the Java client keep at most five; a client that sends on without reading replies
# is not read until some are answered.
MOST_REQUESTS_IN_LINE = 100
# Replies beyond this wait until the client has taken what it is owed.
MOST_BYTES_OWED = 1024 * 1024

_read_prefix = Struct(">iI").unpack_from  # size; API key and version as one number
_read_header = Struct(">Iih").unpack_from  # the same number, correlation id, client id's length
_reply_head = Struct(">ii").pack
_reply_head_flexible = Struct(">iiB").pack


class Route:
    """One API in one version: how to read it, who answers, how to write the answer."""

    __slots__ = (
        "name",
        "api_key",
        "version",
        "decode",
        "encode",
        "handle",
        "recognize",
        "owner",
        "flexible",
        "flexible_reply",
        "response_type",
        "requests",
        "errors",
        "microseconds",
        "buckets",
        "frame",
    )

    def __init__(self, api: Api, version: int, owner: Any) -> None:
        messages = api.messages
        self.name: str = messages.NAME
        self.api_key: int = messages.API_KEY
        self.version = version
        self.decode = messages.DECODE_REQUEST[version]
        self.encode = messages.ENCODE_RESPONSE[version]
        self.handle = api.handle
        self.recognize = api.recognize
        self.owner = owner
        self.flexible = version >= messages.FLEXIBLE_FROM
        # A client that does not know our versions must be able to read the answer (KIP-511).
        self.flexible_reply = self.flexible and self.api_key != API_VERSIONS_KEY
        self.response_type: type[Any] = getattr(messages, f"{messages.NAME}Response")
        self.requests = 0
        self.errors = 0
        self.microseconds = 0
        self.buckets = [0] * 32  # by bit length of the microseconds
        self.frame = self._frame_with_slices if self.api_key == FETCH_KEY else self._frame_of_bytes

    def _frame_of_bytes(self, correlation_id: int, answer: Any) -> list[Piece]:
        """The whole reply as one piece."""
        pieces: list[Any] = []
        self.encode(answer, pieces.append)
        return self.frame_of_body(correlation_id, b"".join(pieces))

    def frame_of_body(self, correlation_id: int, body: bytes) -> list[Piece]:
        if self.flexible_reply:
            return [_reply_head_flexible(len(body) + 5, correlation_id, 0) + body]
        return [_reply_head(len(body) + 4, correlation_id) + body]

    def _frame_with_slices(self, correlation_id: int, answer: Any) -> list[Piece]:
        """The same where slices of files stay what they are."""
        pieces: list[Piece] = []
        self.encode(answer, pieces.append)
        size = sum(map(len, pieces)) + 4
        if self.flexible_reply:
            pieces[0] = _reply_head_flexible(size + 1, correlation_id, 0) + pieces[0]  # type: ignore[operator]
        else:
            pieces[0] = _reply_head(size, correlation_id) + pieces[0]  # type: ignore[operator]
        return pieces


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
                request = decoded(route, frame, client_id_length)
                call = Call(self.now, route.version, frame, session, correlation_id, meter)
                answer = route.handle(route.owner, request, call)
            if answer is None:
                if meter is not None:
                    self._throttle(session, meter.finish(route.api_key, answered=False))
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
            raise self._blame(session, route, bug) from bug
        if started:
            self._note_time(route, started)
        self.reply(session, pieces)
        if wait_ms:
            self._throttle(session, wait_ms)

    def _blame(self, session: Session, route: Route, bug: Exception) -> Refused:
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

    def _throttle(self, session: Session, wait_ms: int) -> None:
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
    ) -> None:
        place = Reply(parked, None)
        if meter is not None:
            meter.parked()

        def complete(answer: Any) -> None:
            if started:
                self._note_time(route, started)
            place.parked = None
            try:
                if isinstance(answer, KafkaError):
                    answer = error_response(route, answer)
                elif isinstance(answer, Exception):
                    raise answer
                if meter is not None:
                    wait_ms = meter.finish(route.api_key)
                    answer = throttled(route, answer, wait_ms)
                    self._throttle(session, wait_ms)
                frame = route.frame_of_body if type(answer) is bytes else route.frame
                place.pieces = frame(correlation_id, answer)
                session.line_bytes += len(place.pieces[0])
            except Refused as reason:
                self.failed.append((session, str(reason)))
                return
            except Exception as bug:  # noqa: BLE001 - as above
                self.failed.append((session, str(self._blame(session, route, bug))))
                return
            if mutes:
                session.muted -= 1
                if not session.muted:
                    self.resumed.append(session)
            self._release(session)

        session.line.append(place)
        mutes = parked.mutes or len(session.line) >= MOST_REQUESTS_IN_LINE
        session.muted += mutes
        parked.complete = complete
        self.purgatory.park(parked)

    def _release(self, session: Session) -> None:
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

    def _note_time(self, route: Route, started: int) -> None:
        assert self.stopwatch is not None
        microseconds = (self.stopwatch() - started) // 1000
        route.microseconds += microseconds
        route.buckets[min(microseconds.bit_length(), 31)] += 1


def is_full(session: Session) -> bool:
    """Answers that stand behind one that is not ready are somebody's memory too: ours."""
    return len(session.line) >= MOST_REQUESTS_IN_LINE or session.line_bytes >= MOST_BYTES_OWED


def decoded(route: Route, frame: memoryview, client_id_length: int) -> Any:
    at = 10 + client_id_length if client_id_length > 0 else 10
    try:
        if at > len(frame):
            raise MalformedMessage("the client id is longer than the request")
        if route.flexible:
            at = at + 1 if frame[at] == 0 else _skip_header_tags(frame, at)
        request, _ = route.decode(frame, at)
    except (MalformedMessage, *BROKEN) as malformed:
        raise Refused(f"a {route.name} v{route.version} that cannot be read: {malformed}") from None
    return request


def _skip_header_tags(frame: memoryview, at: int) -> int:
    count, at = read_uvarint(frame, at)
    return skip_tags(frame, at, count)


def throttled(route: Route, answer: Any, wait_ms: int) -> Any:
    """The answer tells its client how long it will not be read."""
    if not wait_ms:
        return answer
    if type(answer) is bytes:
        # An acknowledgement of Produce ends with this number, and with tags where there are any;
        # answers of OffsetCommit and Metadata begin with it.
        tags = 1 if route.flexible else 0
        at = len(answer) - 4 - tags if route.api_key == PRODUCE_KEY else 0
        return answer[:at] + wait_ms.to_bytes(4, "big") + answer[at + 4 :]
    if hasattr(answer, "throttle_time_ms"):
        answer.throttle_time_ms = wait_ms
    return answer


def error_response(route: Route, refusal: KafkaError) -> Any:
    """A refusal of the whole request, for the APIs whose answer has one place to say so."""
    answer = route.response_type()
    if not hasattr(answer, "error_code"):
        raise Refused(f"a {route.name} v{route.version} refused with {refusal.code.name}")
    route.errors += 1
    answer.error_code = refusal.code
    if refusal.message is not None and hasattr(answer, "error_message"):
        answer.error_message = refusal.message
    return answer
