"""Handles the frames that only logins have: bare tokens, and requests in the middle of a login.

Bare tokens follow a SaslHandshake of version 0: four bytes of length and as many bytes; the answers
have the same form. They cannot carry an error: the connection is closed after the usual delay. A
request in the middle of a login is answered with ILLEGAL_SASL_STATE if its answer has a field for
it, after the same delay, and the connection ends.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from headrace.node.serving.api import ClosesConnection, WaitingRequest
from headrace.node.serving.session import Reply, Session
from headrace.wire.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.node.serving.dispatch import Dispatch

_length = Struct(">i")
_read_header = Struct(">Iih").unpack_from
METADATA_KEY = 3


def feed_tokens(dispatch: Dispatch, session: Session, view: memoryview, filled: int) -> int:
    """Like `Dispatch.feed`, while the session's login takes such tokens."""
    position = 0
    session.frame_size = 0
    while session.login is not None and session.login.takes_bare_tokens:
        if filled - position < 4 or session.muted:
            break
        (size,) = _length.unpack_from(view, position)
        if not 0 <= size <= session.login.mechanisms.largest_bytes:
            raise ClosesConnection(f"a token of {size} bytes")
        end = position + 4 + size
        if end > filled:
            session.frame_size = size + 4
            break
        _answer(dispatch, session, view[position + 4 : end].tobytes())
        position = end
    return position


def _answer(dispatch: Dispatch, session: Session, token: bytes) -> None:
    from headrace.node.serving.authentication.exchange import LoginFailed

    login = session.login
    assert login is not None
    try:
        answer, _ = login.token(session, token, dispatch.now)
    except LoginFailed:
        _close_late(dispatch, session, login.answer_late(session, lambda: True, dispatch.now))
        return
    dispatch.reply(session, [_length.pack(len(answer)) + answer])


def _close_late(dispatch: Dispatch, session: Session, waiting: WaitingRequest) -> None:
    def complete(answer: Any) -> None:
        dispatch.failed.append((session, "its login failed"))

    waiting.complete = complete
    dispatch.mute(session)
    session.line.append(Reply(waiting, None))
    dispatch.purgatory.add(waiting)


def answer_out_of_turn(dispatch: Dispatch, session: Session, frame: memoryview) -> None:
    from headrace.node.serving.route import decoded, error_response

    key, correlation_id, client_id_length = _read_header(frame, 0)
    route = dispatch.routes.get(key)
    login = session.login
    if route is None or login is None:
        raise ClosesConnection("a request of a kind or version that is not served, during a login")
    code = ErrorCode.ILLEGAL_SASL_STATE
    answer = error_response(route, KafkaError(code))
    if route.api_key == METADATA_KEY:  # its older versions carry the error in each topic
        from headrace.wire.protocol.messages.metadata import MetadataResponseTopic

        asked = decoded(route, frame, client_id_length).topics or ()
        answer.topics = [MetadataResponseTopic(code, topic.name) for topic in asked]
    login.refuse_request(session)
    late = login.answer_late(session, lambda: answer, dispatch.now)
    dispatch.reply_later(session, route, correlation_id, late)
