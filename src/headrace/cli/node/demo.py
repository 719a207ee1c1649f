"""`headrace demo`: money moves between two banks while everything is killed; is it all there?

Runs by itself, in a folder that goes with it: SQLite and a node of its own. The exit code says
whether the money is right. On a terminal it draws, elsewhere it prints a line every few seconds.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import Json
from headrace.installation import how_to_add

if TYPE_CHECKING:
    from headrace.cli.transfers.story import Picture, Side

app = typer.Typer(add_completion=False, **output.LOOK)

LINE_EVERY_S = 5.0
PHASES = {
    "starting": "Starting a broker, a relay and two banks ...",
    "killing": "Transfers flow, and processes are killed with kill -9.",
    "settling": "No more kills: what is under way arrives.",
    "done": "Done.",
}


@app.command()
def demo(
    seconds: Annotated[float, typer.Option(min=1, help="How long transfers are made.")] = 45.0,
    seed: Annotated[int, typer.Option(help="The same seed, the same victims.")] = 1,
    as_json: Json = False,
) -> None:
    """Transfers between two banks while relay, consumer and broker are killed."""
    if importlib.util.find_spec("sqlalchemy") is None:
        raise Failure(how_to_add("The demo needs", "SQLAlchemy", "sql"))
    from headrace.cli.transfers.story import Story, own_folder

    with own_folder() as folder:
        story = Story(Path(folder), seconds=seconds, seed=seed)
        if sys.stdout.isatty() and not as_json:
            picture = _drawn(story)
        else:
            picture = story.run(_Lines(quiet=as_json).show)
    if as_json:
        output.answer_json({**asdict(picture), "right": picture.right})
    else:
        _conclude(picture)
    if not picture.right:
        raise Failure("The money is not right with the outbox: that is a bug, please report it.")


def _conclude(picture: Picture) -> None:
    ours, naive = picture.outbox, picture.naive
    output.say(f"{sum(picture.kills.values())} kills: {_kills(picture)}.")
    output.say(
        f"With outbox and once-only handling: {ours.sent:,} transfers, {ours.lost:,} lost, "
        f"{ours.doubled:,} booked twice; the money is {ours.money:,}."
    )
    output.say(
        f"Without: {naive.sent:,} transfers, {naive.lost:,} lost, {naive.doubled:,} booked twice; "
        f"the money is {naive.money:,} instead of {picture.first_money:,}."
    )


def _kills(picture: Picture) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(picture.kills.items())) or "none"


class _Lines:
    """For a log or a pipe."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._next_at = 0.0
        self._phase = ""
        self._said = ""

    def show(self, picture: Picture) -> None:
        now = time.monotonic()
        if self._quiet or (now < self._next_at and picture.phase == self._phase):
            return
        if picture.phase != self._phase:
            self._phase = picture.phase
            output.say(PHASES[picture.phase])
        self._next_at = now + LINE_EVERY_S
        if picture.phase != "starting":
            ours, naive = picture.outbox, picture.naive
            line = (
                f"  {picture.seconds:3.0f} s  sent {ours.sent:,}, {picture.waiting:,} rows wait, "
                f"{ours.doubled} twice | without outbox: sent {naive.sent:,}, {naive.lost:,} "
                f"missing, {naive.doubled:,} twice | kills: {_kills(picture)}"
            )
            if line != self._said:
                output.say(line)
            self._said = line


def _drawn(story: Any) -> Picture:
    from rich.live import Live

    with Live(refresh_per_second=4, transient=True) as live:
        picture: Picture = story.run(lambda picture: live.update(_table(picture)))
    return picture


def _table(picture: Picture) -> Any:
    from rich.table import Table

    ours, naive = picture.outbox, picture.naive
    drawn = Table(title=PHASES[picture.phase], caption=f"kill -9: {_kills(picture)}")
    for heading in ("", "with outbox", "without"):
        drawn.add_column(heading, justify="left" if not heading else "right")
    rows: list[tuple[str, str, str]] = [
        ("transfers", f"{ours.sent:,}", f"{naive.sent:,}"),
        ("rows that wait", f"{picture.waiting:,}", "-"),
        ("under way or lost", f"{ours.lost:,}", f"{naive.lost:,}"),
        ("booked twice", f"{ours.doubled:,}", f"{naive.doubled:,}"),
        ("in the paying bank", f"{ours.payment:,}", f"{naive.payment:,}"),
        ("in the savings bank", f"{ours.savings:,}", f"{naive.savings:,}"),
        ("all money", _money(ours, picture), _money(naive, picture)),
    ]
    for row in rows:
        drawn.add_row(*row)
    return drawn


def _money(side: Side, picture: Picture) -> str:
    off = side.money - picture.first_money
    return f"{side.money:,}" + (f" ({off:+,})" if off else "")
