"""A dead letter in the form that users see, and which letters are selected.

The record is whole; the `headrace-dead-` headers say where it came from and why it was parked. A
record in a `.dead` topic without them was written by another program: it is shown, with blanks, and
cannot be sent again because its group is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headrace.app import headers as names
from headrace.client.records import HeaderList, Record
from headrace.wire.contract.headers import DEAD_ID

LetterId = tuple[int, int]  # partition and offset within the dead-letter topic


@dataclass(slots=True)
class DeadLetter:
    topic: str  # the dead-letter topic
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: HeaderList
    parked_at_ms: int | None
    error: str  # class of the exception; empty if unknown
    message: str
    stack: str
    attempts: int
    first_at_ms: int | None
    last_at_ms: int | None
    origin_topic: str | None
    origin_partition: int | None
    origin_offset: int | None
    group: str | None
    redrives: int

    @property
    def letter_id(self) -> LetterId:
        return (self.partition, self.offset)

    @property
    def is_one_of(self) -> str | None:
        """Letters for which this is equal are copies of one; None: there are no copies."""
        return self.header(DEAD_ID)

    @property
    def name(self) -> str:
        """How it is called in commands and in the record of what was done."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def reason(self) -> str:
        """The exception's own name and what it says; a sentence for a record of another program."""
        if not self.error and self.group is None:
            return "unknown: no app wrote this record"
        return f"{self.error.rpartition('.')[2]}: {self.message}"

    def header(self, name: str) -> str | None:
        found = next((value for key, value in reversed(self.headers) if key == name), None)
        return None if found is None else found.decode(errors="replace")


def without_copies(letters: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
    """Yields the first copy of each letter. A broker that is killed while it writes the letter of a
    share group writes it again."""
    seen: set[str] = set()
    for letter in letters:
        one = letter.is_one_of
        if one is None or one not in seen:
            yield letter
        if one is not None:
            seen.add(one)


def dead_letter(record: Record) -> DeadLetter:
    texts = {name: (value or b"").decode(errors="replace") for name, value in record.headers}
    return DeadLetter(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=list(record.headers),
        parked_at_ms=record.timestamp_ms,
        error=texts.get(names.DEAD_ERROR, ""),
        message=texts.get(names.DEAD_MESSAGE, ""),
        stack=texts.get(names.DEAD_STACK, ""),
        attempts=_number(texts.get(names.DEAD_ATTEMPTS)) or 0,
        first_at_ms=_number(texts.get(names.DEAD_FIRST_AT)),
        last_at_ms=_number(texts.get(names.DEAD_LAST_AT)),
        origin_topic=texts.get(names.DEAD_TOPIC) or None,
        origin_partition=_number(texts.get(names.DEAD_PARTITION)),
        origin_offset=_number(texts.get(names.DEAD_OFFSET)),
        group=texts.get(names.DEAD_GROUP) or None,
        redrives=_number(texts.get(names.REDRIVES)) or 0,
    )


def _number(text: str | None) -> int | None:
    """Reads a number. Headers are bytes that any client may have written."""
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > 18:
        return None
    return int(text)


@dataclass(slots=True)
class Selection:
    """Which letters are selected: all that meet every given condition."""

    letter_ids: frozenset[LetterId] | None = None
    key: bytes | None = None
    error: str | None = None  # a part of the exception's class or of its message
    headers: Mapping[str, str] = field(default_factory=dict)
    since_ms: int | None = None  # parked not before
    until_ms: int | None = None  # parked before

    def accepts(self, letter: DeadLetter) -> bool:
        if self.letter_ids is not None and letter.letter_id not in self.letter_ids:
            return False
        if self.key is not None and letter.key != self.key:
            return False
        if self.error is not None and self.error not in f"{letter.error}: {letter.message}":
            return False
        if any(letter.header(name) != text for name, text in self.headers.items()):
            return False
        return self._in_time(letter.parked_at_ms)

    def _in_time(self, parked_at_ms: int | None) -> bool:
        if self.since_ms is None and self.until_ms is None:
            return True
        if parked_at_ms is None:
            return False
        after = self.since_ms is None or parked_at_ms >= self.since_ms
        before = self.until_ms is None or parked_at_ms < self.until_ms
        return after and before
