"""Long work on a group's backlog, as a card shows it: how far it is, and what a person does now.

The texts that change while it runs are in `texts`; the page and its live part read the same. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from headrace.console.access.backlog import Begun
from headrace.console.jobs.backlog import (
    AbortWidening,
    BacklogWork,
    BringBack,
    Expire,
    Park,
    Widen,
)
from headrace.console.jobs.owner import Job
from headrace.console.views.words import counted, number, text
from headrace.services.backlog import parking, widening
from headrace.services.backlog.widening import WidenPlan, WidenStatus
from headrace.services.replay.journal import CopyEntry
from headrace.services.replay.selection import Selection

# Sentences among the texts: they may be empty, and name what others wrote.
HINTS = ("advice", "warning")


@dataclass(slots=True)
class Card:
    id: str
    title: str
    by: str
    at_ms: int  # when it began, or was last written
    topic: str
    state: str = ""
    is_live: bool = True
    job: int | None = None  # of this console, which may be stopped
    share: int = 0  # of a hundred
    labels: dict[str, str] = field(default_factory=dict)  # of the texts that are numbers
    texts: dict[str, str] = field(default_factory=dict)
    command: str = ""
    go_on: dict[str, str] | None = None  # the dry run of going on with it, as its address says it
    abort: dict[str, str] | None = None

    @property
    def frame(self) -> dict[str, object]:
        shown = {
            name: text(value) if name in HINTS else value for name, value in self.texts.items()
        }
        return {"id": self.id, "share": self.share, "texts": shown}

    def say(self, name: str, label: str, value: str) -> None:
        self.labels[name] = label
        self.texts[name] = value


def job_card(job: Job) -> Card:
    work: BacklogWork = job.work
    card = Card(
        str(job.id), "", job.by, job.began_ms, job.subject[2], is_live=not job.is_over, job=job.id
    )
    card.command = work.command
    card.state = _state(job, work.is_done)
    card.texts = dict.fromkeys(HINTS, "")
    match work:
        case Widen():
            _widening(card, work.plan, work.status)
        case AbortWidening():
            _abort(card, work)
        case Park():
            _parking(card, work)
        case BringBack():
            _return(card, work)
        case Expire():
            _expiry(card, work)
        case _:
            assert_never(work)
    if work.is_done:
        card.share = 100
    return card


def begun_card(begun: Begun, group: str, command: str) -> Card:
    """Returns the card of a widening that this console does not run: it was started elsewhere, or
    was stopped."""
    entry = begun.entry
    card = Card(f"widen/{entry.topic}", "", entry.by, entry.at_ms, entry.topic, command=command)
    card.texts = dict.fromkeys(HINTS, "")
    card.state = "not run by this console"
    card.title = f"Widening {entry.topic}"
    if begun.plan is None:
        card.is_live = False
        card.texts["warning"] = begun.problem
        return card
    asked = {"name": group, "topic": entry.topic}
    card.abort = {**asked, "way": "abort"}
    _widening(card, begun.plan, begun.status)
    if begun.status is None:
        wide = entry.to_topic
        card.texts["advice"] = ""
        card.texts["warning"] = f"{wide} was deleted: the widening can only be aborted."
        return card
    card.go_on = {**asked, "way": "widen", "times": str(begun.times)}
    if begun.plan.was_moved:
        card.texts["advice"] = "The group is handed back; the end of it is left. Go on."
    return card


def return_card(entry: CopyEntry, group: str, wanted: Selection, command: str) -> Card:
    """Returns the card of a return of records that this console does not run."""
    card = Card(entry.name, "", entry.by, entry.at_ms, entry.topic, command=command, is_live=False)
    card.title = f"Bringing back records of {entry.topic}"
    card.state = "not run by this console"
    card.texts = dict.fromkeys(HINTS, "")
    card.say("copied", "Brought back", number(entry.copied))
    card.say("passed", "Passed over", number(entry.passed_over))
    asked = asked_for(wanted)
    if asked is not None:
        card.go_on = {"name": group, "topic": entry.topic, "way": "bring-back", **asked}
    return card


def asked_for(wanted: Selection) -> dict[str, str] | None:
    """Returns the page's fields for this selection; None if only a command line can express it."""
    if len(wanted.headers) > 1:
        return None
    try:
        key = "" if wanted.key is None else wanted.key.decode()
    except UnicodeDecodeError:
        return None
    header = "".join(f"{name}={value}" for name, value in wanted.headers.items())
    return {"key": key, "header": header, "where": wanted.where or ""}


