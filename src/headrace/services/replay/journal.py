"""The journal of replays: a compacted topic with each copy's progress and each group's old offsets.

One entry per copy, written in the transaction that writes the copied records: a copy that was
stopped or killed continues exactly where it was. One entry per move of a group, written before the
move, with the offsets that the group had: they can be put back. Entries are kept for 90 days.
Unknown fields, which a later version may add, are ignored.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from headrace.client.admin.own_topics import OwnTopic, ensure_own
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader
from headrace.wire.contract.own_records import (
    LONGEST_NUMBER,
    OwnRecords,
    json_object,
    key_text,
    moment_ms,
    whole_number,
)

log = logging.getLogger(__name__)

JOURNAL_TOPIC = "headrace.replay"
JOURNAL_SETTINGS = {"cleanup.policy": "compact,delete", "retention.ms": str(90 * 86_400_000)}

UNDER_WAY, DONE = "under way", "done"
MOVED, UNDONE = "moved", "undone"


@dataclass(slots=True)
class CopyEntry:
    """One copy of records: what it was asked for, and how far it is."""

    name: str
    topic: str
    topic_id: str  # a topic that is created again has the same name and other records
    to_topic: str
    asked: dict[str, Any]  # the options as they were meant when it began
    next: dict[int, int]  # the next offset to read of each partition
    ends: dict[int, int]  # where the copy ends
    by: str
    began_at_ms: int
    at_ms: int = 0
    state: str = UNDER_WAY
    copied: int = 0
    passed_over: int = 0  # not meant by the conditions
    looped: int = 0  # had been there already
    deleted: int = 0  # offsets that were deleted before they were read
    to_topic_id: str = ""  # "": written by a version that did not look

    @property
    def key(self) -> bytes:
        return f"copy/{self.name}".encode()

    @property
    def left(self) -> int:
        """Offsets still to be read."""
        return sum(max(0, end - self.next[p]) for p, end in self.ends.items())


@dataclass(slots=True)
class GroupEntry:
    """One move of a group: the offsets it had, None where it had none, and those it was given."""

    group: str
    action: str  # MOVED or UNDONE
    former: list[tuple[str, int, int | None]]
    given: list[tuple[str, int, int | None]]
    by: str
    at_ms: int
    reason: str = ""
    topic_ids: dict[str, str] = field(default_factory=dict)  # of the topics above, at that time
    parking: str = ""  # the parking that this move completes or undoes

    @property
    def key(self) -> bytes:
        return f"group/{self.at_ms}/{self.group}".encode()


@dataclass(slots=True)
class Journal:
    copies: dict[str, CopyEntry] = field(default_factory=dict)
    moves: list[GroupEntry] = field(default_factory=list)  # the oldest first

    def last_move(self, group: str) -> GroupEntry | None:
        return next((each for each in reversed(self.moves) if each.group == group), None)

    def next_number(self, prefix: str, to_topic: str) -> int:
        """Returns a number for the name of the next run of this kind. Two commands that begin at
        once get the same one, so that one of them is fenced."""
        names = [e.name for e in self.copies.values() if e.to_topic == to_topic]
        names += [e.reason.rpartition(" ")[2] for e in self.moves]
        ends = [name.rpartition("/")[2] for name in names if name.startswith(prefix)]
        return 1 + max(
            (int(end) for end in ends if end.isdecimal() and len(end) < LONGEST_NUMBER), default=-1
        )


def ensure_journal(connection: ClientSettings) -> None:
    ensure_own(Topics(connection), OwnTopic(JOURNAL_TOPIC, 1, JOURNAL_SETTINGS))


def read_journal(connection: ClientSettings) -> Journal:
    journal = Journal()
    moves: dict[bytes, GroupEntry] = {}
    own = OwnRecords(JOURNAL_TOPIC, log)
    if JOURNAL_TOPIC not in Topics(connection).cluster.topics:
        return journal
    with closing(RecordReader(connection, JOURNAL_TOPIC)) as reader:
        for record in reader.records():
            if record.value is None:
                moves.pop(record.key or b"", None)  # a move that was refused after all
                continue
            entry = own.read(
                parsed, record.key, record.value, partition=record.partition, offset=record.offset
            )
            if isinstance(entry, CopyEntry):
                journal.copies[entry.name] = entry
            elif entry is not None:
                moves[entry.key] = entry
    journal.moves = list(moves.values())  # as they were written: clocks of two machines differ
    return journal


def written(entry: CopyEntry | GroupEntry) -> bytes:
    if isinstance(entry, CopyEntry):
        fields: Mapping[str, Any] = {
            name: getattr(entry, name) for name in CopyEntry.__slots__ if name != "name"
        }
    else:
        fields = {name: getattr(entry, name) for name in GroupEntry.__slots__ if name != "group"}
    return json.dumps(fields).encode()


def parsed(key: bytes | None, value: bytes | None) -> CopyEntry | GroupEntry:
    """Raises one of `own_records.FAULTS` for a record that is not an entry."""
    kind, _, name = key_text(key).partition("/")
    fields = json_object(value)
    if kind == "copy":
        return CopyEntry(
            name=name,
            topic=str(fields["topic"]),
            topic_id=str(fields["topic_id"]),
            to_topic=str(fields["to_topic"]),
            asked=dict(fields["asked"]),
            next=_offsets(fields["next"]),
            ends=_offsets(fields["ends"]),
            by=str(fields["by"]),
            began_at_ms=moment_ms(fields["began_at_ms"]),
            at_ms=moment_ms(fields["at_ms"]),
            state=str(fields["state"]),
            copied=whole_number(fields["copied"]),
            passed_over=whole_number(fields["passed_over"]),
            looped=whole_number(fields["looped"]),
            deleted=whole_number(fields.get("deleted", 0)),
            to_topic_id=str(fields.get("to_topic_id", "")),
        )
    if kind == "group":
        return GroupEntry(
            group=name.partition("/")[2],
            action=str(fields["action"]),
            former=_places(fields["former"]),
            given=_places(fields["given"]),
            by=str(fields["by"]),
            at_ms=moment_ms(fields["at_ms"]),
            reason=str(fields.get("reason", "")),
            topic_ids={str(t): str(i) for t, i in dict(fields.get("topic_ids", {})).items()},
            parking=str(fields.get("parking", "")),
        )
    raise ValueError("its key begins with neither copy/ nor group/")


def _offsets(given: dict[str, Any]) -> dict[int, int]:
    return {int(p[:LONGEST_NUMBER]): whole_number(offset) for p, offset in given.items()}


def _places(given: list[Any]) -> list[tuple[str, int, int | None]]:
    return [
        (str(topic), whole_number(partition), None if offset is None else whole_number(offset))
        for topic, partition, offset in given
    ]
