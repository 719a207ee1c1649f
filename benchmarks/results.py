"""Rows, their goals, and how they are told: a table, Markdown, JSON.

A row keeps every sample of each system; what is shown is the median, the smallest and the largest
one, and the ratio of the medians against the goal: Headrace / the best of its rivals, which is
Apache Kafka where a benchmark names no others. A goal that is missed is shown as missed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

APACHE, HEADRACE = "apache", "headrace"
ROCKETMQ, NATS, APACHE_SERVICE = "rocketmq", "nats", "service-on-apache"
PLAIN_LOOP, FASTSTREAM = "plain-loop", "faststream"
TITLES = {
    APACHE: "Apache Kafka 4.3.1",
    HEADRACE: "Headrace",
    ROCKETMQ: "RocketMQ 5.4.0",
    NATS: "NATS 2.15.2",
    APACHE_SERVICE: "our service on Apache Kafka 4.3.1",
    PLAIN_LOOP: "a plain confluent-kafka loop",
    FASTSTREAM: "FastStream",
}
Samples = dict[str, list[float]]  # by the row's key

MARKDOWN_BEGIN, MARKDOWN_END = "<!-- results begin -->", "<!-- results end -->"


class Better(Enum):
    LESS = "<="
    MORE = ">="


@dataclass(slots=True)
class Goal:
    """A bound on Headrace / rival, on Headrace alone, or on both; `None` bounds nothing."""

    better: Better
    ratio: float | None = None
    absolute: float | None = None

    def _holds(self, value: float, bound: float) -> bool:
        return value <= bound if self.better is Better.LESS else value >= bound

    def is_met(self, headrace: float, ratio: float | None) -> bool | None:
        """None when there is nothing to compare with."""
        if self.absolute is not None and not self._holds(headrace, self.absolute):
            return False
        if self.ratio is None:
            return True
        return None if ratio is None else self._holds(ratio, self.ratio)

    def text(self, unit: str) -> str:
        parts = []
        if self.ratio is not None:
            parts.append(f"{self.better.value} {self.ratio:g}x")
        if self.absolute is not None:
            parts.append(f"{self.better.value} {self.absolute:g} {unit}")
        return ", ".join(parts)


@dataclass(slots=True)
class Row:
    key: str
    title: str
    unit: str
    goal: Goal | None = None
    samples: Samples = field(default_factory=dict)  # by system
    better: Better = Better.LESS  # which rival is the best; a goal says so itself
    systems: tuple[str, ...] = (APACHE, HEADRACE)  # the columns
    rivals: tuple[str, ...] = (APACHE,)  # whom the ratio compares with

    def median(self, broker: str) -> float | None:
        values = self.samples.get(broker)
        return median(values) if values else None

    def ratio(self) -> float | None:
        ours = self.median(HEADRACE)
        medians = [value for rival in self.rivals if (value := self.median(rival))]
        if ours is None or not medians:
            return None
        better = self.goal.better if self.goal else self.better
        return ours / (min(medians) if better is Better.LESS else max(medians))

    def verdict(self) -> bool | None:
        ours = self.median(HEADRACE)
        return None if self.goal is None or ours is None else self.goal.is_met(ours, self.ratio())

    def cell(self, broker: str) -> str:
        values = self.samples.get(broker)
        if not values:
            return "-"
        text = number(median(values))
        return (
            text if len(values) == 1 else f"{text} ({number(min(values))} .. {number(max(values))})"
        )

    def cells(self) -> tuple[str, ...]:
        ratio = self.ratio()
        return (
            f"{self.title}, {self.unit}",
            *(self.cell(system) for system in self.systems),
            "-" if ratio is None else f"{ratio:.2f}x" if ratio >= 0.1 else f"{ratio:.3f}x",
            self.goal.text(self.unit) if self.goal else "",
            {True: "met", False: "missed", None: ""}[self.verdict()],
        )


def number(value: float) -> str:
    """Three significant digits, thousands separated."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return (
        f"{value:.1f}"
        if abs(value) >= 10
        else f"{value:.2f}"
        if abs(value) >= 1
        else f"{value:.3f}"
    )


def headings(rows: list[Row]) -> tuple[str, ...]:
    return ("row", *(TITLES[name] for name in rows[0].systems), "ratio", "goal", "verdict")


def rich_table(title: str, rows: list[Row]) -> Table:
    table = Table(title=title, title_justify="left")
    columns = headings(rows)
    for index, heading in enumerate(columns):
        is_number = 0 < index < len(columns) - 2
        table.add_column(heading, justify="right" if is_number else "left")
    for row in rows:
        style = {True: "green", False: "red", None: ""}[row.verdict()]
        table.add_row(*row.cells(), style=style)
    return table


@dataclass(slots=True)
class Report:
    """All of one run: what was measured, on what, when, how."""

    machine: dict[str, str]
    date: str
    settings: dict[str, str]
    sections: dict[str, list[Row]] = field(default_factory=dict)  # by the benchmark's title
    details: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        facts = "; ".join(f"{name} {value}" for name, value in self.machine.items())
        how = "; ".join(f"{name} {value}" for name, value in self.settings.items())
        lines = [f"Measured {self.date} on: {facts}. Settings: {how}.", ""]
        for title, rows in self.sections.items():
            lines += [
                f"### {title}",
                "",
                "| " + " | ".join(headings(rows)) + " |",
                "|---|" + "--:|" * (len(rows[0].systems) + 1) + "---|---|",
            ]
            lines += ["| " + " | ".join(row.cells()) + " |" for row in rows]
            lines.append("")
        if self.warnings:
            lines += ["The machine was not quiet:", ""]
            lines += [f"- {warning}" for warning in self.warnings]
        return "\n".join(lines).rstrip() + "\n"

    def write_markdown(self, path: Path) -> None:
        """Replace what stands between the two marks of the file, or write a new file."""
        text = f"{MARKDOWN_BEGIN}\n{self.markdown()}{MARKDOWN_END}"
        if path.exists() and MARKDOWN_BEGIN in (old := path.read_text()):
            before, rest = old.split(MARKDOWN_BEGIN, 1)
            text = before + text + rest.split(MARKDOWN_END, 1)[1]
        path.write_text(text)

    def write_json(self, path: Path) -> None:
        document: dict[str, Any] = {
            "date": self.date,
            "machine": self.machine,
            "settings": self.settings,
            "details": self.details,
            "warnings": self.warnings,
            "rows": [
                {
                    "benchmark": title,
                    "key": row.key,
                    "title": row.title,
                    "unit": row.unit,
                    "samples": row.samples,
                    "ratio": row.ratio(),
                    "goal": row.goal.text(row.unit) if row.goal else None,
                    "met": row.verdict(),
                }
                for title, rows in self.sections.items()
                for row in rows
            ],
        }
        path.write_text(json.dumps(document, indent=2) + "\n")
