"""Dead letters: topics of them with their reasons, a page of letters, one whole. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from headrace.console.access.dead_letters import LetterTopic
from headrace.console.views.messages import header_rows
from headrace.console.views.payloads import Payload, payload
from headrace.foreign_text import escaped
from headrace.services.redrive.letters import DeadLetter
from headrace.services.redrive.settled import Settled

MOST_REASONS = 3
LONGEST_REASON = 120
OURS = "headrace-"


@dataclass(slots=True)
class LetterTopicRow:
    topic: str
    origin: str | None
    group: str | None
    letters: int
    waiting: int  # of the sample
    sampled: int
    newest_ms: int | None
    reasons: list[tuple[str, int]]


def letter_topic_row(found: LetterTopic) -> LetterTopicRow:
    letters = [letter for letter, _ in found.sample]
    waiting = [letter for letter, entry in found.sample if entry is None]
    reasons = Counter(short_error(letter) for letter in waiting)
    return LetterTopicRow(
        found.topic,
        next((each.origin_topic for each in letters if each.origin_topic), None),
        next((each.group for each in letters if each.group), None),
        found.letters,
        len(waiting),
        len(letters),
        max((each.parked_at_ms or 0 for each in waiting), default=None),
        reasons.most_common(MOST_REASONS),
    )


def short_error(letter: DeadLetter) -> str:
    """The exception's own name, without the modules it is in."""
    return escaped(letter.error.rpartition(".")[2][:LONGEST_REASON]) or "unknown"


@dataclass(slots=True)
class LetterRow:
    letter_id: str  # PARTITION/OFFSET
    parked_at_ms: int | None
    key: Payload
    value: Payload
    error: str
    message: str
    attempts: int
    redrives: int
    settled: str  # by whom and how; "" while it waits


def letter_row(letter: DeadLetter, entry: Settled | None) -> LetterRow:
    message = escaped(letter.message.partition("\n")[0])
    return LetterRow(
        f"{letter.partition}/{letter.offset}",
        letter.parked_at_ms,
        payload(letter.key),
        payload(letter.value),
        short_error(letter),
        message if len(message) <= LONGEST_REASON else message[: LONGEST_REASON - 1] + "…",
        letter.attempts,
        letter.redrives,
        "" if entry is None else escaped(f"{entry.action} by {entry.by}"),
    )


@dataclass(slots=True)
class WholeLetter:
    row: LetterRow
    origin: str
    origin_link: tuple[str, int, int] | None  # topic, partition, offset
    group: str | None
    first_at_ms: int | None
    last_at_ms: int | None
    stack: str
    headers: list[tuple[str, Payload]]
    editable: str | None  # the value as text; None where it is none
    reason: str  # for which it was settled


def whole_letter(letter: DeadLetter, entry: Settled | None) -> WholeLetter:
    letter_id = (letter.origin_topic, letter.origin_partition, letter.origin_offset)
    known = None if None in letter_id else letter_id
    return WholeLetter(
        letter_row(letter, entry),
        "" if known is None else f"{letter_id[0]}, partition {letter_id[1]}, offset {letter_id[2]}",
        known,  # type: ignore[arg-type]
        letter.group,
        letter.first_at_ms,
        letter.last_at_ms,
        "\n".join(escaped(line, keep="\t") for line in letter.stack.splitlines()),
        header_rows([each for each in letter.headers if not each[0].startswith(OURS)]),
        _text(letter.value),
        "" if entry is None else escaped(entry.reason),
    )


def _text(raw: bytes | None) -> str | None:
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return None
