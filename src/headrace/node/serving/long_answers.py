"""Large requests and long answers: decoded, answered and encoded in slices, between other requests.

The request keeps its place in the line of its connection, and nothing more is read from that
connection meanwhile: the order is the same as if it had been answered at once. All of them go
through one lane, in which each connection has its turn (`FairLane`). An answer of more than
`LARGE_ANSWER_BYTES` needs room: only one of those is made at a time, and none while clients have
left too much unread (`Dispatch.holds_back`). Meanwhile it waits aside, and does not delay smaller
ones. The state may change between two slices, as with Apache Kafka's many threads: a handler that
returns steps (`Api.handle_large`) yields only between two elements of the request.
"""

from __future__ import annotations

from collections.abc import Generator
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from headrace.environment import FileSlice
from headrace.node.serving.api import LARGE_ANSWER, Call, ClosesConnection, WaitingRequest
from headrace.node.serving.quotas import Meter
from headrace.node.serving.route import Route, error_response, throttled
from headrace.node.serving.session import Piece, Reply, Session
from headrace.node.serving.slices import NO_ROOM
from headrace.wire.protocol.errors import KafkaError, MalformedMessage
from headrace.wire.protocol.primitives import BROKEN

if TYPE_CHECKING:
    from headrace.node.serving.dispatch import Dispatch

# Pieces of an answer are joined after so many steps: fewer objects, without a second copy of it
# all.
STEPS_PER_CHUNK = 2_000
LARGE_ANSWER_BYTES = 1024 * 1024
# Decoded, a request takes up to 58 times its size: only one request of at least this size runs.
HEAVY_FROM = 256 * 1024

Answering = Generator[Any, None, Any]


def begin(
    dispatch: Dispatch,
    session: Session,
    route: Route,
    correlation_id: int,
    answering: Answering,
    started: int,
    meter: Meter | None,
    size: int = 0,
) -> None:
    """Take a place in line. `answering` yields its steps and returns what a handler may return.
    `size` is the size of the request if it still has to be decoded."""
    reply = Reply(None, None)
    session.line.append(reply)
    dispatch.mute(session)
    dispatch.long_answers.add(
        _work(dispatch, session, route, correlation_id, reply, answering, started, meter),
        heavy=size >= HEAVY_FROM,
    )


def answering_of(route: Route, call: Call, at: int) -> Answering:
    """Decode and handle the request."""
    try:
        request, _ = yield from route.sliced().DECODE_REQUEST[route.version](call.frame, at)
    except (MalformedMessage, *BROKEN) as malformed:
        raise ClosesConnection(
            f"a {route.name} v{route.version} that cannot be read: {malformed}"
        ) from None
    yield  # reading the last array may have taken long
    handle = route.handle_large or route.handle
    answer = handle(route.owner, request, call)
    while type(answer) is GeneratorType:  # a large request, and perhaps a long answer to it
        answer = yield from answer
    return answer


def _work(
    dispatch: Dispatch,
    session: Session,
    route: Route,
    correlation_id: int,
    reply: Reply,
    answering: Answering,
    started: int,
    meter: Meter | None,
) -> Generator[object, None, None]:
    steps = _pieces(dispatch, session, route, correlation_id, answering, meter)
    try:
        while True:
            try:
                said = next(steps)
            except StopIteration as done:
                found = done.value
                break
            except ClosesConnection as reason:
                dispatch.failed.append((session, str(reason)))
                return
            except Exception as bug:  # noqa: BLE001 - one request's bug must not end the others
                dispatch.failed.append((session, str(dispatch.blame(session, route, bug))))
                return
            while said is LARGE_ANSWER and not session.closing and not _has_room(dispatch, reply):
                yield NO_ROOM
            if session.closing:  # its connection is closed
                steps.close()
                return
            yield None
    finally:
        if dispatch.large_answer is reply:
            dispatch.large_answer = None
    if isinstance(found, WaitingRequest):
        dispatch.reply_later(session, route, correlation_id, found, started, meter, reply)
    elif found is None:
        session.line.remove(reply)
    else:
        if started:
            dispatch.note_time(route, started)
        reply.pieces = found
        session.line_bytes += len(found[0])
        dispatch.release(session)
    dispatch.unmute(session)


def _has_room(dispatch: Dispatch, reply: Reply) -> bool:
    """Returns whether this large answer may be made; it keeps its room until it is done."""
    if dispatch.large_answer is None and not dispatch.holds_back:
        dispatch.large_answer = reply
    return dispatch.large_answer is reply


def _pieces(
    dispatch: Dispatch,
    session: Session,
    route: Route,
    correlation_id: int,
    answering: Answering,
    meter: Meter | None,
) -> Answering:
    """Returns the encoded answer, or WaitingRequest."""
    try:
        answer = yield from answering
    except KafkaError as refusal:
        answer = error_response(route, refusal)
    if answer is None or type(answer) is WaitingRequest:
        if meter is not None and answer is None:
            dispatch.throttle(session, meter.finish(route.api_key, answered=False))
        return answer
    if meter is not None:
        wait_ms = meter.finish(route.api_key)
        answer = throttled(route, answer, wait_ms)
        dispatch.throttle(session, wait_ms)
    if type(answer) is bytes:
        return route.frame_of_body(correlation_id, answer)
    return (yield from encoded(route, correlation_id, answer))


def encoded(route: Route, correlation_id: int, answer: Any) -> Answering:
    """Returns the frame of an answer, in chunks."""
    chunks: list[Piece] = []
    run: list[Any] = []
    size = 0
    encoding = route.sliced().ENCODE_RESPONSE[route.version](answer, run.append)
    for taken, _ in enumerate(encoding):
        if taken % STEPS_PER_CHUNK == 0 and run:
            joined = _joined(run)
            chunks += joined
            run.clear()
            size += sum(map(len, joined))
            if size > LARGE_ANSWER_BYTES:
                yield LARGE_ANSWER
        yield
    chunks += _joined(run)
    size = sum(map(len, chunks))
    chunks[0] = route.head(correlation_id, size) + chunks[0]  # type: ignore[operator]
    return chunks


def _joined(run: list[Any]) -> list[Piece]:
    """Joins pieces of bytes; slices of files stay slices."""
    if any(type(piece) is FileSlice for piece in run):
        return list(run)
    return [b"".join(run)]


def answer_later(
    dispatch: Dispatch,
    session: Session,
    route: Route,
    correlation_id: int,
    reply: Reply,
    answer: Any,
    meter: Meter | None,
) -> None:
    """A large request has waited and is answered now: its place in line is filled in slices.
    `answer` may be made in slices too; then the throttle time (`meter`) is added when it is
    complete."""
    dispatch.mute(session)

    def answering() -> Answering:
        yield
        return (yield from answer) if type(answer) is GeneratorType else answer

    dispatch.long_answers.add(
        _work(dispatch, session, route, correlation_id, reply, answering(), 0, meter)
    )
