"""The journal of replays: a compacted topic with each copy's progress and each group's old offsets.

One entry per copy, written in the transaction that writes the copied records: a copy that was
stopped or killed continues exactly where it was. One entry per move of a group, written before the
move, with the offsets that the group had: they can be put back. Entries are kept for 90 days.
Unknown fields, which a later version may add, are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader

JOURNAL_TOPIC = "headrace.replay"
JOURNAL_SETTINGS = {"cleanup.policy": "compact,delete", "retention.ms": str(90 * 86_400_000)}

UNDER_WAY, DONE = "under way", "done"
MOVED, UNDONE = "moved", "undone"


@dataclass(slots=True)
class CopyEntry:
    """One copy of records: what it was asked for, and how far it is."""

    name: str
    topic: str
    topic_id: str  # a topic that is made anew has the same name and other records
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
        """For the name of a run that follows those of the same kind. Two commands that begin at
        once get the same one, so that one of them is fenced."""
        names = [e.name for e in self.copies.values() if e.to_topic == to_topic]
        names += [e.reason.rpartition(" ")[2] for e in self.moves]
        ends = [name.rpartition("/")[2] for name in names if name.startswith(prefix)]
        return 1 + max((int(end) for end in ends if end.isdecimal()), default=-1)


def ensure_journal(connection: ClientSettings) -> None:
    Topics(connection).ensure(JOURNAL_TOPIC, partitions=1, settings=JOURNAL_SETTINGS)


def read_journal(connection: ClientSettings) -> Journal:
    journal = Journal()
    moves: dict[bytes, GroupEntry] = {}
    if JOURNAL_TOPIC not in Topics(connection).cluster.topics:
        return journal
    with closing(RecordReader(connection, JOURNAL_TOPIC)) as reader:
        for record in reader.records():
            entry = parsed(record.key, record.value)
            if isinstance(entry, CopyEntry):
                journal.copies[entry.name] = entry
            elif entry is not None:
                moves[entry.key] = entry
            elif record.value is None:
                moves.pop(record.key or b"", None)  # a move that was refused after all
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


def parsed(key: bytes | None, value: bytes | None) -> CopyEntry | GroupEntry | None:
    """None for what is no entry: anybody who may write to the topic may have written it."""
    try:
        kind, _, name = (key or b"").decode().partition("/")
        fields = json.loads(value or b"")
        if kind == "copy":
            return CopyEntry(
                name=name,
                topic=str(fields["topic"]),
                topic_id=str(fields["topic_id"]),
                to_topic=str(fields["to_topic"]),
                asked=dict(fields["asked"]),
                next={int(p): int(offset) for p, offset in fields["next"].items()},
                ends={int(p): int(offset) for p, offset in fields["ends"].items()},
                by=str(fields["by"]),
                began_at_ms=int(fields["began_at_ms"]),
                at_ms=int(fields["at_ms"]),
                state=str(fields["state"]),
                copied=int(fields["copied"]),
                passed_over=int(fields["passed_over"]),
                looped=int(fields["looped"]),
                deleted=int(fields.get("deleted", 0)),
                to_topic_id=str(fields.get("to_topic_id", "")),
            )
        if kind == "group":
            return GroupEntry(
                group=name.partition("/")[2],
                action=str(fields["action"]),
                former=_places(fields["former"]),
                given=_places(fields["given"]),
                by=str(fields["by"]),
                at_ms=int(fields["at_ms"]),
                reason=str(fields.get("reason", "")),
                topic_ids={str(t): str(i) for t, i in dict(fields.get("topic_ids", {})).items()},
                parking=str(fields.get("parking", "")),
            )
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def _places(given: list[Any]) -> list[tuple[str, int, int | None]]:
    return [
        (str(topic), int(partition), None if offset is None else int(offset))
        for topic, partition, offset in given
    ]
