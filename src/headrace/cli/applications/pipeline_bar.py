"""What is seen while Spark starts or computes: a line of a terminal that disappears afterwards;
without a terminal, lines now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from headrace.pipelines.spark.bar import Seen

LINE_EVERY_S = 60.0


class Lines:
    """Without a terminal: a line when some work begins, and one a minute while it lasts."""

    def __init__(
        self, note: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._note, self._clock = note, clock
        self._written: float | None = None

    def draw(self, seen: Seen | None) -> None:
        if seen is None:
            self._written = None
            return
        now = self._clock()
        if self._written is not None and now - self._written < LINE_EVERY_S:
            return
        self._written = now
        tasks = f": {seen.done:,} of {seen.whole:,} tasks" if seen.whole else ""
        self._note(f"{seen.what}{tasks}")


class _Tasks(ProgressColumn):
    """Shows `3 of 8 tasks`; empty while the number is unknown."""

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text("")
        return Text(f"{task.completed:,.0f} of {task.total:,.0f} tasks")


class Bar:
    """Draws on standard error; lines that are written through `above` appear above it."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._shown: Progress | None = None

    def draw(self, seen: Seen | None) -> None:
        if seen is None:
            self._remove()
            return
        if self._shown is None:
            columns = (TextColumn("{task.description}"), BarColumn(), _Tasks(), TimeElapsedColumn())
            self._shown = Progress(*columns, console=self._console, transient=True)
            self._shown.add_task(seen.what, total=None)
            self._shown.start()
        [task] = self._shown.tasks
        task.total = float(seen.whole) if seen.whole else None
        task.completed, task.description = float(seen.done), seen.what

    def above(self, write: Callable[[str], None]) -> Callable[[str], None]:
        """The same, also while the line is shown: it makes room and comes back."""

        def written(text: str) -> None:
            if self._shown is None:
                write(text)
                return
            self._shown.stop()
            write(text)
            self._shown.start()

        return written

    def _remove(self) -> None:
        shown, self._shown = self._shown, None
        if shown is not None:
            shown.stop()

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()
