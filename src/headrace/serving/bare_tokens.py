"""Tokens of a login without request headers: what follows a SaslHandshake of version 0.

Each is four bytes of length and as many bytes; the answers are the same. A login that fails has no
way to say so: the connection is closed after the usual delay.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from headrace.serving.api import Parked, Refused
from headrace.serving.session import Reply, Session

if TYPE_CHECKING:
    from headrace.serving.dispatch import Dispatch

_length = Struct(">i")


def feed_tokens(dispatch: Dispatch, session: Session, view: memoryview, filled: int) -> int:
    """As `Dispatch.feed`, while the session's login takes such tokens."""
    position = 0
    session.frame_size = 0
    while session.login is not None and session.login.takes_bare_tokens:
        if filled - position < 4 or session.muted:
            break
        (size,) = _length.unpack_from(view, position)
        if not 0 <= size <= session.login.mechanisms.largest_bytes:
            raise Refused(f"a token of {size} bytes")
        end = position + 4 + size
        if end > filled:
            session.frame_size = size + 4
            break
        _answer(dispatch, session, view[position + 4 : end].tobytes())
        position = end
    return position


def _answer(dispatch: Dispatch, session: Session, token: bytes) -> None:
    from headrace.serving.authentication.exchange import LoginFailed

    login = session.login
    assert login is not None
    try:
        answer, _ = login.token(session, token, dispatch.now)
    except LoginFailed:
        _close_late(dispatch, session, login.answer_late(session, lambda: True, dispatch.now))
        return
    dispatch.reply(session, [_length.pack(len(answer)) + answer])


def _close_late(dispatch: Dispatch, session: Session, parked: Parked) -> None:
    def complete(answer: Any) -> None:
        dispatch.failed.append((session, "its login failed"))

    parked.complete = complete
    session.muted += 1
    session.line.append(Reply(parked, None))
    dispatch.purgatory.park(parked)
