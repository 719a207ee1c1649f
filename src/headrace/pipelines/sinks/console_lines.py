"""The common part of writers: the name of a batch, its report, and rows as lines of a console."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.pipelines.declaration import Console
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.sinks.latest import Latest
from headrace.pipelines.sinks.table_memory import TableMemory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Say = Callable[[str], None]
# A stream's id and a batch's number: the same again writes nothing.
Once = tuple[str, int]


@dataclass(slots=True)
class ConsoleWriter:
    """Shows each batch by `say`, a batch that is repeated too."""

    console: Console
    say: Say

    @property
    def location(self) -> str:
        return self.console.name

    def named(self, name: str) -> Console:
        raise PipelineError("--into names a table: this pipeline writes to the console.")

    def would_repeat(self, spark: SparkSession) -> bool:
        return False

    def memory(self, spark: SparkSession) -> TableMemory | None:
        return None

    def version(self, known: int) -> int:
        return -1

    def has_rows(self, spark: SparkSession) -> bool:
        return False

    def write(self, rows: DataFrame, once: Once | None, latest: Latest | None = None) -> None:
        show(rows, self.console, self.say)


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
