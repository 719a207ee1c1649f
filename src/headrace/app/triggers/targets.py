"""The targets of a trigger, and the possible results of a call: common to all targets.

A target takes a list of calls and returns the failed ones. It raises `TargetFailed` when the whole
call failed, with the consequence for a retry: later (the endpoint is down, the time was up) or
never (the endpoint refuses the content).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from headrace.app.triggers.cloud_events import Event


@dataclass(slots=True)
class Failure:
    """One record that the target named as failed."""

    id: str
    reason: str


class TargetFailed(Exception):
    """The call as a whole did not succeed."""

    def __init__(
        self,
        reason: str,
        *,
        retriable: bool,
        target_is_down: bool = False,
        retry_after_ms: int = 0,
    ) -> None:
        super().__init__(reason)
        self.retriable = retriable
        self.target_is_down = target_is_down  # counts for the circuit breaker
        self.retry_after_ms = retry_after_ms  # the target asked for this pause


class Target(Protocol):
    """Called with one record or a batch; returns those that failed, most often none."""

    async def call(self, events: list[Event]) -> list[Failure]: ...

    async def close(self) -> None: ...
