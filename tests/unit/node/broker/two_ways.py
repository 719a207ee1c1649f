"""The same frames to two nodes: one recognizes requests, the other decodes every one of them.

Both get the same changes between the frames, so whatever they say and keep must be the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.node.broker.recognized import RECOGNIZED
from headrace.node.serving.api import ClosesConnection
from headrace.wire.protocol.messages import alter_client_quotas, find_coordinator
from headrace.wire.protocol.primitives import uvarint
from tests.unit.node.broker.rig import read_piece

LONGEST_THROTTLE_MS = 60_000
A_TAG = b"\1\5\1\0"  # a set of one tag: number 5, one byte
NO_TAGS = b"\0"
CLIENT_ID_AT = 14  # in a frame with its size


class Way:
    """One node, and one connection to it at a time."""

    def __init__(self, rig: Any, *, recognizes: bool) -> None:
        self.rig = rig
        self.answered_short = 0
        for route in rig.node.dispatch.routes.values():
            if route.recognize is not None:
                route.recognize = self._counted(route.recognize) if recognizes else None
        self.session = self._connect()

    def _counted(self, recognize: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any) -> Any:
            answer = recognize(*given)
            self.answered_short += answer is not None
            return answer

        return counted

    def _connect(self) -> Any:
        alice = getattr(self.rig, "alice", None)
        return self.rig.connect() if alice is None else alice()

    def send(self, frame: bytes) -> Any:
        """The reply, how much was taken, and for how long the connection is not read."""
        data, dispatch = bytearray(frame), self.rig.node.dispatch
        try:
            taken = dispatch.feed(self.session, memoryview(data), len(data))
        except ClosesConnection as why:
            dispatch.forget(self.session)
            self.session = self._connect()
            return str(why)
        self.rig.until_idle()
        reply = b"".join(read_piece(piece) for piece in self.session.outbox)
        waits = len(self.session.line)
        self.session.outbox.clear()
        self.session.owed = 0
        throttled = self.session.throttled
        if throttled is not None:
            throttled_ms = throttled.deadline_ms - self.rig.now.monotonic_ms
            self.rig.advance(LONGEST_THROTTLE_MS)
        else:
            throttled_ms = 0
        dispatch.resumed.clear()
        return reply, taken, waits, throttled_ms

    def counters(self) -> list[tuple[str, int, int, int]]:
        routes = self.rig.node.dispatch.routes.values()
        known = {row.messages.API_KEY for row in RECOGNIZED}
        return [
            (route.name, route.version, route.requests, route.errors)
            for route in routes
            if route.api_key in known
        ]


def limit(rig: Any, **limits: float | None) -> None:
    """For every user; None removes."""
    parts = [alter_client_quotas.EntityData("user", None)]
    changes = [
        alter_client_quotas.OpData(key, value or 0.0, value is None)
        for key, value in limits.items()
    ]
    entry = alter_client_quotas.RequestEntryData(parts, changes)
    request = alter_client_quotas.AlterClientQuotasRequest([entry], False)
    [answer] = rig.ask(alter_client_quotas, request).entries
    assert answer.error_code == 0


def find(rig: Any, group: str) -> None:
    request = find_coordinator.FindCoordinatorRequest(group, 0, [group])
    rig.ask(find_coordinator, request, version=6)


# --- frames as no client of ours writes them; the decoder reads some of them


def resized(frame: bytes) -> bytes:
    return (len(frame) - 4).to_bytes(4, "big") + frame[4:]


def plain(frame: bytes) -> bytes:
    return frame


def with_more_behind(frame: bytes) -> bytes:
    return resized(frame + bytes(3))


def with_itself_behind(frame: bytes) -> bytes:
    """What lies behind the request ends as a request does."""
    return resized(frame + frame[-90:])


def with_a_tag_at_the_end(frame: bytes) -> bytes:
    return resized(frame[:-1] + A_TAG)


def with_a_tag_of_the_partition(frame: bytes) -> bytes:
    return resized(frame[:-3] + A_TAG + NO_TAGS + NO_TAGS)


def with_a_tag_in_the_header(frame: bytes) -> bytes:
    at = CLIENT_ID_AT + int.from_bytes(frame[12:14], "big")
    return resized(frame[:at] + A_TAG + frame[at + 1 :])


def with_a_long_varint(frame: bytes, before: bytes) -> bytes:
    """The length in front of `before`, which is followed by the tags, in one byte more."""
    length = uvarint(len(before) + 1)
    end = len(frame) - 3 - len(before)
    longer = length[:-1] + bytes([length[-1] | 0x80, 0])
    return resized(frame[: end - len(length)] + longer + frame[end:])


SPOILED = (
    plain,
    with_more_behind,
    with_itself_behind,
    with_a_tag_at_the_end,
    with_a_tag_of_the_partition,
    with_a_tag_in_the_header,
)
