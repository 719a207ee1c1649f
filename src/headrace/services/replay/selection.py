"""Which records of a topic are replayed: all that pass every condition that is given.

Pure. The expression is the filter language of triggers; the error is looked for in what dead
letters say of their failure, so a topic of dead letters can be replayed by reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from headrace.app import headers as names
from headrace.app.triggers.filters import Filter, facts_of
from headrace.client.records import Record


@dataclass
class Selection:
    since_ms: int | None = None  # not older
    until_ms: int | None = None  # older
    key: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None  # an expression over one record
    error: str | None = None  # a part of a dead letter's exception class or message

    @cached_property
    def _filter(self) -> Filter | None:
        return None if self.where is None else Filter(self.where)

    @property
    def takes_whole_spans(self) -> bool:
        """Whether it names records by their place alone, without a look at each of them."""
        return (self.until_ms, self.key, self.where, self.error) == (None,) * 4 and not self.headers

    def check(self) -> None:
        """Raises FilterRefused where the expression is none."""
        assert self._filter is None or self._filter

    def accepts(self, record: Record) -> bool:
        return (
            self._is_in_time(record.timestamp_ms)
            and (self.key is None or record.key == self.key)
            and all(_text(record.header(name)) == text for name, text in self.headers.items())
            and (self.error is None or self.error in _failure(record))
            and (self._filter is None or self._filter.accepts(facts_of(record)))
        )

    def _is_in_time(self, timestamp_ms: int | None) -> bool:
        if self.since_ms is None and self.until_ms is None:
            return True
        if timestamp_ms is None:
            return False  # the record has no time
        after = self.since_ms is None or timestamp_ms >= self.since_ms
        return after and (self.until_ms is None or timestamp_ms < self.until_ms)


def as_json(selection: Selection) -> dict[str, Any]:
    return {
        "since_ms": selection.since_ms,
        "until_ms": selection.until_ms,
        "key": None if selection.key is None else selection.key.hex(),
        "headers": dict(selection.headers),
        "where": selection.where,
        "error": selection.error,
    }


def from_json(given: Mapping[str, Any]) -> Selection:
    key = given.get("key")
    return Selection(
        since_ms=given.get("since_ms"),
        until_ms=given.get("until_ms"),
        key=None if key is None else bytes.fromhex(key),
        headers=dict(given.get("headers") or {}),
        where=given.get("where"),
        error=given.get("error"),
    )


def _failure(record: Record) -> str:
    error, message = record.header(names.DEAD_ERROR), record.header(names.DEAD_MESSAGE)
    return f"{_text(error) or ''}: {_text(message) or ''}"


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "replace")
