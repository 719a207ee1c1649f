"""Parses the answer of a Prometheus endpoint (text format 0.0.4) into numbers by series. Pure,
bounded."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from headrace.wire.contract.metrics import series

MOST_SERIES = 5_000
LONGEST_NAME = 1_000
# A name, a number and a time; a longer line is left out before anything is looked for in it.
LONGEST_LINE = 2 * LONGEST_NAME
LINE = re.compile(r"([A-Za-z_:][\w:]*)\s*(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*")
LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPES = {"n": "\n"}


@dataclass(slots=True)
class Scraped:
    """`left_out` are lines that are no numbers, or too many."""

    numbers: dict[str, float] = field(default_factory=dict)
    left_out: int = 0


def scraped(text: str, endpoint: str) -> Scraped:
    """Each series gets the label `endpoint`; one that it has becomes `exported_endpoint`."""
    found = Scraped()
    for line in text.split("\n"):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        read = _read(line, endpoint)
        if read is None or len(found.numbers) >= MOST_SERIES:
            found.left_out += 1
        else:
            found.numbers[read[0]] = read[1]
    return found


def _read(line: str, endpoint: str) -> tuple[str, float] | None:
    whole = LINE.fullmatch(line) if len(line) <= LONGEST_LINE else None
    if whole is None:
        return None
    labels = _labels(whole[2] or "")
    try:
        value = float(whole[3])
    except ValueError:
        return None
    if labels is None or not math.isfinite(value):
        return None
    name = series(whole[1], _with_endpoint(labels, endpoint))
    return None if len(name) > LONGEST_NAME else (name, value)


def _with_endpoint(labels: dict[str, str], endpoint: str) -> dict[str, str]:
    """As Prometheus does it: without another name, two series would become one."""
    if "endpoint" in labels:
        name = "exported_endpoint"
        while name in labels:
            name = f"exported_{name}"
        labels[name] = labels.pop("endpoint")
    return {**labels, "endpoint": endpoint}


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
