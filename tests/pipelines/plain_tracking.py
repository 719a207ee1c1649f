"""The numbers of the shipped pipelines once more, in plain Python over the same events.

Nothing of the pipelines is used here, not even their constants: what they promise is written down a
second time. Events are the JSON objects of the topics; times are milliseconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
GAP_MS = 30 * MINUTE_MS

Event = dict[str, Any]


def at_ms(event: Event) -> int:
    return round(datetime.fromisoformat(event["time"]).timestamp() * 1000)


def day_of(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).date().isoformat()


def statistics(views: Iterable[Event], width_ms: int) -> dict[int, tuple[int, int, int, int]]:
    """By the window's start: views, visitors, new ones, pages."""
    windows: dict[int, list[Event]] = defaultdict(list)
    for view in views:
        windows[at_ms(view) // width_ms * width_ms].append(view)
    return {
        start: (
            len(group),
            len({one["visitor"] for one in group}),
            len({one["visitor"] for one in group if one.get("since") == day_of(at_ms(one))}),
            len({one["page"] for one in group}),
        )
        for start, group in windows.items()
    }


def retention(views: Iterable[Event]) -> dict[tuple[str, str], int]:
    came: dict[tuple[str, str], set[str]] = defaultdict(set)
    for view in views:
        came[view["since"], day_of(at_ms(view))].add(view["visitor"])
    return {cohort: len(visitors) for cohort, visitors in came.items()}


def searches(events: Iterable[Event]) -> dict[tuple[int, str], tuple[int, int]]:
    total: Counter[tuple[int, str]] = Counter()
    in_vain: Counter[tuple[int, str]] = Counter()
    for event in events:
        key = at_ms(event) // HOUR_MS * HOUR_MS, event["query"].strip().lower()
        total[key] += 1
        in_vain[key] += event.get("results") == 0
    return {key: (total[key], in_vain[key]) for key in total}


def clicks(events: Iterable[Event]) -> Counter[tuple[int, str, str]]:
    return Counter((at_ms(one) // HOUR_MS * HOUR_MS, one["page"], one["target"]) for one in events)


def top_pages(views: Iterable[Event]) -> list[tuple[int, int, str, int]]:
    minutes: dict[int, Counter[str]] = defaultdict(Counter)
    for view in views:
        minutes[at_ms(view) // MINUTE_MS * MINUTE_MS][view["page"]] += 1
    found = []
    for minute, pages in minutes.items():
        best = sorted(pages.items(), key=lambda one: (-one[1], one[0]))[:10]
        found += [(minute, rank, page, count) for rank, (page, count) in enumerate(best, start=1)]
    return sorted(found)


def visits(views: Iterable[Event]) -> list[list[Event]]:
    """Views of one visitor that follow each other within the gap."""
    by_visitor: dict[str, list[Event]] = defaultdict(list)
    for view in sorted(views, key=lambda one: (at_ms(one), one["id"])):
        by_visitor[view["visitor"]].append(view)
    found = []
    for own in by_visitor.values():
        last_ms = None
        for view in own:
            if last_ms is None or at_ms(view) >= last_ms + GAP_MS:
                found.append([])
            found[-1].append(view)
            last_ms = at_ms(view)
    return found


def steps(visit: list[Event]) -> int:
    """How far down the funnel: a product, the cart, the checkout, the thanks, in this order."""
    wanted = ["/products/", "/cart", "/checkout", "/thanks"]
    reached = 0
    for view in visit:
        if reached == len(wanted):
            break
        page, next_one = view["page"], wanted[reached]
        if page == next_one or (next_one.endswith("/") and page.startswith(next_one)):
            reached += 1
    return reached


def sessions(views: Iterable[Event]) -> list[tuple[str, int, int, int, str, str, int]]:
    return sorted(
        (
            visit[0]["visitor"],
            at_ms(visit[0]),
            at_ms(visit[-1]),
            len(visit),
            visit[0]["page"],
            visit[-1]["page"],
            steps(visit),
        )
        for visit in visits(views)
    )


def funnel(views: Iterable[Event]) -> list[tuple[int, int, str, int]]:
    """A visit is over when its gap is; it counts in the hour of that moment's last microsecond."""
    names = ["visit", "product", "cart", "checkout", "thanks"]
    counts: Counter[tuple[int, int]] = Counter()
    for visit in visits(views):
        over_us = (at_ms(visit[-1]) + GAP_MS) * 1000 - 1
        hour = over_us // (HOUR_MS * 1000) * HOUR_MS
        counts.update((hour, step) for step in range(steps(visit) + 1))
    return sorted((hour, step, names[step], count) for (hour, step), count in counts.items())
