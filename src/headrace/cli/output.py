"""How commands speak: tables and JSON on standard output, plain text when nobody watches.

On a terminal tables are drawn by rich; elsewhere columns are padded with spaces, one row per line,
so that grep, awk and people read them alike.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import typer

# For every typer.Typer. Rich draws the help pages of a terminal; elsewhere plain text is quicker
# and easier to search.
LOOK: dict[str, Any] = {
    "rich_markup_mode": "rich" if sys.stdout.isatty() else None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}

Cell = str | int | None
GAP = "  "


def say(text: str) -> None:
    typer.echo(text)


def note(text: str) -> None:
    """For the person, not for the next program: standard error."""
    typer.echo(text, err=True)


def answer_json(value: Any) -> None:
    """One JSON document; dataclasses become objects."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


# One encoder for all lines: json.dumps with options builds a new one for each call.
json_line = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain).encode


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Numbers go right, words go left; the heading says what they are."""
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    numeric = [
        any(isinstance(row[i], int) for row in rows)
        and all(isinstance(row[i], int) or row[i] is None for row in rows)
        for i in range(len(columns))
    ]
    if sys.stdout.isatty():
        _draw(columns, texts, numeric)
    else:
        for line in padded(columns, texts, numeric):
            say(line)


def padded(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]
) -> list[str]:
    """The table as lines of plain text."""
    widths = [
        max(len(heading), *(len(row[i]) for row in rows)) if rows else len(heading)
        for i, heading in enumerate(columns)
    ]
    lines = []
    for row in [[heading.upper() for heading in columns], *rows]:
        cells = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append(GAP.join(cells).rstrip())
    return lines


def _draw(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for heading, right in zip(columns, numeric, strict=True):
        drawn.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console().print(drawn)


def count(number: int, noun: str) -> str:
    """'1 topic', '2 topics'."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def size(number_of_bytes: int) -> str:
    """A size for people: 999 B, 1.5 KiB, 20 GiB."""
    amount = float(number_of_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.3g} {unit}" if unit != "B" else f"{number_of_bytes} B"
        amount /= 1024
    return f"{amount:,.1f} TiB"
