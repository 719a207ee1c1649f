"""The lines of a file that somebody else may still be writing."""

from __future__ import annotations

from pathlib import Path


def whole_lines(path: Path) -> list[str]:
    """Those that have their end. Even one call's line is seen in parts where it crosses a page."""
    if not path.exists():
        return []
    *whole, _ = path.read_text(errors="replace").split("\n")
    return whole
