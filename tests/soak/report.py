"""The dated results of the long runs, kept in `docs/reliability.md`."""

from __future__ import annotations

import datetime
import platform
from pathlib import Path

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "reliability.md"
HEAD = """# What the long runs saw

`make soak` writes a row for each of its runs.

| date | machine | run | result |
|---|---|---|---|
"""


def write_row(run: str, result: str) -> None:
    """Add one row; the newest stands last."""
    text = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.exists() else HEAD
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    row = f"| {today} | {machine} | {run} | {result} |\n"
    DOCUMENT.write_text(text.rstrip("\n") + "\n" + row, encoding="utf-8")
