"""The numbers of logs and host metrics once more, in plain Python over the same records.

Nothing of the pipelines is used here, not even their constants. Records are the JSON objects of the
topics; times are milliseconds.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.pipelines.plain_tracking import MINUTE_MS, at_ms, day_of

Record = dict[str, Any]
Alert = tuple[Any, ...]
SEVERE = {"ERROR": 1, "FATAL": 2}


def once(lines: Iterable[Record]) -> list[Record]:
    """Each id once."""
    return list({one["id"]: one for one in lines}.values())


def minute(record: Record) -> int:
    return at_ms(record) // MINUTE_MS * MINUTE_MS


def rates(lines: Iterable[Record]) -> list[tuple[int, str, str, int]]:
    counts: dict[tuple[int, str, str], int] = defaultdict(int)
    for one in once(lines):
        counts[minute(one), one["service"], one.get("level") or "NONE"] += 1
    return sorted((*key, count) for key, count in counts.items())


def template(message: str) -> str:
    first, last = message.split("\n")[0], message.split("\n")[-1]
    text = first if first == message else f"{first} ... {last}"
    for pattern, instead in (
        ("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "<id>"),
        ("0x[0-9a-fA-F]+", "<hex>"),
        (r"[0-9]{1,3}(\.[0-9]{1,3}){3}", "<ip>"),
        ('"[^"]*"', "<text>"),
        ("'[^']*'", "<text>"),
        ("[0-9a-fA-F]{16,}", "<hex>"),
        (r"[0-9]+(\.[0-9]+)?", "<n>"),
    ):
        text = re.sub(pattern, instead, text)
    return text[:300]


def errors(lines: Iterable[Record]) -> list[tuple[Any, ...]]:
    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for one in once(lines):
        if one.get("level") in SEVERE:
            groups[day_of(at_ms(one)), one["service"], template(one["message"])].append(one)
    found = []
    for key, own in groups.items():
        own.sort(key=lambda one: (at_ms(one), one["id"]))
        first, last = at_ms(own[0]), at_ms(own[-1])
        found.append((*key, len(own), first, last, own[0]["message"][:2000]))
    return sorted(found)


def log_alerts(lines: Iterable[Record]) -> list[Alert]:
    """Ten errors in a minute, or something fatal."""
    counts: dict[tuple[str, str, int], int] = defaultdict(int)
    for one in once(lines):
        severe = SEVERE.get(one.get("level") or "", 0)
        for rule, least in (("many-errors", 1), ("fatal", 2)):
            counts[rule, one["service"], minute(one)] += severe >= least
    need = {"many-errors": 10, "fatal": 1}
    bad: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for (rule, service, at), count in counts.items():
        if count >= need[rule]:
            bad[rule, service][at] = count
    return sorted(
        (rule, service, state, at, value)
        for (rule, service), minutes in bad.items()
        for state, at, value in runs(minutes, 1)
    )


def runs(bad: Mapping[int, float], lasts: int) -> list[tuple[str, int, float | None]]:
    """Walks from minute to minute."""
    found: list[tuple[str, int, float | None]] = []
    length = 0
    for at in range(min(bad, default=0), max(bad, default=0) + 2 * MINUTE_MS, MINUTE_MS):
        if at in bad:
            length += 1
            if length == lasts:
                found.append(("raised", at + MINUTE_MS, bad[at]))
        else:
            if length >= lasts:
                found.append(("cleared", at + MINUTE_MS, None))
            length = 0
    return found


# ---- host metrics


def roll_ups(samples: Iterable[Record], width_ms: int) -> dict[tuple[int, str, str], list[float]]:
    """By start, host and metric: samples, average, greatest, p95."""
    values: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    for one in samples:
        start = at_ms(one) // width_ms * width_ms
        for metric, value in one["metrics"].items():
            values[start, one["host"], metric].append(value)
    return {
        key: [len(own), sum(own) / len(own), max(own), percentile(own, 0.95)]
        for key, own in values.items()
    }


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
    return below + (place - math.floor(place)) * (above - below)


def metric_alerts(samples: Iterable[Record]) -> list[Alert]:
    averages: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    known = list(samples)
    for (at, host, metric), numbers in roll_ups(known, MINUTE_MS).items():
        averages[host, metric][at] = numbers[1]
    found: list[Alert] = []
    for (host, metric), minutes in averages.items():
        base = metric.partition("{")[0]
        for rule, name, least in (
            ("cpu-high", "cpu_percent", 90),
            ("memory-high", "memory_percent", 95),
            ("disk-full", "disk_used_percent", 95),
        ):
            if base == name:
                bad = {at: value for at, value in minutes.items() if value > least}
                found += _named(rule, host, metric, runs(bad, 5))
        if base == "load_1m":
            found += _named("load-changed", host, metric, runs(_changed(minutes), 1))
    for host in {one["host"] for one in known}:
        found += _silent(host, {minute(one) for one in known if one["host"] == host})
    return sorted(found, key=str)


def _named(rule: str, host: str, metric: str, told: list[Any]) -> list[Alert]:
    return [(rule, host, metric, *one) for one in told]


def _changed(minutes: Mapping[int, float]) -> dict[int, float]:
    bad = {}
    for at, value in minutes.items():
        before = [minutes[b] for n in range(1, 6) if (b := at - n * MINUTE_MS) in minutes]
        if len(before) >= 3:
            base = sum(before) / len(before)
            if abs(value - base) > 4 and abs(value - base) > 2 * abs(base):
                bad[at] = value
    return bad


def _silent(host: str, heard: set[int]) -> list[Alert]:
    found: list[Alert] = []
    for at in sorted(heard):
        if not any(at + n * MINUTE_MS in heard for n in (1, 2, 3)):
            found.append(("silent", host, "", "raised", at + 4 * MINUTE_MS, None))
        if not any(at - n * MINUTE_MS in heard for n in (1, 2, 3)):
            found.append(("silent", host, "", "cleared", at + MINUTE_MS, None))
    return found


def before(alerts: Iterable[Alert], place: Callable[[Alert], int], end_ms: int) -> list[Alert]:
    return [one for one in alerts if place(one) <= end_ms]
