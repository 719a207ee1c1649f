"""`headrace segment`: what stands in Kafka's files, what is damaged in them, and ways to repair it.

Needs no broker. `dump` and `check` change nothing and end with 1 if something is damaged; `repair`
changes what it was told to and keeps all that it replaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.local_folder import local_folder
from headrace.operations.files.dump.files_by_name import CannotRead, rows_of
from headrace.operations.files.dump.rows import Row

if TYPE_CHECKING:
    from headrace.operations.files.damage.data_folder import Check

app = typer.Typer(
    help="Inspect Kafka's files on disk.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

# Rich keeps line breaks within a paragraph, so there are none.
WHAT_IT_READS = (
    "Show what a file holds: batches, entries, producers, offsets.\n\n"
    "Reads .log, .index, .timeindex, .txnindex, .snapshot and .checkpoint files, "
    "leader-epoch-checkpoint and the other checkpoints, compaction-gaps, partition.metadata, "
    "meta.properties, quorum-state and recovery-point."
)


@app.callback()
def about() -> None:
    """Inspect Kafka's files on disk, find damage, repair it."""


@app.command(help=WHAT_IT_READS)
def dump(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of a data folder.")],
    records: Annotated[
        bool,
        typer.Option(
            "--records", help="Show the records too, those of internal topics field by field."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    damaged = 0
    for file in files:
        if len(files) > 1 and not as_json:
            output.say(f"{file}:")
        for row in _rows_of(file, records=records):
            damaged += row.damage is not None
            if as_json:
                output.write_json_line(row.as_object())
            else:
                output.write_line(row.as_text())
    if damaged:
        raise Failure(f"{output.count(damaged, 'place')} of what was read is damaged.")


@app.command()
def check(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", parser=local_folder, help="A data folder.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Show all damage of a data folder; changes nothing. Ends with 1 if there is any."""
    from headrace.cli.segments import report
    from headrace.operations.files.damage.data_folder import is_in_use

    if is_in_use(folder):
        output.note(f"A node runs on {folder}: what it is writing now may look damaged.")
    found = _check(folder)
    (report.tell_json if as_json else report.tell)(found)
    if found.damage:
        raise typer.Exit(1)


@app.command()
def repair(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", parser=local_folder, help="A data folder.")
    ],
    way: Annotated[
        list[str],
        typer.Option(
            "--way",
            metavar="WAY",
            help="The way to take; repeat for more. Without it: show the ways.",
        ),
    ] = [],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Show ways to repair a data folder, or take them. Replaced files are kept in a folder."""
    from headrace.cli.segments import repair_view
    from headrace.operations.files.damage.data_folder import is_in_use
    from headrace.operations.files.damage.finding import CannotMend

    if is_in_use(folder):
        raise Failure(f"A node runs on {folder}: stop it before you repair its files.")
    found = _check(folder)
    try:
        repair_view.show_or_repair(found, way, dry_run=dry_run, as_json=as_json)
    except CannotMend as problem:
        raise Failure(str(problem)) from problem


def _check(folder: Path) -> Check:
    from headrace.cli.segments import report
    from headrace.operations.files.damage.data_folder import Check
    from headrace.operations.files.damage.finding import CannotMend

    bar = report.Bar(folder)
    found = Check(folder, bar)
    try:
        found.run()
    except CannotMend as problem:
        raise Failure(str(problem)) from problem
    except OSError as problem:
        raise Failure(f"Cannot read {problem.filename or folder}: {problem.strerror}.") from problem
    finally:
        bar.end()
    return found


def _rows_of(path: Path, *, records: bool) -> Iterator[Row]:
    try:
        yield from rows_of(path, records=records)
    except CannotRead as problem:
        raise Failure(str(problem)) from problem.__cause__
