"""The audit: admin changes, failed logins and denied requests, as lines of JSON.

`Auditor.note(...)` may be called from any path: it never waits and never raises. Lines gather until
the node takes them (`take`), some ten times a second, for the log and, if configured, for a topic.
Repeated entries become one line with `times`. Beyond `MOST_WAITING` different ones they are dropped
and counted, so that a client that is refused a million times a second fills no disk.

Only names are noted, never the value of a setting: it may be a password. `audited` wraps the
handlers of admin requests to note them, so that other requests pay nothing. Does not know files or
topics: `broker/audit.py` writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import UTC, datetime
from types import GeneratorType
from typing import Any

from headrace.environment import Now
from headrace.node.serving.api import Api, Call, Peer, WaitingRequest
from headrace.wire.protocol.errors import ErrorCode, KafkaError

CHANGE = "change"  # an admin request: the user, the request, and its outcome
LOGIN_FAILED = "login-failed"
DENIED = "denied"

# Different lines between two calls of `take`; each is some 300 bytes.
MOST_WAITING = 2_000
# Names that are kept of one request; the others are only counted.
MOST_NAMES = 50
LONGEST_TEXT = 500

Details = Callable[[Any, Any], dict[str, Any]]

_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


class Auditor:
    """Collects the entries; with `enabled` False it drops everything at once."""

    __slots__ = ("enabled", "noted", "dropped", "_now", "_waiting", "_dropped_since")

    def __init__(self, now: Now, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self.noted = 0
        self.dropped = 0
        self._now = now
        self._waiting: dict[str, list[int]] = {}  # the entry without its time -> time, how often
        self._dropped_since = 0

    def note(self, event: str, peer: Peer | None, *, api: str = "", **details: Any) -> None:
        """`details` are texts, numbers, or lists and objects of those; never secrets.

        `event` is CHANGE, LOGIN_FAILED, DENIED or another word of that kind.
        """
        if not self.enabled:
            return
        said: dict[str, Any] = {"event": event}
        if peer is not None:
            said["principal"] = str(peer.principal)
            said["host"] = peer.client_host
            said["listener"] = peer.listener
        if api:
            said["api"] = api
        said.update({name: _short(value) for name, value in details.items() if value is not None})
        what = _encode(said)
        known = self._waiting.get(what)
        if known is not None:
            known[1] += 1
        elif len(self._waiting) < MOST_WAITING:
            self._waiting[what] = [self._now.wall_ms, 1]
        else:
            self.dropped += 1
            self._dropped_since += 1
            return
        self.noted += 1

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def take(self) -> list[str]:
        """Returns the entries since the last call, oldest first, one JSON object each."""
        lines = [_line(what, *how) for what, how in self._waiting.items()]
        self._waiting.clear()
        if self._dropped_since:
            lost = _encode({"event": "dropped", "count": self._dropped_since})
            lines.append(_line(lost, self._now.wall_ms, 1))
            self._dropped_since = 0
        return lines


def _line(what: str, wall_ms: int, times: int) -> str:
    time = datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
    often = f',"times":{times}' if times > 1 else ""
    return f'{{"time":"{time}",{what[1:-1]}{often}}}'


def _short(value: Any) -> Any:
    """Shortens the text of a client, which may be long."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else f"{value[:LONGEST_TEXT]}..."
    if isinstance(value, list):
        kept = [_short(each) for each in value[:MOST_NAMES]]
        return kept if len(value) <= MOST_NAMES else [*kept, f"and {len(value) - MOST_NAMES} more"]
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    return value


def audited(api: Api, auditor: Auditor, details: Details) -> Api:
    """Returns the same API, whose requests are noted when they are answered.

    `details(request, answer)` describes the request and its outcome, in words; the answer is None
    if a `KafkaError` is the answer to the whole request.
    """
    name: str = api.messages.NAME
    inner = api.handle

    def note(request: Any, call: Call, answer: Any, **more: Any) -> None:
        auditor.note(CHANGE, call.session, api=name, **{**details(request, answer), **more})

    def handle(owner: Any, request: Any, call: Call) -> Any:
        if not auditor.enabled:
            return inner(owner, request, call)
        try:
            answer = inner(owner, request, call)
        except KafkaError as refusal:
            note(request, call, None, error=refusal.code.name)
            raise
        if type(answer) is GeneratorType:
            return in_slices(request, call, answer)
        return noted(request, call, answer)

    def in_slices(request: Any, call: Call, steps: Generator[None, None, Any]) -> Any:
        try:
            answer = yield from steps
        except KafkaError as refusal:
            note(request, call, None, error=refusal.code.name)
            raise
        return noted(request, call, answer)

    def noted(request: Any, call: Call, answer: Any) -> Any:
        if isinstance(answer, WaitingRequest):
            answer.attempt = _noted_later(answer.attempt, lambda got: note(request, call, got))
        else:
            note(request, call, answer)
        return answer

    return replace(api, handle=handle)


def _noted_later(
    attempt: Callable[[bool], Any | None], note: Callable[[Any], None]
) -> Callable[[bool], Any | None]:
    def noting(expired: bool) -> Any | None:
        answer = attempt(expired)
        if answer is not None:
            note(answer)
        return answer

    return noting


def error_name(code: int) -> str | None:
    """Returns None for a success, so that the line does not mention it."""
    if code == ErrorCode.NONE:
        return None
    return _NAMES.get(code, str(code))


_NAMES = {int(code): code.name for code in ErrorCode}


def denials_to(auditor: Auditor) -> Callable[[Any, Any, Any, str], None]:
    """Returns a function for `Authorizer.on_denied`."""

    def note(asking: Any, operation: Any, resource_type: Any, name: str) -> None:
        what = f"{resource_type.name.lower()} {name}"
        auditor.note(DENIED, asking, operation=operation.name, resource=what)

    return note


def logins_to(auditor: Auditor) -> Callable[[Any], None]:
    """Returns a function for `Logins.watchers` that notes failed logins."""

    def note(seen: Any) -> None:
        if seen.failure is not None:
            again = True if seen.again else None
            auditor.note(
                LOGIN_FAILED, seen.session, mechanism=seen.mechanism, why=seen.failure, again=again
            )

    return note
