"""Where Headrace is allowed to answer otherwise than Apache Kafka, and why.

Each entry names lines of the script and fields of their answers. Anything else that differs fails
the comparison, and an entry that no longer occurs fails it too. `docs/not-supported.md` has this
list between two marks; `python -m tests.conformance.differences` prints it anew.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "not-supported.md"
BEGIN = "<!-- what conformance allows: written by tests/conformance/differences.py -->"
END = "<!-- end of what conformance allows -->"
ANYTHING = re.compile(r"")


@dataclass(slots=True, frozen=True)
class Difference:
    """One kind of allowed difference."""

    title: str
    apache: str  # what Apache Kafka does, in words
    headrace: str  # what we do, in words
    reason: str
    lines: re.Pattern[str]  # of "story: line"
    field: re.Pattern[str] = ANYTHING
    their_value: re.Pattern[str] = ANYTHING
    our_value: re.Pattern[str] = ANYTHING

    def covers(self, line: str, field: str, apache: Any, ours: Any) -> bool:
        return bool(
            self.lines.search(line)
            and self.field.search(field)
            and self.their_value.search(repr(apache))
            and self.our_value.search(repr(ours))
        )


DIFFERENCES: tuple[Difference, ...] = ()


def covering(line: str, field: str, apache: Any, ours: Any) -> Difference | None:
    return next((d for d in DIFFERENCES if d.covers(line, field, apache, ours)), None)


def rendered() -> str:
    """The list as a table for people."""
    rows = [
        "| what | Apache Kafka 4.3 | Headrace | why |",
        "|---|---|---|---|",
        *(f"| {d.title} | {d.apache} | {d.headrace} | {d.reason} |" for d in DIFFERENCES),
    ]
    return "\n".join([BEGIN, *rows, END])


if __name__ == "__main__":
    sys.stdout.write(rendered() + "\n")
