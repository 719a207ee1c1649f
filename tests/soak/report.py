"""The dated results of the long runs, kept in `docs/reliability-runs.md`."""

from __future__ import annotations

import datetime
import platform
from pathlib import Path

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "reliability-runs.md"
HEAD = """# Runs: what the long tests saw

`make soak` adds a row for each run that passes; a run that fails is added by hand.

| date | machine | run | result |
|---|---|---|---|
"""


def write_row(run: str, result: str) -> None:
    """Add one row behind the last of the first table; what stands below that stays there."""
    text = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.exists() else HEAD
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    lines = with_row(text, f"| {today} | {machine} | {run} | {result} |")
    DOCUMENT.write_text("\n".join(lines) + "\n", encoding="utf-8")


def with_row(text: str, row: str) -> list[str]:
    """The lines of the document with one more row in the table of runs, not in a later table."""
    lines = text.rstrip("\n").split("\n")
    after = lines.index("| date | machine | run | result |")
    while after < len(lines) and lines[after].startswith("|"):
        after += 1
    lines.insert(after, row)
    return lines
