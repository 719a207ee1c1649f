"""How commands speak: tables and JSON on standard output, plain text without a terminal.

On a terminal tables are drawn by rich; elsewhere columns are padded with spaces, one row per line,
so that grep, awk and people read them alike.

All output of a command goes through here, and here text of others is escaped (`foreign_text.py`): a
command cannot forget it, and a test finds one that writes past this module.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import typer

from headrace.cli.suggestions import Commands
from headrace.foreign_text import escaped, escaped_json, indented
from headrace.quantities import count as count
from headrace.quantities import size as size

# For every typer.Typer. Rich draws the help pages of a terminal; elsewhere plain text is quicker
# and easier to search.
LOOK: dict[str, Any] = {
    "rich_markup_mode": "rich" if sys.stdout.isatty() else None,
    "pretty_exceptions_enable": False,
    "cls": Commands,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}

Cell = str | int | None
GAP = "  "
DIM, PLAIN = "\x1b[2m", "\x1b[0m"


def say(text: str, *, mark: str = "", colour: str | None = None) -> None:
    """One line of the answer. `mark` is written before it, in a colour on a terminal."""
    typer.echo((typer.style(mark, fg=colour) if mark else "") + escaped(text))


def say_lines(text: str) -> None:
    """A text of several lines, such as a stack."""
    typer.echo(indented(text))


def note(text: str) -> None:
    """One line for the person, not for the next program: standard error."""
    typer.echo(escaped(text), err=True)


def note_after_interrupt(text: str) -> None:
    """As `note`, on a line of its own: a terminal prints ^C where the cursor is."""
    typer.echo(("\n" if sys.stderr.isatty() else "") + escaped(text), err=True)


def passing(text: str) -> None:
    """A line on a terminal's standard error that the next one replaces; "" takes it away."""
    sys.stderr.write(f"\r\x1b[K{escaped(text)}")
    sys.stderr.flush()


def write_line(text: str, *, dim: str = "") -> None:
    """As `say`, for a great many lines: it is not flushed each time. `dim` is written before it,
    and steps back on a terminal. Tabs stay."""
    if dim:
        dim = escaped(dim)
        dim = f"{DIM}{dim}{PLAIN}" if sys.stdout.isatty() else dim
    sys.stdout.write(dim + escaped(text, keep="\t") + "\n")


def raw_writer() -> Callable[[bytes], object]:
    """Writes what others wrote: byte for byte into a pipe or file, escaped on a terminal."""
    out = sys.stdout
    if not out.isatty():
        return out.buffer.write
    return lambda raw: out.write(escaped(raw.decode(errors="backslashreplace"), keep="\t\n"))


def write_own(raw: bytes) -> None:
    """Text of the user at the terminal: it may contain markup."""
    sys.stdout.flush()
    sys.stdout.buffer.write(raw)
    sys.stdout.buffer.flush()


def confirmed(question: str) -> bool:
    return typer.confirm(escaped(question))


def ask_password(question: str) -> str:
    """Asked twice, and not shown."""
    answer: str = typer.prompt(
        escaped(question), hide_input=True, confirmation_prompt=True, err=True
    )
    return answer


def answer_json(value: Any) -> None:
    """One JSON document; dataclasses become objects."""
    typer.echo(escaped_json(json.dumps(value, indent=2, ensure_ascii=False, default=_plain)))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


# One encoder for all lines: json.dumps with options builds a new one for each call.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain).encode


def json_line(value: Any) -> str:
    return escaped_json(_encode(value))


def write_json_line(value: Any) -> None:
    sys.stdout.write(json_line(value) + "\n")


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Numbers go right, words go left; the heading says what they are."""
    headings = [escaped(column) for column in columns]
    texts = [["-" if cell is None else escaped(str(cell)) for cell in row] for row in rows]
    numeric = [
        any(isinstance(row[i], int) for row in rows)
        and all(isinstance(row[i], int) or row[i] is None for row in rows)
        for i in range(len(columns))
    ]
    if sys.stdout.isatty():
        _draw(headings, texts, numeric)
    else:
        for line in padded(headings, texts, numeric):
            typer.echo(line)


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
        # A Text is not searched for markup; a plain str would be.
        drawn.add_column(Text(heading), justify="right" if right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console().print(drawn)
