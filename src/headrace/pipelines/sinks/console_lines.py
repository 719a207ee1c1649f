"""The common part of writers: the name of a batch, its report, and rows as lines of a console."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace.pipelines.declaration import Console

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Say = Callable[[str], None]
# A stream's id and a batch's number: the same again writes nothing.
Once = tuple[str, int]


def show(rows: DataFrame, console: Console, say: Say) -> None:
    """The first rows as text, one line each, below the names of the columns."""
    found = rows.limit(console.rows + 1).collect()
    for line in lines(rows.columns, [list(row) for row in found], most=console.rows):
        say(line)


def lines(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, most: int) -> list[str]:
    """Padded columns; says if there are more rows than shown. Knows no Spark."""
    if not rows:
        return []
    texts = [list(columns), *([str(cell) for cell in row] for row in rows[:most])]
    widths = [max(len(row[i]) for row in texts) for i in range(len(columns))]
    shown = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in texts]
    return [*shown, "..."] if len(rows) > most else shown
