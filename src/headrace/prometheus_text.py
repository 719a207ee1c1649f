"""The text format of Prometheus: metrics with their samples as lines of text (format 0.0.4). Pure.

Every program of ours writes its metrics in this form. A module of metrics counts in plain fields
and has a function `..._families`, which yields a `Family` for each metric at each scrape; the page
that shows them calls `render`. A node must start without further packages, so the format is written
here; tests read it with the parser of the package `prometheus_client`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Sample = tuple[Mapping[str, Any], float]
# Labels; how many values were in each bucket, and beyond the last; the sum of all values.
HistogramSample = tuple[Mapping[str, Any], Sequence[int], float]


class Family:
    """One metric with its samples."""

    def __init__(self, name: str, kind: str, explanation: str, samples: Iterable[Sample]) -> None:
        self.name = name
        self.kind = kind
        self.explanation = explanation
        self.samples = samples

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.explanation}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.samples:
            yield f"{self.name}{_labels(labels)} {_number(value)}"


class Histogram(Family):
    """Writes three kinds of lines. The given counts are of each bucket alone; their sums are
    written."""

    def __init__(
        self,
        name: str,
        explanation: str,
        bounds: Sequence[float],
        counted: Iterable[HistogramSample],
    ) -> None:
        super().__init__(name, "histogram", explanation, [])
        self.bounds = [*map(_number, bounds), "+Inf"]
        self.counted = counted

    def lines(self) -> Iterator[str]:
        yield from super().lines()
        for labels, counts, total in self.counted:
            so_far = 0
            for bound, count in zip(self.bounds, counts, strict=True):
                so_far += count
                yield f"{self.name}_bucket{_labels({**labels, 'le': bound})} {so_far}"
            yield f"{self.name}_sum{_labels(labels)} {_number(total)}"
            yield f"{self.name}_count{_labels(labels)} {so_far}"


def render(families: Iterable[Family]) -> str:
    return "\n".join(line for family in families for line in family.lines()) + "\n"


def _labels(labels: Mapping[str, Any]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escape(str(value))}"' for key, value in labels.items()) + "}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{value:+.0f}".replace("inf", "Inf")
    return str(int(value)) if value == int(value) else repr(value)
