"""Lag and its causes, keys that move, and a widening on its way, for people and for programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from headrace.cli import output
from headrace.services.backlog import parking
from headrace.services.backlog.diagnosis import Finding
from headrace.services.backlog.growth import Growth
from headrace.services.backlog.lag import GroupLag
from headrace.services.backlog.parking import ParkPlan, ParkStatus
from headrace.services.backlog.widening import Step, WidenPlan, WidenStatus

SHOWN_PARTITIONS = 10
SAID_EVERY_S = 10.0


def status_object(lag: GroupLag, findings: list[Finding]) -> dict[str, object]:
    return {
        "group": lag.group,
        "state": lag.state,
        "members": len(lag.members),
        "lag": lag.lag,
        "unknown_partitions": len(lag.unknown),
        "behind_s": lag.behind_s,
        "rate_in": lag.rate_in,
        "rate_out": lag.rate_out,
        "caught_up_in_s": lag.caught_up_in_s,
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "committed": one.committed,
                "end": one.end,
                "lag": None if one.is_unknown else one.lag,
                "unread": one.unread,
                "behind_s": one.behind_s,
                "rate_in": one.rate_in,
                "rate_out": one.rate_out,
                "member": one.member,
            }
            for one in lag.partitions
        ],
        "findings": findings,
    }


def tell_status(lag: GroupLag, findings: list[Finding], *, whole: bool) -> None:
    output.say(
        f"{lag.group}: {output.count(lag.lag, 'record')} behind"
        f"{_unknown(lag)}{_behind(lag.behind_s)}; "
        f"{lag.rate_in:,.0f}/s in, {lag.rate_out:,.0f}/s out; {_end(lag)}"
    )
    if whole:
        worst = sorted(lag.partitions, key=lambda one: -one.lag)
        rows: list[tuple[output.Cell, ...]] = [
            (
                one.topic,
                one.partition,
                one.committed,
                one.end,
                None if one.is_unknown else one.lag,
                None if one.behind_s is None else duration(one.behind_s),
                f"{one.rate_in:,.0f}",
                f"{one.rate_out:,.0f}",
                one.member,
            )
            for one in worst[:SHOWN_PARTITIONS]
        ]
        columns = ("topic", "partition", "committed", "end", "lag", "behind", "in/s", "out/s")
        output.table((*columns, "member"), rows)
        if len(worst) > SHOWN_PARTITIONS:
            output.note(f"{len(worst) - SHOWN_PARTITIONS:,} more partitions: --json shows all.")
    for each in findings:
        output.say(f"  {each.sentence}")
        if each.command is not None:
            output.say(f"    {each.command}")


def tell_apart(plan: WidenPlan) -> None:
    """The parts that a widening does not change."""
    for partition in plan.left_alone:
        output.note(
            f"{plan.topic}-{partition} is left alone: {plan.group} has committed nothing there yet."
        )
    if plan.retries:
        output.note(
            f"{output.count(plan.retries, 'record')} that failed before wait for another try: they "
            "come after the widening, behind later records of their keys."
        )


def _unknown(lag: GroupLag) -> str:
    if not lag.unknown:
        return ""
    unread = sum(one.unread for one in lag.unknown)
    return (
        f" and unknown in {output.count(len(lag.unknown), 'partition')} without a commit "
        f"({output.count(unread, 'record')})"
    )


def _behind(seconds: float | None) -> str:
    return "" if seconds is None else f", {duration(seconds)}"


def _end(lag: GroupLag) -> str:
    if lag.lag == 0:
        return "unknown where nothing is committed" if lag.unknown else "caught up"
    if not lag.members:
        return "no active members"
    needed = lag.caught_up_in_s
    if needed is None:
        return "at these rates it never catches up"
    return f"caught up in about {duration(needed)}"


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"


def tell_growth(plan: Growth, behind: dict[str, int]) -> None:
    if plan.keys == 0:
        output.note("No record has a key, so no order of keys changes.")
    else:
        output.say(
            f"{plan.moving:,} of {plan.keys:,} keys of the newest records move to other partitions:"
        )
        rows: list[tuple[output.Cell, ...]] = [
            (key[:60].decode("utf-8", "replace"), now, then) for key, now, then in plan.examples
        ]
        output.table(("key", "now in", "then in"), rows)
        output.note(
            "Records that are there stay where they are. Until a group has read them, it may see a "
            "key's new records before its old ones: stop the producers, or let the groups catch up."
        )
    for group, lag in behind.items():
        output.note(f"Group {group} is {output.count(lag, 'record')} behind.")
    output.note(
        "State that is kept by partition (compacted topics, stream tables) must be rebuilt."
    )


def follow_parking(steps: Iterator[ParkStatus], plan: ParkPlan) -> int:
    """Tell how far it is; how many records are parked in the end."""
    step: parking.Step | None = None
    said_at = time.monotonic()
    status: ParkStatus | None = None
    for status in steps:
        if status.step is parking.Step.WAITING and step is not status.step:
            output.note(
                f"Everything is copied: stop the members of group {plan.group} for a moment."
            )
        step = status.step
        line = f"{step.value}: {status.copied:,} of at most {plan.most:,} records"
        if sys.stderr.isatty():
            output.passing("" if step is parking.Step.DONE else line)
        elif time.monotonic() - said_at > SAID_EVERY_S:
            said_at = time.monotonic()
            output.note(line)
    assert status is not None
    return status.parked


class WidenProgress:
    """One line on a terminal that changes; elsewhere a line for each step and now and then."""

    def __init__(self, plan: WidenPlan) -> None:
        self._plan = plan
        self._step: Step | None = None
        self._said_at = 0.0
        self._warned = False

    def show(self, status: WidenStatus) -> None:
        if status.step is not self._step:
            self._step = status.step
            self._said_at = 0.0
            self._begin(status)
        if status.members_at_source and not self._warned:
            self._warned = True
            output.note(
                f"{output.count(status.members_at_source, 'member')} of group {self._plan.group} "
                f"read {self._plan.topic} itself, and handle what goes through "
                f"{self._plan.wide_topic} a second time: stop them."
            )
        line = (
            f"{status.step.value}: {status.forwarded:,} forwarded, "
            f"{status.not_forwarded:,} not yet, {status.in_wide:,} in {self._plan.wide_topic} "
            f"not read, {output.count(status.members, 'member')}"
        )
        if sys.stderr.isatty():
            output.passing(line)
        elif time.monotonic() - self._said_at > SAID_EVERY_S:
            self._said_at = time.monotonic()
            output.note(line)

    def _begin(self, status: WidenStatus) -> None:
        group, wide = self._plan.group, self._plan.wide_topic
        if sys.stderr.isatty():
            output.passing("")
        if status.step is Step.FORWARDING:
            output.note(
                f"Start consumers of group {group} on topic {wide} now, up to "
                f"{self._plan.wide_partitions}; an app with: headrace app run MODULE:APP --drain"
            )
        elif status.step is Step.WAITING:
            output.note(f"Everything is drained: stop the consumers of group {group}.")

    def end(self) -> None:
        if sys.stderr.isatty():
            output.passing("")
