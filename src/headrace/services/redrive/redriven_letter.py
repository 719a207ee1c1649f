"""The form and the target of a letter that is sent again: only the group that failed gets it.

It goes to the retry topic of that group, into the partition of its origin, where the owner of the
origin partition reads it in the order of its key. It keeps its first place, time and message id, so
a once-only handler still recognizes it; its attempts begin at zero. The number of returns is
counted, and a letter that keeps coming back is refused until a person looks at it.

Headers name the letter's group, and a client that may write to a dead-letter topic can write any
header. So the headers are trusted only if letters of that group belong to the topic where this one
was found: otherwise a letter could reach the retry topic of any group with the rights of the person
who sends it again.
"""

from __future__ import annotations

from headrace.app import headers as names
from headrace.app.names import dead_topic, retry_topic, wide_topic
from headrace.client.records import HeaderList, Outgoing
from headrace.services.redrive.letters import DeadLetter

MOST_REDRIVES = 3

# Headers about the failure end here; the next failure writes its own.
FORGOTTEN = frozenset(
    {names.ATTEMPT, names.FIRST_FAILED_AT, names.DUE, names.REDRIVES, names.WORKER}
)


class NotRedrivable(Exception):
    """One sentence why this letter cannot be sent again."""


def again(
    letter: DeadLetter, *, value: bytes | None, most_redrives: int = MOST_REDRIVES
) -> Outgoing[bytes, bytes]:
    """Returns the record to send. `value` is the letter's own, or an edited one."""
    if letter.origin_topic is None or letter.origin_partition is None or letter.group is None:
        raise NotRedrivable(f"{letter.name} does not say which group failed to handle it.")
    if letter.topic not in _topics_of(letter.origin_topic, letter.group):
        raise NotRedrivable(
            f"{letter.name} says that group {letter.group} failed to handle it in "
            f"{letter.origin_topic}, but it is not among its dead letters."
        )
    if value == letter.value and letter.header(names.DEAD_CUT) is not None:
        raise NotRedrivable(
            f"{letter.name} has only the beginning of a record that was too large for this topic; "
            f"the record is {letter.origin_topic}/{letter.origin_partition}/{letter.origin_offset}."
        )
    if letter.redrives >= most_redrives:
        raise NotRedrivable(
            f"{letter.name} came back {letter.redrives} times already; look at it, then use "
            "--most-redrives to send it again anyway."
        )
    return Outgoing(
        topic=retry_topic(letter.origin_topic, letter.group),
        value=value,
        key=letter.key,
        headers=_headers(letter),
        partition=letter.origin_partition,
    )


def _topics_of(topic: str, group: str) -> tuple[str, str]:
    """Where letters of the group are: beside the topic, or beside its wide one while the group's
    backlog is drained."""
    return dead_topic(topic, group), dead_topic(wide_topic(topic, group), group)


def _headers(letter: DeadLetter) -> HeaderList:
    kept = [
        (name, value)
        for name, value in letter.headers
        if name not in FORGOTTEN and not name.startswith(names.DEAD_PREFIX)
    ]
    if letter.header(names.ORIGIN) is None:
        origin = f"{letter.origin_topic}/{letter.origin_partition}/{letter.origin_offset}"
        kept.append((names.ORIGIN, origin.encode()))
    kept.append((names.REDRIVES, b"%d" % (letter.redrives + 1)))
    return kept
