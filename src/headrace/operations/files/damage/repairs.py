"""Repairs of a damaged data folder, each run only if the user names it.

Nothing is removed: a file that is replaced or changed is kept in a folder (`set_aside.py`). Repairs
that lose nothing come first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headrace.operations.files.damage import ways
from headrace.operations.files.damage.data_folder import Check
from headrace.operations.files.damage.finding import CannotMend, Finding, Remedy
from headrace.operations.files.damage.set_aside import SetAside

Take = Callable[[Check, list[Finding], SetAside, bool], list[str]]

# In the order in which they are offered and run; each with its effect and its loss, in words.
WAYS: dict[Remedy, tuple[str, str, Take]] = {
    Remedy.FLIP: (
        "flip back the one bit that makes a batch's checksum right",
        "nothing",
        ways.flip_bits,
    ),
    Remedy.REBUILD: (
        "rebuild indexes and leader epochs from the batches",
        "nothing",
        ways.rebuild,
    ),
    Remedy.SET_ASIDE: (
        "set damaged small files and snapshots aside; a start continues without them",
        "nothing, if the log has the same information",
        ways.set_files_aside,
    ),
    Remedy.EPOCH: (
        "write quorum-state with an epoch above all that the metadata log has",
        "nothing",
        ways.write_epoch,
    ),
    Remedy.IDENTITY: (
        "write meta.properties from the voters that the metadata names",
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
    """A repair that can be run here."""

    remedy: Remedy
    findings: list[Finding] = field(default_factory=list)

    @property
    def does(self) -> str:
        return WAYS[self.remedy][0]

    @property
    def loses(self) -> str:
        return WAYS[self.remedy][1]


@dataclass(slots=True)
class Repair:
    """What was done, or would be done; and where the replaced files are kept."""

    done: list[str]
    kept_in: Path | None


def offers(check: Check) -> list[Offer]:
    """The repairs that help in this folder, in the order in which they are run."""
    every = [Offer(remedy) for remedy in WAYS]
    for offer in every:
        offer.findings = [f for f in check.damage if offer.remedy in f.remedies]
    return [offer for offer in every if offer.findings]


def require_known(chosen: list[str]) -> None:
    unknown = [name for name in chosen if name not in {remedy.value for remedy in WAYS}]
    if unknown:
        known = ", ".join(remedy.value for remedy in WAYS)
        raise CannotMend(f"There is no way named {unknown[0]!r}; there are {known}.")


def repair(check: Check, chosen: list[str], *, dry_run: bool) -> Repair:
    aside = SetAside(check.folder)
    done: list[str] = []
    for offer in offers(check):
        if offer.remedy.value in chosen:
            done += WAYS[offer.remedy][2](check, offer.findings, aside, dry_run)
    return Repair(done, aside.folder if aside.folder.exists() else None)
