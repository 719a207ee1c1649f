"""The dated results of the long runs, kept in `docs/reliability.md`."""

from __future__ import annotations

import datetime
import platform
from pathlib import Path

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "reliability.md"
HEAD = """# What the long runs saw

`make soak` adds a row for each run that passes; a run that fails is added by hand.

| date | machine | run | result |
|---|---|---|---|
"""


def write_row(run: str, result: str) -> None:
    """Add one row behind the last; what stands below the table stays there."""
    text = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.exists() else HEAD
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    lines = text.rstrip("\n").split("\n")
    last = max(number for number, line in enumerate(lines) if line.startswith("|"))
    lines.insert(last + 1, f"| {today} | {machine} | {run} | {result} |")
    DOCUMENT.write_text("\n".join(lines) + "\n", encoding="utf-8")
