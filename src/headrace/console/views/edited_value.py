"""The value of a dead letter as its editor holds it, and what was changed. Pure.

A form ends lines with CR LF whatever the value had, so line ends alone are not a change: then the
letter keeps its own bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import unified_diff

# More lines are not compared: that would take seconds.
MOST_COMPARED = 5_000
AROUND = 3  # lines that stay the same, shown before and after a change

KEPT, REMOVED, ADDED = " ", "-", "+"


@dataclass(slots=True)
class EditedValue:
    text: str  # to be sent
    diff: list[tuple[str, str]]  # KEPT, REMOVED or ADDED, and a line
    is_whole: bool  # whether `diff` has all lines


def edited_value(original: bytes | None, said: str) -> EditedValue | None:
    """None: the editor holds what the letter has, or the letter's value is not text."""
    try:
        before = _lines_ended_by_lf((original or b"").decode())
    except UnicodeDecodeError:
        return None
    text = _lines_ended_by_lf(said)
    if text == before:
        return None
    old, new = before.split("\n"), text.split("\n")
    compared = unified_diff(old[:MOST_COMPARED], new[:MOST_COMPARED], lineterm="", n=AROUND)
    diff = [(line[:1], line[1:]) for line in compared if not line.startswith(("---", "+++", "@@"))]
    return EditedValue(text, diff, max(len(old), len(new)) <= MOST_COMPARED)


def _lines_ended_by_lf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
