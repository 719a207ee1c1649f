"""`headrace segment repair` on the screen: the ways that there are, or what one of them did."""

from __future__ import annotations

import typer

from headrace.cli import output
from headrace.operations.files.damage.data_folder import Check, shown
from headrace.operations.files.damage.repairs import Offer, Repair, offers, repair, require_known


def show_or_repair(check: Check, chosen: list[str], *, dry_run: bool, as_json: bool) -> None:
    """Without a chosen way nothing is changed: the ways are shown."""
    require_known(chosen)
    if not check.damage:
        _answer(as_json, {"damaged": 0, "ways": []}, ["Nothing is damaged: nothing to repair."])
    elif not chosen:
        _show(check, offers(check), as_json)
    else:
        made = repair(check, chosen, dry_run=dry_run)
        _show_repair(check, made, dry_run, as_json)


def _show(check: Check, offers: list[Offer], as_json: bool) -> None:
    rows = [(o.remedy.value, len(o.findings), o.does, o.loses) for o in offers]
    without = [finding for finding in check.damage if not finding.remedies]
    if as_json:
        names = ("way", "places", "does", "loses")
        output.answer_json(
            {
                "damaged": len(check.damage),
                "ways": [dict(zip(names, row, strict=True)) for row in rows],
                "without_a_way": [shown(check, finding) for finding in without],
            }
        )
        raise typer.Exit(1)
    places = output.count(len(check.damage), "place")
    output.say(f"{places} damaged (headrace segment check {check.folder} shows them). Ways out:")
    output.say("")
    output.table(["way", "places", "what it does", "what it loses"], rows)
    for finding in without:
        output.say(f"No way for {shown(check, finding)}: {finding.what}.")
    output.say("")
    first = offers[0].remedy.value if offers else ""
    output.say(f"Try one:  headrace segment repair {check.folder} --way {first} --dry-run")
    output.say(
        "What a way replaces is kept in a folder. A copy of the data folder is better still."
    )
    raise typer.Exit(1)


def _show_repair(check: Check, made: Repair, dry_run: bool, as_json: bool) -> None:
    lines = [("would " if dry_run else "") + line for line in made.done]
    lines = lines or ["Nothing could be repaired in this way."]
    if made.kept_in is not None:
        lines.append(f"What was replaced is kept in {made.kept_in}.")
    if not dry_run:
        lines.append(f"See what is left: headrace segment check {check.folder}")
    kept = None if made.kept_in is None else str(made.kept_in)
    _answer(as_json, {"dry_run": dry_run, "done": made.done, "kept_in": kept}, lines)
    if not made.done:
        raise typer.Exit(1)


def _answer(as_json: bool, value: dict[str, object], lines: list[str]) -> None:
    if as_json:
        output.answer_json(value)
    else:
        for line in lines:
            output.say(line)
