"""Questions about records: a page of them, or one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

from headrace.client.errors import ClientError
from headrace.client.lookup.record_pages import Bounds, Browser, Page, Seen
from headrace.console.access.held_connection import HeldClientSettings

PATIENCE_S = 3.0  # with a broker that does not answer
NEWEST, OLDEST, AT_OFFSET, AT_TIME = "newest", "oldest", "offset", "time"


@dataclass(slots=True)
class Asked:
    """Which records a page is to show."""

    start: str = NEWEST
    offset: int = 0
    time_ms: int = 0
    until_ms: int | None = None  # only records before this time
    partition: int | None = None
    at: dict[int, int] | None = None  # where an earlier page ended
    want: int = 50
    accepts: Callable[[Seen], bool] = field(default=lambda seen: True)
    bounds: Bounds = field(default_factory=Bounds)


@dataclass(slots=True)
class Answered:
    page: Page
    partitions: int
    spans: dict[int, tuple[int, int]]  # first and end offset of each partition that was asked for


def read_page(connection: HeldClientSettings, topic: str, asked: Asked) -> Answered:
    with closing(Browser(connection.hasty(PATIENCE_S), topic)) as browser:
        chosen = browser.partitions if asked.partition is None else [asked.partition]
        if asked.partition is not None and asked.partition not in browser.partitions:
            count = len(browser.partitions)
            raise ClientError(
                f"Topic {topic} has no partition {asked.partition}; it has {count}, from 0."
            )
        firsts, ends = browser.beginnings(chosen), browser.ends(chosen)
        spans = {p: (firsts[p], ends[p]) for p in chosen if p in firsts and p in ends}
        known = asked.at if asked.at is None else {p: o for p, o in asked.at.items() if p in spans}
        # The offsets of the end time; timestamps need not be in order, so each record is checked
        # too.
        stops = ends if asked.until_ms is None else browser.at_time(chosen, asked.until_ms)
        accepts = _before(asked.until_ms, asked.accepts)
        if asked.start == NEWEST:
            page = browser.backwards(
                stops if known is None else known,
                want=asked.want,
                accepts=accepts,
                bounds=asked.bounds,
            )
        else:
            page = browser.onwards(
                _starts(browser, asked, chosen, firsts) if known is None else known,
                want=asked.want,
                accepts=accepts,
                bounds=asked.bounds,
            )
            if asked.until_ms is not None:
                page.at_the_end = all(page.next[p] >= stops.get(p, 0) for p in page.next)
        for partition in chosen:
            if partition not in spans:
                page.unread.setdefault(partition, "no broker that leads it answers")
        return Answered(page, len(browser.partitions), spans)


def _before(until_ms: int | None, accepts: Callable[[Seen], bool]) -> Callable[[Seen], bool]:
    if until_ms is None:
        return accepts
    return lambda seen: (seen.record.timestamp_ms or 0) < until_ms and accepts(seen)


def _starts(
    browser: Browser, asked: Asked, chosen: list[int], firsts: dict[int, int]
) -> dict[int, int]:
    if asked.start == AT_TIME:
        return browser.at_time(chosen, asked.time_ms)
    if asked.start == AT_OFFSET:
        return dict.fromkeys(firsts, asked.offset)
    return firsts


def read_one(
    connection: HeldClientSettings, topic: str, partition: int, offset: int
) -> Seen | None:
    """Returns the record at an offset; None if there is none (compaction, retention, the end)."""
    with closing(Browser(connection.hasty(PATIENCE_S), topic)) as browser:
        return browser.at(partition, offset)
