"""Trace a message: its steps, the time between them, what was not searched. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client.lookup.record_pages import Seen
from headrace.client.records import Record
from headrace.console.access.life import Life, Searched
from headrace.console.views import words
from headrace.console.views.messages import MessageRow, message_row
from headrace.console.views.payloads import Payload, payload


@dataclass(slots=True)
class StepRow:
    at_ms: int | None
    after: str  # since the step before
    kind: str
    title: str
    details: list[str]
    topic: str | None
    partition: int
    offset: int
    value: Payload | None


def step_rows(life: Life) -> list[StepRow]:
    rows: list[StepRow] = []
    before_ms: int | None = None
    for step in life.steps:
        after = ""
        if step.at_ms is not None and before_ms is not None:
            after = f"{words.lasting(max(step.at_ms - before_ms, 0))} later"
        before_ms = step.at_ms if step.at_ms is not None else before_ms
        rows.append(_row(step.record, step.at_ms, after, step.kind, step.title, step.details))
    return rows


def _row(
    record: Record | None, at_ms: int | None, after: str, kind: str, title: str, details: list[str]
) -> StepRow:
    if record is None:
        return StepRow(at_ms, after, kind, title, details, None, 0, 0, None)
    record_id = (record.topic, record.partition, record.offset)
    return StepRow(at_ms, after, kind, title, details, *record_id, payload(record.value))


def candidate_rows(life: Life) -> list[tuple[str, MessageRow]]:
    return [(record.topic, message_row(Seen(record))) for record in life.candidates]


def limits_in_words(life: Life) -> list[str]:
    """The limits of this page's knowledge; nothing is left out silently."""
    said = []
    if life.since_ms is not None:
        said.append(
            f"Nothing before {words.moment(life.since_ms)} was searched, except records that "
            "others name."
        )
    said.append(
        f"Only {words.text(life.root)} and its companions were searched: a copy in another topic "
        "is another message."
    )
    for each in life.searched:
        said += _limits_of(each)
    if life.topics_left_out:
        names = ", ".join(words.text(name) for name in life.topics_left_out)
        said.append(f"There was no time for {names}.")
    if life.groups_missing:
        said.append(life.groups_missing)
    if life.steps_left_out:
        said.append(f"{words.count(life.steps_left_out, 'more step')} not shown.")
    return said


def _limits_of(each: Searched) -> list[str]:
    name, said = words.text(each.topic), []
    if each.left_out:
        searched = ", ".join(map(str, each.partitions))
        said.append(f"Of {name} only partition {searched} was searched, not {each.left_out} more.")
    if each.unread:
        said += [
            f"{name}{'' if partition < 0 else f', partition {partition}'}: {why}"
            for partition, why in each.unread.items()
        ]
    elif not each.is_whole:
        looked = words.count(each.looked_at, "message")
        said.append(f"The search of {name} stopped at its limit, after {looked}.")
    return said