def _state(job: Job, is_done: bool) -> str:
    if not job.is_over:
        return "is being stopped" if job.stopped_by else "under way"
    if is_done:
        return "done"
    if job.failure:
        return f"failed: {job.failure}"
    return f"stopped by {job.stopped_by}" if job.stopped_by else "ended with the console"


def _widening(card: Card, plan: WidenPlan, status: WidenStatus | None) -> None:
    card.title = f"Widening {plan.topic} to {plan.wide_topic}"
    now = status or WidenStatus(widening.Step.FORWARDING, 0, plan.lag, 0, 0)
    card.say("step", "Step", now.step.value)
    card.say("forwarded", "Forwarded", number(now.forwarded))
    card.say("not_forwarded", "Not yet", number(now.not_forwarded))
    card.say("in_wide", "To be read in the wide topic", number(now.in_wide))
    card.say("members", "Members", number(now.members))
    if now.deleted:
        card.say("deleted", "Deleted by retention before", number(now.deleted))
    card.share = _share(now.forwarded - now.in_wide, now.forwarded + now.not_forwarded)
    card.texts["advice"] = _next_for_widening(plan, now, has_begun=status is not None)
    if now.members_at_source:
        card.texts["warning"] = (
            f"{counted(now.members_at_source, 'member')} of group {plan.group} read {plan.topic} "
            f"itself, and handle what goes through {plan.wide_topic} a second time: stop them."
        )


def _next_for_widening(plan: WidenPlan, now: WidenStatus, *, has_begun: bool) -> str:
    if not has_begun:
        return ""
    match now.step:
        case widening.Step.FORWARDING | widening.Step.DRAINING:
            return (
                f"Start consumers of group {plan.group} on topic {plan.wide_topic} now, up to "
                f"{plan.wide_partitions:,}; an app with: headrace app run MODULE:APP --drain"
            )
        case widening.Step.WAITING:
            return f"Everything is drained: stop the consumers of group {plan.group}."
        case widening.Step.HANDED_BACK:
            return f"{plan.group} continues in {plan.topic}: start its consumers as usual."
    assert_never(now.step)


def _abort(card: Card, work: AbortWidening) -> None:
    plan = work.plan
    card.title = f"Aborting the widening of {plan.topic}"
    if work.targets is not None:
        card.texts["advice"] = f"{plan.group} continues in {plan.topic}, without {plan.wide_topic}."


def _parking(card: Card, work: Park) -> None:
    plan, now = work.plan, work.status
    card.title = f"Parking the backlog of {plan.topic}"
    copied = 0 if now is None else now.copied
    card.say("step", "Step", parking.Step.COPYING.value if now is None else now.step.value)
    card.say("copied", "Copied", number(copied))
    card.say("most", "Of at most", number(plan.most))
    card.share = _share(copied, plan.most)
    if now is not None and now.step is parking.Step.WAITING:
        card.texts["advice"] = (
            f"Everything is copied: stop the members of group {plan.group} for a moment."
        )
    elif now is not None and now.step is parking.Step.DONE:
        card.texts["advice"] = (
            f"{counted(now.parked, 'record')} parked; {plan.group} continues after them."
        )


def _return(card: Card, work: BringBack) -> None:
    entry = work.entry
    copied = 0 if entry is None else entry.copied
    passed = 0 if entry is None else entry.passed_over
    card.title = f"Bringing back records of {work.plan.request.topic}"
    card.say("copied", "Brought back", number(copied))
    card.say("passed", "Passed over", number(passed))
    card.say("rate", "Per second, at most", number(work.rate))
    card.share = _share(copied + passed, work.waiting)


def _expiry(card: Card, work: Expire) -> None:
    park, entry = work.plan.park, work.entry
    copied = 0 if entry is None else entry.copied
    card.title = f"Letting go of old records of {park.topic}"
    card.say("copied", "Became dead letters", number(copied))
    card.say("most", "Of at most", number(park.most))
    card.share = _share(copied, park.most)


def _share(part: int, whole: int) -> int:
    return min(max(100 * part // whole, 0), 100) if whole > 0 else 0
