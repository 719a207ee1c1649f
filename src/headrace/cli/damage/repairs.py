"""`headrace segment repair`: ways out of damage, shown first and taken only by name.

Nothing is removed: a file that is replaced or changed is kept in a folder (`set_aside.py`), whose
path is the last thing that is said. Ways that lose nothing come first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import typer

from headrace.cli import output
from headrace.cli.damage import ways
from headrace.cli.damage.data_folder import Check, shown
from headrace.cli.damage.finding import Finding, Remedy
from headrace.cli.damage.set_aside import SetAside
from headrace.cli.failure import Failure

Take = Callable[[Check, list[Finding], SetAside, bool], list[str]]

# In the order in which they are offered and taken; what each does, in words, and what it loses.
WAYS: dict[Remedy, tuple[str, str, Take]] = {
    Remedy.FLIP: (
        "flip back the one bit that makes a batch's checksum right",
        "nothing",
        ways.flip_bits,
    ),
    Remedy.REBUILD: (
        "make indexes and leader epochs anew from the batches",
        "nothing",
        ways.rebuild,
    ),
    Remedy.SET_ASIDE: (
        "set damaged small files and snapshots aside; a start goes on without them",
        "nothing, while the log has what they said",
        ways.set_files_aside,
    ),
    Remedy.EPOCH: (
        "write quorum-state with an epoch above all that the metadata log has",
        "nothing",
        ways.write_epoch,
    ),
    Remedy.IDENTITY: (
        "write meta.properties anew from what the metadata says",
        "the cluster.id, if the old one cannot be read",
        ways.write_identity,
    ),
    Remedy.CUT_METADATA: (
        "end the metadata log before the first damage that no good snapshot covers",
        "topics, users, rights and settings that were changed after it",
        ways.cut_metadata,
    ),
}


@dataclass(slots=True)
class Offer:
    """A way that can be taken here."""

    remedy: Remedy
    findings: list[Finding] = field(default_factory=list)

    @property
    def does(self) -> str:
        return WAYS[self.remedy][0]

    @property
    def loses(self) -> str:
        return WAYS[self.remedy][1]


def repair(check: Check, chosen: list[str], *, dry_run: bool, as_json: bool) -> None:
    offers = _offers(check)
    unknown = [name for name in chosen if name not in {remedy.value for remedy in WAYS}]
    if unknown:
        known = ", ".join(remedy.value for remedy in WAYS)
        raise Failure(f"There is no way named {unknown[0]!r}; there are {known}.")
    if not check.damage:
        _answer(as_json, {"damaged": 0, "ways": []}, ["Nothing is damaged: nothing to repair."])
    elif not chosen:
        _show(check, offers, as_json)
    else:
        _take(check, [o for o in offers if o.remedy.value in chosen], dry_run, as_json)


def _offers(check: Check) -> list[Offer]:
    offers = [Offer(remedy) for remedy in WAYS]
    for offer in offers:
        offer.findings = [f for f in check.damage if offer.remedy in f.remedies]
    return [offer for offer in offers if offer.findings]


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


def _take(check: Check, offers: list[Offer], dry_run: bool, as_json: bool) -> None:
    aside = SetAside(check.folder)
    done: list[str] = []
    for offer in offers:
        done += WAYS[offer.remedy][2](check, offer.findings, aside, dry_run)
    kept = str(aside.folder) if aside.folder.exists() else None
    lines = [("would " if dry_run else "") + line for line in done] or ["Nothing could be done so."]
    if kept is not None:
        lines.append(f"What was replaced is kept in {kept}.")
    if not dry_run:
        lines.append(f"See what is left: headrace segment check {check.folder}")
    _answer(as_json, {"dry_run": dry_run, "done": done, "kept_in": kept}, lines)
    if not done:
        raise typer.Exit(1)


def _answer(as_json: bool, value: dict[str, object], lines: list[str]) -> None:
    if as_json:
        output.answer_json(value)
    else:
        for line in lines:
            output.say(line)
