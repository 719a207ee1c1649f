"""One followed file: the read part, the written part, and the next position. Pure.

Bytes go in, groups of lines come out, ends of records come back. `position` is after the last
record before which all are written: a shipper that is started again continues there, and sends
later records again under the same ids. Ids are the file's own id and the place of the first byte;
the own id is given when the file is first seen and is kept, before anything is sent, so a file that
is emptied and filled again gets another one.

Where a group ends follows from the lines, with one exception: after a pause a group is sent though
the next line might have belonged to it. Such a place (`cuts`) is kept before the group is sent, and
ends the group when the file is read again too; without it two texts could have the same id, and the
second would be dropped as a repeat.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, field, fields
from typing import Any

from headrace.services.shipping.line_groups import Group, Joiner
from headrace.services.shipping.lines import Splitter

HEAD = 256  # bytes at the beginning by which a file is known again
TAIL = 64  # bytes before the place of reading, which must still be there
# Two small files may begin alike by chance: below this many bytes none is taken for a copy.
LEAST_HEAD_OF_COPY = 32


def fingerprint(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


@dataclass(slots=True)
class Position:
    """The stored state of a file."""

    id: str
    path: str
    device: int
    inode: int
    head_size: int = 0
    head: str = fingerprint(b"")
    offset: int = 0
    checked_at: int = 0  # the bytes before this place are known by `tail`
    tail_size: int = 0
    tail: str = fingerprint(b"")
    size: int = 0  # of the file when it was last looked at
    cuts: list[int] = field(default_factory=list)
    ended: bool = False  # read to its end and let go
    emptied: bool = False  # its bytes are gone, but a copy may have them
    kept_ms: int = 0
    real: str = ""  # the path of the file itself, if `path` is a link

    def fits(self, head: bytes, tail: bytes, size: int) -> bool:
        """Whether a file with these first bytes, and these before `checked_at`, is this one."""
        return (
            size >= max(self.offset, self.checked_at)
            and fingerprint(head[: self.head_size]) == self.head
            and (not self.tail_size or fingerprint(tail[-self.tail_size :]) == self.tail)
        )

    def standing(self) -> object:
        """A value that is equal for two positions of which only one needs to be kept."""
        state = (self.device, self.inode, self.offset, self.size, tuple(self.cuts))
        return self.id, self.path, state, self.head_size, self.ended, self.emptied

    def check(self, at: int, tail: bytes) -> None:
        """From now on the file is recognized by the bytes before this place."""
        self.checked_at, self.tail_size, self.tail = at, len(tail), fingerprint(tail)

    def looks_like(self, head: bytes, tail: bytes, size: int) -> bool:
        """Whether a file may be a copy of this one, made before this one was emptied."""
        return self.head_size >= LEAST_HEAD_OF_COPY and self.fits(head, tail, size)


def position_of(document: dict[str, Any]) -> Position:
    """As `dataclasses.asdict` makes it; raises TypeError or ValueError if it is none."""
    position = Position(**document)
    for one in fields(Position):
        value = getattr(position, one.name)
        if one.name == "cuts":
            right = isinstance(value, list) and all(_is_offset(at) for at in value)
        else:
            right = _is_offset(value) if one.type == "int" else type(value).__name__ == one.type
        if not right:
            raise ValueError(f"{one.name} is {value!r}")
    return position


def _is_offset(value: object) -> bool:
    return type(value) is int and value >= 0


class Sent:
    """One record on its way."""

    __slots__ = ("end", "is_written")

    def __init__(self, end: int) -> None:
        self.end = end
        self.is_written = False


class Followed:
    """A followed file. `most` is the longest line; `mid`: `position` is within a line that
    was cut."""

    def __init__(self, position: Position, *, most: int, joins: bool, mid: bool = False) -> None:
        self.position = position
        self._most, self._joins = most, joins
        self.tail = b""  # the last bytes that were read
        self.open: deque[Sent] = deque()
        self.last_byte_ms = 0
        self._begin(mid)

    def _begin(self, mid: bool) -> None:
        self.read = self.position.offset
        self._splitter = Splitter(self.read, self._most, mid=mid)
        self._joiner = Joiner(joins=self._joins)
        self._cuts = deque(one for one in sorted(self.position.cuts) if one > self.read)

    def rewind(self, *, mid: bool) -> None:
        """Reads again what is not written; what was already sent of it no longer counts."""
        self.open.clear()
        self.tail = b""
        self._begin(mid)

    # ---- reading

    def may_read(self, most: int) -> int:
        """Returns how many bytes may be read: not across a place where a group was cut."""
        return min(most, self._cuts[0] - self.read) if self._cuts else most

    def feed(self, chunk: bytes, now_ms: int) -> list[Group]:
        """Returns the groups that are complete with these bytes."""
        self.read += len(chunk)
        self.tail = (self.tail + chunk[-TAIL:])[-TAIL:]
        self.last_byte_ms = now_ms
        start = self._splitter.offset
        whole = self._splitter.whole_lines(chunk)
        if whole is not None:
            found = self._joiner.add_whole(start, whole)
        else:
            lines = self._splitter.feed(chunk)
            found = [group for line in lines for group in self._joiner.add(line)]
        if self._cuts and self.read == self._cuts[0]:
            self._cuts.popleft()
            found += self._rest()
        return found

    def pause(self, now_ms: int, quiet_ms: int) -> bool:
        """Whether a group has waited long enough for its next line; then its end is a cut, to be
        kept before `after_pause` gives the group."""
        if not self._joiner.waits or now_ms - self.last_byte_ms < quiet_ms:
            return False
        self._cut_at(self._splitter.offset)
        return True

    def after_pause(self) -> list[Group]:
        return self._joiner.flush()

    def finish(self) -> bool:
        """No byte follows: all that is left is to be given by `at_end`, once this is kept."""
        if not self._joiner.waits and not self._splitter.waiting:
            return False
        self._cut_at(self.read)
        return True

    def at_end(self) -> list[Group]:
        return self._rest()

    def _rest(self) -> list[Group]:
        found = [group for line in self._splitter.flush() for group in self._joiner.add(line)]
        return found + self._joiner.flush()

    def _cut_at(self, at: int) -> None:
        if at not in self.position.cuts:
            self.position.cuts.append(at)

    # ---- sending

    def sending(self, end: int) -> Sent:
        sent = Sent(end)
        self.open.append(sent)
        return sent

    def skipped(self, end: int) -> None:
        """Nothing is sent of what ends here: blank lines."""
        sent = self.sending(end)
        self.written(sent)

    def written(self, sent: Sent) -> None:
        sent.is_written = True
        while self.open and self.open[0].is_written:
            self.position.offset = self.open.popleft().end
        if self.position.cuts:
            self.position.cuts = [one for one in self.position.cuts if one > self.position.offset]

    @property
    def is_all_written(self) -> bool:
        return self.position.offset == self.read
