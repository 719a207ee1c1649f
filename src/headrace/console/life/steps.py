"""The meaning of each record of a message, as one step of its life. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.app import headers as app_headers
from headrace.client.records import Record
from headrace.console.life.identity import texts
from headrace.console.views import words
from headrace.services.redrive.settled import REDRIVEN, SETTLED_TOPIC, read_settled
from headrace.wire.contract import confirmations, headers
from headrace.wire.contract.companions import DEAD_SUFFIX, RETRY_SUFFIX
from headrace.wire.contract.delay_topics import COMPANION_SUFFIX, OUTCOMES_SUFFIX, REJECTED_SUFFIX
from headrace.wire.contract.own_records import FAULTS, UnreadableRecord, json_object

GOOD, BAD, WAITS, PLAIN = "good", "bad", "waits", "plain"


@dataclass(slots=True)
class Step:
    at_ms: int | None  # None: the time was not recorded
    kind: str  # GOOD and its like: how it looks
    title: str
    details: list[str] = field(default_factory=list)
    record: Record | None = None  # None: shown by the group's offset, not by a record


def step_of(record: Record) -> Step:
    told, topic = texts(record), record.topic
    if topic == SETTLED_TOPIC:
        return _settled(record)
    if topic == confirmations.TOPIC:
        return _confirmed(record)
    if topic.endswith(REJECTED_SUFFIX):
        why = told.get(headers.REJECTED_REASON, "")
        return Step(record.timestamp_ms, BAD, "Rejected by the delay service", [why], record)
    if topic.endswith(OUTCOMES_SUFFIX):
        return _outcome(record, told)
    if topic.endswith(RETRY_SUFFIX + COMPANION_SUFFIX):
        return _retry(record, told)
    if topic.endswith(COMPANION_SUFFIX):
        return _delayed(record, told)
    if topic.endswith(RETRY_SUFFIX):
        return _retry(record, told)
    if topic.endswith(DEAD_SUFFIX) and app_headers.DEAD_ERROR in told:
        return _dead(record, told)
    if headers.SOURCE in told:
        return _delivered(record, told)
    title = "Produced" if record.value is not None else "Produced, as a tombstone"
    outbox = told.get(headers.CONFIRM)
    details = [f"from the outbox {outbox}, which waits for a confirmation"] if outbox else []
    return Step(record.timestamp_ms, PLAIN, title, details, record)


def _settled(record: Record) -> Step:
    try:
        entry = read_settled(record.key, record.value)
    except FAULTS:
        return Step(record.timestamp_ms, PLAIN, "An entry that cannot be read", [], record)
    driven = entry.action == REDRIVEN
    details = [f"by {entry.by}"] if entry.by else []
    if entry.reason:
        details.append(f"because: {entry.reason}")
    if entry.edited:
        details.append("with an edited value")
    if entry.sent_to:
        details.append(f"to {entry.sent_to}, which only the group that failed reads")
    title = "Sent again from the dead letters" if driven else "Discarded"
    return Step(entry.at_ms or record.timestamp_ms, PLAIN, title, details, record)


def _confirmed(record: Record) -> Step:
    try:
        group = str(json_object(record.value).get("group", ""))
    except UnreadableRecord:
        group = ""
    said = [f"by group {group}"] if group else []
    return Step(record.timestamp_ms, GOOD, "Handled and confirmed", said, record)


def _outcome(record: Record, told: dict[str, str]) -> Step:
    titles = {
        headers.CANCELLED: "Cancelled: it will not be delivered",
        headers.TOO_LATE: "Too late to cancel: it was delivered",
        headers.UNKNOWN: "Not cancelled: nothing waited under this id",
    }
    said = told.get(headers.OUTCOME, "")
    kind = PLAIN if said == headers.CANCELLED else BAD
    return Step(record.timestamp_ms, kind, titles.get(said, f"Outcome: {said}"), [], record)


def _delayed(record: Record, told: dict[str, str]) -> Step:
    if headers.CANCEL in told:
        details = [f"under the id {told[headers.CANCEL]}"]
        return Step(record.timestamp_ms, PLAIN, "Asked to be cancelled", details, record)
    asked = [
        f"{word} {told[name]}"
        for name, word in (
            (headers.DELAY, "delay"),
            (headers.DELIVER_AT, "deliver at"),
            (headers.DELAY_LEVEL, "delay level"),
            (headers.CRON, "cron"),
            (headers.ID, "id"),
        )
        if name in told
    ]
    return Step(record.timestamp_ms, WAITS, "Sent, to be delivered later", asked, record)


def _delivered(record: Record, told: dict[str, str]) -> Step:
    due_ms, details = _number(told.get(headers.DUE_AT)), []
    if due_ms is not None:
        details.append(f"due at {words.moment(due_ms)}")
        if record.timestamp_ms is not None:
            late_ms = record.timestamp_ms - due_ms
            details.append(f"{words.lasting(max(late_ms, 0))} after that")
    return Step(record.timestamp_ms, GOOD, "Delivered when it was due", details, record)


def _retry(record: Record, told: dict[str, str]) -> Step:
    group, attempts = group_of(record.topic), _number(told.get(app_headers.ATTEMPT))
    if not attempts:
        redrives = _number(told.get(app_headers.REDRIVES))
        title = "Given to the group again" if redrives else "Waits behind an earlier message"
        details = [f"group {group}"]
        if redrives:
            details.append(f"come back {redrives} time{'' if redrives == 1 else 's'}")
        return Step(record.timestamp_ms, WAITS, title, details, record)
    details = [f"group {group}"]
    # It has waited in the delay service: the delayed record shows the failure.
    if headers.SOURCE in told:
        title = f"Given to the group again, for attempt {attempts + 1}"
        return Step(record.timestamp_ms, PLAIN, title, details, record)
    if worker := told.get(app_headers.WORKER):
        details.append(f"worker {worker}")
    due_ms = _number(told.get(app_headers.DUE)) or _number(told.get(headers.DELIVER_AT))
    if due_ms:
        details.append(f"again at {words.moment(due_ms)}")
    return Step(record.timestamp_ms, BAD, f"Attempt {attempts} failed", details, record)


def _dead(record: Record, told: dict[str, str]) -> Step:
    attempts = _number(told.get(app_headers.DEAD_ATTEMPTS)) or 0
    times = f"{attempts} attempt{'' if attempts == 1 else 's'}"
    group = told.get(app_headers.DEAD_GROUP) or group_of(record.topic)
    details = [f"group {group}"]
    if worker := told.get(app_headers.WORKER):
        details.append(f"worker {worker}")
    error = told.get(app_headers.DEAD_ERROR, "")
    details.append(f"{error}: {told.get(app_headers.DEAD_MESSAGE, '')}")
    return Step(record.timestamp_ms, BAD, f"Dead letter after {times}", details, record)


def group_of(topic: str) -> str:
    """Returns the group's name as it is written in the name of its retry or dead-letter topic."""
    name = topic.removesuffix(COMPANION_SUFFIX)
    for suffix in (RETRY_SUFFIX, DEAD_SUFFIX):
        name = name.removesuffix(suffix)
    return name.rpartition(".")[2]


def _number(said: str | None) -> int | None:
    if said is None or not said.isascii() or not said.isdecimal() or len(said) > 18:
        return None
    return int(said)
