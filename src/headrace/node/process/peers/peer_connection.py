"""One connection that this node has opened to another one: questions out, answers in their order.

Its life: connecting, agreeing on encryption, a greeting (versions, then the login if one is asked
for), open, closed. Questions that come before it is open wait for that. An error, or a request
whose time is up, closes it: then it is unknown which answer belongs to which request, so each one
is answered with None. Looking for the node, and trying again, is done in `peers.py`.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Generator
from struct import Struct
from typing import Any

from headrace.environment import Address
from headrace.node.process.loop import Loop
from headrace.node.process.peers.peer_security import PeerSecurity
from headrace.node.process.peers.peer_streams import Stream
from headrace.wire.protocol.errors import ErrorCode, MalformedMessage
from headrace.wire.protocol.framing import decode_response, encode_request
from headrace.wire.protocol.logins import Distrusted, Senseless
from headrace.wire.protocol.messages import api_versions, sasl_authenticate, sasl_handshake

log = logging.getLogger(__name__)

# A node's answer may be one batch that is larger than what was asked for, and batches may be large.
LARGEST_ANSWER_BYTES = 256 << 20
# Then the others have their turn.
RECEIVED_PER_TURN_BYTES = 8 << 20
# Every node answers this version, and the answer has the versions of all other APIs.
FIRST_API_VERSIONS_VERSION = 0
HANDSHAKE_VERSION = 1
AUTHENTICATE_VERSION = 1

Greeting = Generator[tuple[Any, int, Any], Any, None]

_length = Struct(">i")


class Question:
    __slots__ = ("messages", "request", "answered", "deadline_ms", "newest", "number", "version")

    def __init__(
        self,
        messages: Any,
        request: Any,
        answered: Callable[[Any], None],
        deadline_ms: int,
        newest: int | None,
    ) -> None:
        self.messages = messages
        self.request = request
        self.answered = answered
        self.deadline_ms = deadline_ms
        self.newest = newest
        self.number = 0  # the correlation id
        self.version = 0


class Unusable(OSError):
    """The other side sends an answer that a node of this cluster would not send."""


class PeerConnection:
    __slots__ = (
        "to",
        "is_open",
        "is_closed",
        "was_refused",
        "was_idle",
        "waiting",
        "_loop",
        "_client_id",
        "_security",
        "_wants_to_send",
        "_on_closed",
        "_socket",
        "_stream",
        "_greeting",
        "_versions",
        "_asked",
        "_number",
        "_frame",
        "_view",
        "_filled",
        "_is_body",
        "_watched",
    )

    def __init__(
        self,
        loop: Loop,
        to: Address,
        *,
        client_id: str,
        security: PeerSecurity,
        wants_to_send: Callable[[PeerConnection], None],
        on_closed: Callable[[PeerConnection, str], None],
    ) -> None:
        self.to = to
        self.is_open = False  # greeted; what is asked leaves with this turn
        self.is_closed = False
        self.was_refused = False  # by the other host: no process listens there
        self.was_idle = False  # when it was closed: open, and nothing was asked
        self.waiting: list[Question] = []  # until it is open
        self._loop = loop
        self._client_id = client_id
        self._security = security
        self._wants_to_send = wants_to_send
        self._on_closed = on_closed
        self._socket: socket.socket | None = None
        self._stream: Stream | None = None
        self._greeting: Greeting | None = None
        self._versions: dict[int, range] = {}
        self._asked: deque[Question] = deque()
        self._number = 0
        self._expect(_length.size, is_body=False)
        self._watched = 0

    def begin(self, family: int, address: Any) -> None:
        """Connect to an address as getaddrinfo gives it."""
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        sock.connect_ex(address)  # an error is reported when the socket is ready
        self._watch(self._loop.poller.WRITE)

    def ask(self, question: Question) -> None:
        """Send a question with this turn; one for an API that the other side lacks gets None, as if
        no answer came."""
        if not self.is_open:
            self.waiting.append(question)
            return
        version = self._version_of(question)
        if version is None:
            log.warning("%s:%d does not know %s", *self.to[:2], question.messages.NAME)
            now_ms = self._loop.now.monotonic_ms
            self._loop.timers.once(now_ms, lambda: question.answered(None))
            return
        self._put(question, version)
        self._wants_to_send(self)

    def send(self) -> None:
        """Send after the turn's writes: the requests may depend on them."""
        if self._stream is None or self.is_closed:
            return
        try:
            self._stream.send()
        except OSError as failure:
            self.close(str(failure))
            return
        read, write = self._loop.poller.READ, self._loop.poller.WRITE
        self._watch(read | write if self._stream.has_unsent else read)

    def is_late(self, now_ms: int) -> bool:
        """Returns whether the deadline of a question has passed."""
        asked = bool(self._asked) and min(q.deadline_ms for q in self._asked) <= now_ms
        return asked or any(q.deadline_ms <= now_ms for q in self.waiting)

    @property
    def is_idle(self) -> bool:
        return not self._asked and not self.waiting

    def close(self, why: str) -> None:
        if self.is_closed:
            return
        self.was_idle = self.is_open and self.is_idle
        self.is_closed, self.is_open = True, False
        if self._socket is not None:
            if self._watched:
                self._loop.stop_calling(self._socket)
            self._socket.close()
        unanswered = [*self._asked, *self.waiting]
        self._asked.clear()
        self.waiting = []
        self._on_closed(self, why)
        for question in unanswered:
            _tell(question, None)

    # Inside

    def _watch(self, interest: int) -> None:
        if interest != self._watched:
            assert self._socket is not None, "watched from when it is connected"
            self._watched = interest
            self._loop.call_when_ready(self._socket, interest, self._ready)

    def _ready(self) -> None:
        try:
            if self._stream is None:
                self._connected()
            self._receive()
            self._go_on()
            # Not at once: the requests may depend on what this turn has not written yet.
            self._wants_to_send(self)
        except OSError as failure:
            self.was_refused = self._stream is None and isinstance(failure, ConnectionRefusedError)
            self.close(str(failure))
        except MalformedMessage as failure:
            self.close(f"it answers what makes no sense: {failure}")
        except (Senseless, Distrusted) as failure:
            self.close(str(failure))

    def _connected(self) -> None:
        assert self._socket is not None
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        self._stream = self._security.stream(self._socket, self.to.host)
        self._watch(self._loop.poller.READ)

    def _go_on(self) -> None:
        """Begin to greet when requests may be sent."""
        if self._greeting is None and self._stream is not None and self._stream.is_ready:
            self._greeting = self._greet()
            self._say(next(self._greeting))

    def _greet(self) -> Greeting:
        answer = yield api_versions, FIRST_API_VERSIONS_VERSION, api_versions.ApiVersionsRequest()
        if answer.error_code != ErrorCode.NONE:
            raise Unusable(f"it refuses ApiVersions with error {answer.error_code}")
        self._versions = {
            api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys
        }
        login = self._security.login()
        if login is None:
            return
        mechanism, conversation = login
        offer = yield (
            sasl_handshake,
            HANDSHAKE_VERSION,
            sasl_handshake.SaslHandshakeRequest(mechanism),
        )
        if offer.error_code != ErrorCode.NONE:
            raise Unusable(f"it does not take {mechanism}, but {', '.join(offer.mechanisms)}")
        ours = next(conversation)
        while ours is not None:
            request = sasl_authenticate.SaslAuthenticateRequest(ours)
            answer = yield sasl_authenticate, AUTHENTICATE_VERSION, request
            if answer.error_code != ErrorCode.NONE:
                raise Unusable(f"it refuses the login: {answer.error_message}")
            ours = conversation.send(bytes(answer.auth_bytes))

    def _say(self, line: tuple[Any, int, Any]) -> None:
        messages, version, request = line
        # No deadline of its own: the requests that wait for the end of the greeting have theirs.
        self._put(Question(messages, request, _nobody, 1 << 62, None), version)

    def _greeted(self, answer: Any) -> None:
        assert self._greeting is not None
        try:
            self._say(self._greeting.send(answer))
        except StopIteration:
            self.is_open = True
            waiting, self.waiting = self.waiting, []
            for question in waiting:
                self.ask(question)

    def _version_of(self, question: Question) -> int | None:
        ours: range = question.messages.VERSIONS
        theirs = self._versions.get(question.messages.API_KEY, range(0))
        common = min(ours.stop, theirs.stop) - 1
        if question.newest is not None:
            common = min(common, question.newest)
        return common if common >= max(ours.start, theirs.start) else None

    def _put(self, question: Question, version: int) -> None:
        assert self._stream is not None, "asked of an open connection"
        self._number = (self._number + 1) & 0x7FFFFFFF
        question.number, question.version = self._number, version
        frame = encode_request(
            question.messages, version, self._number, self._client_id, question.request
        )
        self._stream.put(frame)
        self._asked.append(question)

    def _receive(self) -> None:
        """Answers that are whole, up to a turn's share of bytes."""
        stream, received = self._stream, 0
        assert stream is not None
        while received < RECEIVED_PER_TURN_BYTES and not self.is_closed:
            try:
                count = stream.receive_into(self._view[self._filled :])
            except BlockingIOError:
                return
            if not count:
                raise Unusable("it has closed the connection")
            received += count
            self._filled += count
            if self._filled == len(self._frame):
                self._frame_is_whole()

    def _frame_is_whole(self) -> None:
        frame = self._frame
        if not self._is_body:
            (size,) = _length.unpack(frame)
            if not _length.size <= size <= LARGEST_ANSWER_BYTES:
                raise Unusable(f"it announces an answer of {size} bytes")
            self._expect(size, is_body=True)
            return
        self._expect(_length.size, is_body=False)
        if not self._asked:
            raise Unusable("it answers without being asked")
        question = self._asked[0]
        number, answer = decode_response(question.messages, question.version, memoryview(frame))
        if number != question.number:
            raise Unusable("it answers another question than the one asked")
        self._asked.popleft()
        if self.is_open:
            _tell(question, answer)
        else:
            self._greeted(answer)

    def _expect(self, size: int, *, is_body: bool) -> None:
        self._frame, self._filled, self._is_body = bytearray(size), 0, is_body
        self._view = memoryview(self._frame)


def _nobody(answer: Any) -> None:
    """Ignores the answer to a request of the connection itself."""


def _tell(question: Question, answer: Any) -> None:
    try:
        question.answered(answer)
    except Exception:  # one answer's bug must not end the node
        log.exception("an answer to %s failed here", question.messages.NAME)
