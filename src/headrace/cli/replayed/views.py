"""Plans of a replay, how far it is, and what it has done, for people and for programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from headrace.cli import output
from headrace.cli.records.dead_letters import moment
from headrace.services.replay.group_moves import GroupPlan, UndoPlan
from headrace.services.replay.journal import CopyEntry
from headrace.services.replay.topic_copy import CopyPlan


def show_copy_plan(plan: CopyPlan, *, as_json: bool) -> None:
    request, entry = plan.request, plan.entry
    spans = plan.spans
    if entry is not None:
        spans = {p: (entry.next[p], end) for p, end in entry.ends.items()}
    if as_json:
        output.answer_json(
            {
                "name": request.name,
                "topic": request.topic,
                "to": request.to_topic,
                "executed": False,
                "goes_on": entry is not None,
                "partitions": [
                    {"partition": p, "from": first, "to": end, "offsets": end - first}
                    for p, (first, end) in sorted(spans.items())
                ],
                "same_partitions": plan.same_partitions,
                "behind_open_transactions": plan.open_transactions,
            }
        )
        return
    rows: list[tuple[output.Cell, ...]] = [
        (p, first, end, end - first) for p, (first, end) in sorted(spans.items())
    ]
    output.table(("partition", "from", "to", "offsets"), rows)
    most = sum(end - first for first, end in spans.values())
    begun = "goes on" if entry is not None else "would copy"
    exactly = "" if request.selection.takes_whole_spans else " that meet the conditions"
    output.note(
        f"The replay {request.name} {begun}: at most {output.count(most, 'record')}{exactly} from "
        f"{request.topic} to {request.to_topic}, "
        + (
            "into partitions of the same number."
            if plan.same_partitions
            else "by key, since the topics have different numbers of partitions."
        )
    )
    _tell_hidden(plan)
    output.note("A dry run: nothing was changed. Add --execute to do it.")


def _tell_hidden(plan: CopyPlan) -> None:
    for partition in plan.open_transactions:
        output.note(
            f"Partition {partition} has an open transaction: records after its beginning "
            "are left out."
        )


def report_copy(steps: Iterator[CopyEntry], *, as_json: bool) -> None:
    bar = _Bar()
    entry: CopyEntry | None = None
    try:
        for entry in steps:
            bar.show(entry)
    except KeyboardInterrupt:
        bar.wipe()
        output.note("Stopped. The same command continues from there.")
        raise
    bar.wipe()
    assert entry is not None
    if as_json:
        output.answer_json(copy_object(entry))
        return
    output.say(f"{output.count(entry.copied, 'record')} copied to {entry.to_topic}.")
    if entry.passed_over:
        output.note(f"{output.count(entry.passed_over, 'record')} did not meet the conditions.")
    if entry.deleted:
        output.note(
            f"{output.count(entry.deleted, 'offset')} of {entry.topic} could not be copied: they "
            "were deleted before (retention)."
        )
    if entry.looped:
        output.note(
            f"{output.count(entry.looped, 'record')} left out: replays brought them from "
            f"{entry.to_topic} before, or moved them too often."
        )


class _Bar:
    """How far a copy is: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._whole: int | None = None
        self._said_at = time.monotonic()

    def show(self, entry: CopyEntry) -> None:
        if self._whole is None:
            self._whole = max(1, entry.left)
        share = 1 - min(1.0, entry.left / self._whole)
        words = f"{entry.copied:,} copied, {entry.left:,} offsets left"
        if sys.stderr.isatty():
            filled = int(30 * share)
            output.passing("█" * filled + "░" * (30 - filled) + f" {words}")
        elif time.monotonic() - self._said_at > 10:
            self._said_at = time.monotonic()
            output.note(f"{words} ...")

    def wipe(self) -> None:
        if sys.stderr.isatty():
            output.passing("")


def show_undo(plan: UndoPlan) -> None:
    rows: list[tuple[output.Cell, ...]] = [
        (
            each.topic,
            each.partition,
            each.current,
            each.current if each.why_not else each.target,
            each.why_not or None,
        )
        for each in plan.partitions
    ]
    output.table(("topic", "partition", "now", "new", "stays because"), rows)
    for each in plan.moves:
        if each.target != each.former:
            output.note(
                f"{each.topic}-{each.partition} has no offset {each.former} any more: the nearest "
                f"is {each.target}."
            )


def show_group_plan(plan: GroupPlan, rate: float | None, *, executed: bool, as_json: bool) -> None:
    takes_s = None if rate is None else plan.again / rate
    if as_json:
        output.answer_json(
            {
                "group": plan.group,
                "executed": executed,
                "again": plan.again,
                "takes_s": takes_s,
                "is_active": plan.is_active,
                "partitions": plan.partitions,
            }
        )
        return
    rows: list[tuple[output.Cell, ...]] = [
        (
            each.topic,
            each.partition,
            each.current,
            each.target,
            each.again,
            moment(each.oldest_ms),
            each.why_not or None,
        )
        for each in plan.partitions
    ]
    output.table(("topic", "partition", "now", "new", "again", "oldest", "stays because"), rows)
    output.note(f"At most {output.count(plan.again, 'record')} in all{_takes(takes_s)}.")
    if executed:
        output.note(
            f"Group {plan.group} reads them again when it starts. Its former offsets are kept: "
            f"headrace replay undo {plan.group} puts them back."
        )
        return
    if plan.is_active:
        output.note(f"Group {plan.group} has members now: stop them before --execute.")
    output.note("An app with once= skips what it has handled.")
    output.note("A dry run: nothing was changed. Add --execute to do it.")


def _takes(seconds: float | None) -> str:
    if seconds is None:
        return "; --assume-rate shows how long that takes"
    if seconds < 120:
        return f", about {seconds:.0f} s"
    return (
        f", about {seconds / 60:.0f} min" if seconds < 7200 else f", about {seconds / 3600:.1f} h"
    )


def copy_object(entry: CopyEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "topic": entry.topic,
        "to": entry.to_topic,
        "state": entry.state,
        "copied": entry.copied,
        "passed_over": entry.passed_over,
        "looped": entry.looped,
        "deleted": entry.deleted,
        "left": entry.left,
        "by": entry.by,
        "began_at_ms": entry.began_at_ms,
        "at_ms": entry.at_ms,
    }
