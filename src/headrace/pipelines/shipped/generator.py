"""Visitors of a made-up shop: page views, searches and clicks, the same for the same seed.

Each visitor comes on a first day and perhaps on later ones, walks from page to page, sometimes into
the funnel from a product to the thanks. Events arrive within 1.5 seconds, a share of them hours
late. Everything follows from the seed and the number of the visitor; no clock is read.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any

from headrace.wire.contract.tracking import CLICK, KINDS, PAGE_VIEW, SEARCH, time_text

DAY_MS = 86_400_000
LATE_FROM_MS, LATE_TO_MS = 20 * 60_000, 180 * 60_000
# Held in memory at once: all events of all visitors.
MOST_VISITORS = 100_000

PRODUCTS = tuple(f"/products/{name}" for name in ("lamp", "chair", "desk", "shelf", "rug", "clock"))
ENTRIES = ("/", "/", "/", "/blog/light", "/blog/wood", *PRODUCTS[:2])
QUERIES = ("desk", "lamp", "red chair", "shelf 80 cm", "rug", "gift")
REFERRERS = ("https://search.example/", "https://news.example/", None, None)
# The way to a purchase: the next page, how many in a hundred go on, and what they click for it.
FUNNEL = (("/cart", 45, "add-to-cart"), ("/checkout", 60, "checkout"), ("/thanks", 75, "buy"))


@dataclass(slots=True)
class Made:
    """One event: when it happened, when it arrives, and its fields without `time`."""

    kind: str
    at_ms: int
    arrives_ms: int
    fields: dict[str, Any]

    @property
    def topic(self) -> str:
        return KINDS[self.kind].topic

    @property
    def key(self) -> bytes:
        return str(self.fields["visitor"]).encode()

    def value(self) -> bytes:
        """Returns the value as the collector would have written it."""
        whole = {"id": self.fields["id"], "time": time_text(self.at_ms), **self.fields}
        return json.dumps(whole, separators=(",", ":")).encode()

    def posted(self) -> dict[str, Any]:
        """Returns the event as a browser sends it, at the moment it arrives."""
        return {"kind": self.kind, "age_ms": self.arrives_ms - self.at_ms, **self.fields}


@dataclass(slots=True)
class Visitor:
    """One visitor's days, made when they are asked for."""

    number: int
    chance: Random
    late_percent: float
    since: date
    made: list[Made] = field(default_factory=list)

    def add(self, kind: str, at_ms: int, page: str, **more: Any) -> None:
        serial = f"{self.number:06d}-{len(self.made):04d}"
        fields = {
            "id": f"e{serial}",
            "visitor": f"v{self.number:06d}",
            "page": page,
            "since": self.since.isoformat(),
            **{name: value for name, value in more.items() if value is not None},
        }
        delay = self.chance.randrange(50, 1500)
        if self.chance.random() * 100 < self.late_percent:
            delay += self.chance.randrange(LATE_FROM_MS, LATE_TO_MS)
        self.made.append(Made(kind, at_ms, at_ms + delay, fields))

    def come(self, at_ms: int) -> None:
        """Makes one session."""
        chance = self.chance
        page = chance.choice(ENTRIES)
        self.add(PAGE_VIEW.name, at_ms, page, referrer=chance.choice(REFERRERS))
        if chance.random() < 0.3:
            at_ms += chance.randrange(2_000, 30_000)
            results = chance.choice((0, 3, 12))
            self.add(SEARCH.name, at_ms, page, query=chance.choice(QUERIES), results=results)
        for _ in range(chance.choice((0, 1, 1, 2, 4))):
            at_ms += chance.randrange(3_000, 90_000)
            page = chance.choice(PRODUCTS)
            self.add(PAGE_VIEW.name, at_ms, page)
        if page in PRODUCTS:
            self._buy(at_ms, page)

    def _buy(self, at_ms: int, page: str) -> None:
        for following, percent, target in FUNNEL:
            if self.chance.random() * 100 >= percent:
                return
            at_ms += self.chance.randrange(3_000, 60_000)
            self.add(CLICK.name, at_ms, page, target=target)
            page = following
            self.add(PAGE_VIEW.name, at_ms + 500, page)


def generate(
    *, visitors: int, seed: int, begin_ms: int, days: int = 3, late_percent: float = 2.0
) -> Iterator[Made]:
    """All events in the order in which they arrive; `begin_ms` is the start of the first day."""
    lists = (_of_visitor(number, seed, begin_ms, days, late_percent) for number in range(visitors))
    return heapq.merge(*lists, key=lambda one: (one.arrives_ms, one.fields["id"]))


def _of_visitor(
    number: int, seed: int, begin_ms: int, days: int, late_percent: float
) -> list[Made]:
    chance = Random(f"{seed}/{number}")
    first = chance.randrange(days)
    since = datetime.fromtimestamp(begin_ms / 1000, UTC).date() + timedelta(days=first)
    visitor = Visitor(number, chance, late_percent, since)
    for day in range(first, days):
        if day == first or chance.random() < 0.5:
            for _ in range(chance.choice((1, 1, 2))):
                visitor.come(begin_ms + day * DAY_MS + chance.randrange(DAY_MS - 3_600_000))
    visitor.made.sort(key=lambda one: (one.arrives_ms, one.fields["id"]))
    return visitor.made


def moved(made: Made, arrives_ms: int) -> Made:
    """The same event as if it arrived at another moment."""
    by_ms = arrives_ms - made.arrives_ms
    fields = dict(made.fields)
    days = _day(made.at_ms + by_ms) - _day(made.at_ms)
    fields["since"] = (date.fromisoformat(fields["since"]) + days).isoformat()
    return Made(made.kind, made.at_ms + by_ms, arrives_ms, fields)


def _day(at_ms: int) -> date:
    return datetime.fromtimestamp(at_ms / 1000, UTC).date()
