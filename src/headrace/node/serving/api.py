"""The arguments and possible answers of a request handler.

A handler is a plain function `handle(owner, request, call)`; the owner is Broker or Controller. It
answers now (a response message, or its bytes), later (`WaitingRequest`), in slices (a generator
that returns the answer, `long_answers.py`), or never (`None`: acks=0).
Handlers raise `KafkaError` for refusals and never catch anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from headrace.environment import Now
from headrace.node.serving.principal import Principal

if TYPE_CHECKING:
    from headrace.node.serving.quotas import Meter


# An answer about 50,000 partitions takes the loop 0.1 to 0.2 s.
MOST_NAMED = 50_000


class ClosesConnection(Exception):
    """The connection ends without an answer, mostly for an invalid request; the text is the reason,
    for the log."""


def require_few(request: str, count: int, things: str) -> None:
    """Refuses a request that names more than MOST_NAMED elements."""
    if count > MOST_NAMED:
        raise ClosesConnection(
            f"a {request} that names {count} {things} (at most {MOST_NAMED} are taken)"
        )


def require_few_partitions(request: str, count: int) -> None:
    require_few(request, count, "partitions")


class Call:
    """The circumstances of one request: its connection, its version, and the time."""

    __slots__ = ("now", "version", "frame", "session", "correlation_id", "meter")

    def __init__(
        self,
        now: Now,
        version: int,
        frame: memoryview,
        session: Peer,
        correlation_id: int,
        meter: Meter | None = None,
    ) -> None:
        self.now = now
        self.version = version
        self.frame = frame  # valid until the handler returns
        self.session = session
        self.correlation_id = correlation_id
        self.meter = meter  # None: no client is limited

    def client_id(self) -> str:
        """Returns the client's own name; it is read from the frame only when needed."""
        length = int.from_bytes(self.frame[8:10], "big", signed=True)
        if length <= 0:
            return ""
        return self.frame[10 : 10 + length].tobytes().decode("utf-8", "replace")


class Peer(Protocol):
    """The part of a connection that a handler may use."""

    client_host: str
    listener: str
    principal: Principal
    remembered: Any  # its next requests may be recognized by it; None: nothing yet
    login: Any  # serving/authentication/login.py while under way or able to expire, else None
    closing: bool  # the outbox is sent, then the connection ends
    when_closed: Callable[[Any], None] | None  # called with the connection once it is closed


class Waitable(Protocol):
    """Something that a request can wait for; it wakes those in `waiting` by `Purgatory.wake`."""

    # In order of arrival; a dict so that leaving costs the same for all.
    waiting: dict[WaitingRequest, None]


def _nobody_waits(answer: Any) -> None:
    """Ignores an answer that no connection waits for: an alarm, or a request of this node."""


class WaitingRequest:
    """A request that waits for things, and is tried again when one of them changes.

    `attempt(expired)` returns the response, or None to wait longer; with `expired` it must answer.
    A handler whose request waits must keep values, not views: the receive buffer is reused after
    the handler returns.
    """

    __slots__ = ("deadline_ms", "attempt", "hangs_on", "mutes", "woken", "done", "complete")

    def __init__(
        self,
        attempt: Callable[[bool], Any | None],
        *,
        deadline_ms: int,
        hangs_on: list[Any],
        mutes: bool = False,
    ) -> None:
        self.attempt = attempt
        self.deadline_ms = deadline_ms
        self.hangs_on = hangs_on
        self.mutes = mutes  # no further request of this connection is read meanwhile
        self.woken = False
        self.done = False
        self.complete: Callable[[Any], None] = _nobody_waits  # set by dispatch


# Yielded by a generator that is about to make an answer of more than a megabyte: only one of those
# is made at a time, and none while clients have left too much unread.
LARGE_ANSWER = "large answer"


def long(answer: Any) -> Generator[None, None, Any]:
    """Returns an answer that is to be encoded in slices, whatever the size of its request."""
    yield
    return answer


# Called with owner, version, frame, peer and now before a request is decoded. Returns the answer if
# a similar one came on this connection before, or None to have it decoded.
Recognize = Callable[[Any, int, memoryview, Any, Now], Any]


@dataclass(slots=True, frozen=True)
class Api:
    """One line of the table of contents: an API, its versions, and its handler."""

    messages: Any  # the generated module of headrace.wire.protocol.messages
    handle: Callable[[Any, Any, Call], Any]
    versions: range
    # librdkafka believes only an ApiVersions answer that lists Produce from version 0.
    advertised_from: int | None = None
    owner: str = field(default="broker")  # or "controller", or "envelopes"
    # For an API that also answers with encoded bytes: writes a throttle time into them, given their
    # version and the milliseconds.
    throttle_encoded: Callable[[bytes, int, int], bytes] | None = None
    # The handler of large requests, if it can be left between two elements: a generator that yields
    # its steps and returns the answer (`long_answers.py`).
    handle_large: Callable[[Any, Any, Call], Any] | None = None
