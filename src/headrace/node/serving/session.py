"""One client's connection as the dispatch sees it: its replies, in the order of its requests.

Replies leave in request order. A ready answer waits in line while an earlier one is not ready. The
bytes to send are collected in `outbox`; the listener sends each outbox once per turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.environment import Buffer, FileSlice
from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from headrace.node.serving.authentication.login import Login

Piece = Buffer | FileSlice


class Reply:
    """A place in the line of replies; `pieces` is None while its request waits."""

    __slots__ = ("pieces", "waiting")

    def __init__(self, waiting: WaitingRequest | None, pieces: list[Piece] | None) -> None:
        self.waiting = waiting
        self.pieces = pieces


class Session:
    __slots__ = (
        "client_host",
        "listener",
        "principal",
        "outbox",
        "owed",
        "line",
        "line_bytes",
        "line_is_full",
        "muted",
        "frame_size",
        "closing",
        "connection",
        "software",
        "remembered",
        "login",
        "throttled",
        "when_closed",
    )

    def __init__(self, client_host: str, listener: str, connection: Any = None) -> None:
        self.client_host = client_host
        self.listener = listener
        self.principal: Principal = ANONYMOUS
        self.connection = connection  # the listener's own handle
        self.outbox: list[Piece] = []
        self.owed = 0  # bytes put into the outbox since it was last empty, slices not counted
        self.line: deque[Reply] = deque()
        self.line_bytes = 0  # of ready answers in the line, slices not counted
        self.line_is_full = False  # nothing more is read until some of it can leave
        self.muted = 0  # reasons to read nothing more; only Dispatch.mute and unmute write it
        self.frame_size = 0  # size of a frame that has begun but is not complete
        self.closing = False  # the outbox is sent, then the connection ends
        self.software = ""
        self.remembered: Any = None  # its next requests may be recognized by it; None: nothing yet
        # Until the client is authenticated, on a listener with SASL (authentication/login.py).
        self.login: Login | None = None
        self.throttled: WaitingRequest | None = None  # ends when its quotas let it be read again
        self.when_closed: Callable[[Any], None] | None = None  # called with it, once it is gone
