"""Events of web tracking: their kinds, the topic of each kind, and their fields.

The events that the collector takes and writes, the generator makes, and the shipped pipelines read.
A value is one JSON object; its key is the visitor, so that a visitor's events of one kind stay in
order; its timestamp is when the collector got it, `time` is when it happened.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, datetime

TEXT, NUMBER, DATE, TIME = "STRING", "LONG", "DATE", "TIMESTAMP"


@dataclass(slots=True, frozen=True)
class Field:
    """One field; `type` is Spark's word for it, `longest` counts characters."""

    name: str
    type: str = TEXT
    needed: bool = False
    longest: int = 0


@dataclass(slots=True, frozen=True)
class Kind:
    """A kind of event and where it goes."""

    name: str
    topic: str
    fields: tuple[Field, ...]

    @property
    def ddl(self) -> str:
        """The columns of its values, as Spark's DDL."""
        return ", ".join(
            f"{one.name} {one.type}" + (" NOT NULL" if one.needed else "") for one in self.fields
        )


COMMON = (
    Field("id", needed=True, longest=64),  # given by the collector if the event has none
    Field("visitor", needed=True, longest=64),
    Field("time", TIME, needed=True),
    Field("page", needed=True, longest=2048),
    Field("since", DATE),  # the day this visitor came first, as the browser remembers it
)

PAGE_VIEW = Kind(
    "page-view",
    "page-views",
    (*COMMON, Field("title", longest=512), Field("referrer", longest=2048)),
)
SEARCH = Kind(
    "search",
    "searches",
    (*COMMON, Field("query", needed=True, longest=512), Field("results", NUMBER)),
)
CLICK = Kind("click", "clicks", (*COMMON, Field("target", needed=True, longest=512)))

KINDS = {kind.name: kind for kind in (PAGE_VIEW, SEARCH, CLICK)}


def time_text(milliseconds: int) -> str:
    """Returns the time of an event as it is written: 2026-01-31T12:00:00.000Z."""
    return _second(milliseconds // 1000) + _THOUSANDTHS[milliseconds % 1000]


_THOUSANDTHS = tuple(f".{one:03d}Z" for one in range(1000))


@functools.lru_cache(1024)  # events of one moment come together
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
