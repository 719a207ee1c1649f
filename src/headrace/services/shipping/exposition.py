"""What a Prometheus endpoint answers (text format 0.0.4), as numbers by series. Pure, bounded."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from headrace.contract.metrics import series

MOST_SERIES = 5_000
LONGEST_NAME = 1_000
LINE = re.compile(r"([A-Za-z_:][\w:]*)\s*(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*")
LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPES = {"n": "\n"}


@dataclass(slots=True)
class Scraped:
    """`left_out` are lines that are no numbers, or too many."""

    numbers: dict[str, float] = field(default_factory=dict)
    left_out: int = 0


def scraped(text: str, endpoint: str) -> Scraped:
    """Each series gets the label `endpoint`."""
    found = Scraped()
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        read = _read(line, endpoint)
        if read is None or len(found.numbers) >= MOST_SERIES:
            found.left_out += 1
        else:
            found.numbers[read[0]] = read[1]
    return found


def _read(line: str, endpoint: str) -> tuple[str, float] | None:
    whole = LINE.fullmatch(line)
    if whole is None:
        return None
    labels = _labels(whole[2] or "")
    try:
        value = float(whole[3])
    except ValueError:
        return None
    if labels is None or not math.isfinite(value):
        return None
    name = series(whole[1], {**labels, "endpoint": endpoint})
    return None if len(name) > LONGEST_NAME else (name, value)


def _labels(text: str) -> dict[str, str] | None:
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        label = LABEL.match(text, at)
        if label is None:
            return None
        found[label[1]] = re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], one[1]), label[2])
        at = label.end()
    return found
