"""The filter of a search in log records: by time, service, level and text. Pure.

The newest that match are kept, each id once; how many there were is counted. Memory is bounded by
the number that is kept and by the ids that are remembered.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.services.shipping.moments import moment_ms
from headrace.wire.contract.logs import LEVELS
from headrace.wire.contract.tracking import time_text

MOST_IDS = 1_000_000


@dataclass(slots=True, kw_only=True)
class Wanted:
    """None: any. `level` and worse; `text` in the message or a field, in any case."""

    from_ms: int | None = None
    to_ms: int | None = None
    service: str | None = None
    level: str | None = None
    text: str | None = None

    def matches(self, record: Mapping[str, Any], at_ms: int) -> bool:
        if self.from_ms is not None and at_ms < self.from_ms:
            return False
        if self.to_ms is not None and at_ms >= self.to_ms:
            return False
        if self.service is not None and record.get("service") != self.service:
            return False
        if self.level is not None and record.get("level") not in worse_than(self.level):
            return False
        return self.text is None or self._has_text(record, self.text.lower())

    def _has_text(self, record: Mapping[str, Any], text: str) -> bool:
        if text in str(record.get("message", "")).lower():
            return True
        fields = record.get("fields")
        values = fields.values() if isinstance(fields, dict) else ()
        return any(text in str(one).lower() for one in values)


def worse_than(level: str) -> tuple[str, ...]:
    """The level and all above it."""
    return LEVELS[LEVELS.index(level) :]


@dataclass(slots=True)
class Found:
    """`matched` counts each id once, as far as MOST_IDS goes (`is_exact`); `unreadable` are values
    that are no log records."""

    most: int
    matched: int = 0
    looked_at: int = 0
    unreadable: int = 0
    _newest: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    _ids: set[str] = field(default_factory=set)
    _shown: set[str] = field(default_factory=set)  # those of `_newest`

    def look(self, value: bytes | None, wanted: Wanted) -> None:
        self.looked_at += 1
        record = _record(value)
        at_ms = None if record is None else moment_ms(record.get("time"))
        if record is None or at_ms is None:
            self.unreadable += 1
        elif wanted.matches(record, at_ms):
            self.add({**record, "time": time_text(at_ms)}, at_ms)

    def add(self, record: dict[str, Any], at_ms: int) -> None:
        id = str(record.get("id", self.looked_at))
        if id in self._ids or id in self._shown:
            return
        if len(self._ids) < MOST_IDS:
            self._ids.add(id)
        self.matched += 1
        self._shown.add(id)
        heapq.heappush(self._newest, (at_ms, id, record))
        if len(self._newest) > self.most:
            self._shown.discard(heapq.heappop(self._newest)[1])

    @property
    def is_exact(self) -> bool:
        """Whether none was counted twice because too many ids had to be remembered."""
        return self.matched <= MOST_IDS

    @property
    def records(self) -> Iterable[dict[str, Any]]:
        """In the order of their times."""
        return [record for _, _, record in sorted(self._newest, key=lambda one: one[:2])]


def _record(value: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(value or b"")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
