"""Which files are followed now: found, known again, rotated, emptied, copied, gone.

Finds out what is there and gives each file its `OpenFile`; reads no line. What it has to tell goes
to `note`, once for each file and reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.services.shipping import files
from headrace.services.shipping.counters import Counters
from headrace.services.shipping.files import Key, OpenFile
from headrace.services.shipping.followed import Followed, Position

# After this long without a byte, a file that no pattern finds any more is let go.
ROTATE_WAIT_MS = 5_000
# What looks like a copy of a file that is still followed waits so long for that to be emptied.
COPY_WAIT_MS = 10_000
# Positions of files that are gone are forgotten after a day, and at once beyond so many.
FORGET_MS = 86_400_000
MOST_POSITIONS = 20_000
MOST_FILES = 4_000


@dataclass(slots=True, kw_only=True)
class Roster:
    """`new_id` names a file that was never seen before."""

    patterns: list[str]
    max_line: int
    joins: bool
    from_end: bool
    new_id: Callable[[], str]
    note: Callable[[str], None]
    counters: Counters
    open: dict[Key, OpenFile] = field(default_factory=dict)
    kept: dict[Key, Position] = field(default_factory=dict)  # not open
    emptied: list[Position] = field(default_factory=list)  # a copy of them may be found
    leftovers: list[tuple[int, Followed]] = field(default_factory=list)  # of those, since when
    is_new: bool = False  # something must be kept before lines are sent
    _told: set[tuple[str, str]] = field(default_factory=set)
    _copies: dict[Key, int] = field(default_factory=dict)  # since when they wait

    @property
    def waits(self) -> bool:
        """Whether a file is there that is perhaps a copy, and not followed yet."""
        return bool(self._copies)

    def load(self, positions: list[Position]) -> None:
        self.kept = {(one.device, one.inode): one for one in positions if not one.emptied}
        self.emptied = [one for one in positions if one.emptied]

    def positions(self, now_ms: int) -> list[Position]:
        """All that is known, with what is open as it is now."""
        for one in self.open.values():
            one.keep_fingerprints(now_ms)
        self._forget(now_ms)
        followed = [one.followed.position for one in self.open.values()]
        return [*followed, *self.kept.values(), *self.emptied]

    def _forget(self, now_ms: int) -> None:
        old = [key for key, one in self.kept.items() if now_ms - one.kept_ms > FORGET_MS]
        if (more := len(self.kept) - len(old) - MOST_POSITIONS) > 0:
            by_age = sorted(self.kept, key=lambda key: self.kept[key].kept_ms)
            old += by_age[: more + len(old)]
        for key in old:
            self.kept.pop(key, None)

    # ---- a look at what is there

    def look(self, now_ms: int, *, first: bool = False) -> None:
        seen: set[Key] = set()
        for found in files.find(self.patterns):
            if found.why_not is not None:
                self._tell(found.path, found.why_not)
                continue
            seen.add(found.key)
            if found.key in self.open:
                self._still_there(self.open[found.key], found.path)
            elif len(self.open) >= MOST_FILES:
                self._tell("more files", f"no more than {MOST_FILES:,} are followed at once")
            else:
                self._open(found.path, now_ms, first=first)
        for key, one in self.open.items():
            if key not in seen and one.gone_since_ms is None:
                one.gone_since_ms = now_ms
        if first:
            self._look_for_renamed(now_ms)
            self._tell_of_missing()

    def _still_there(self, one: OpenFile, path: str) -> None:
        one.gone_since_ms = None
        one.followed.position.path = path

    def _open(self, path: str, now_ms: int, *, first: bool) -> None:
        try:
            descriptor, key = files.opened(path)
        except FileNotFoundError:
            return
        except OSError as failure:
            self._tell(path, failure.strerror or str(failure))
            return
        if key in self.open:
            os.close(descriptor)
            return
        position = self._position(path, descriptor, key, now_ms, first=first)
        if position is None:
            os.close(descriptor)
            return
        self._told -= {one for one in self._told if one[0] == path}
        if first and self.from_end and position.offset == 0 and key not in self.kept:
            position.offset = os.fstat(descriptor).st_size
        self.kept.pop(key, None)
        self._follow(descriptor, position)

    def _position(
        self, path: str, descriptor: int, key: Key, now_ms: int, *, first: bool
    ) -> Position | None:
        """As it was kept, or that of which it is a copy, or a new one; None: wait and see."""
        known = self.kept.get(key)
        if known is not None and files.fits(known, descriptor):
            known.path = path
            return known
        if known is not None:
            self.note(f"{path} was emptied or replaced while nobody followed it: from its start.")
            self._emptied(known)
        for old in self.emptied:
            if files.looks_like(old, descriptor):
                self.emptied.remove(old)
                self.note(f"{path} is the copy of {old.path}: going on at byte {old.offset:,}.")
                return self._moved(old, path, key)
        if self._waits_as_copy(descriptor, key, now_ms, first=first):
            return None
        self.is_new = True
        return Position(self.new_id(), path, *key)

    def _moved(self, old: Position, path: str, key: Key) -> Position:
        old.path, (old.device, old.inode) = path, key
        old.ended = old.emptied = False
        self.leftovers = [one for one in self.leftovers if one[1].position is not old]
        self.is_new = True
        return old

    def _waits_as_copy(self, descriptor: int, key: Key, now_ms: int, *, first: bool) -> bool:
        """copytruncate: the copy is there before the file is emptied."""
        others = list(self.open.values())
        if not first:
            for one in others:
                one.keep_fingerprints(now_ms)
        if any(files.looks_like(one.followed.position, descriptor) for one in others):
            since = self._copies.setdefault(key, now_ms)
            if now_ms - since < COPY_WAIT_MS:
                return True
        self._copies.pop(key, None)
        return False

    def _follow(self, descriptor: int, position: Position) -> OpenFile:
        position.ended = False
        followed = Followed(
            position,
            most=self.max_line,
            joins=self.joins,
            mid=files.is_mid_line(descriptor, position.offset),
        )
        followed.tail = files.tail_before(descriptor, position.offset)
        one = OpenFile(descriptor, followed)
        self.open[one.key] = one
        self.counters.files_opened += 1
        return one

    # ---- files that change their place or their bytes

    def rewritten(self, one: OpenFile, now_ms: int) -> None:
        """It was emptied under us: what comes now is another file of the same name."""
        followed, position = one.followed, one.followed.position
        lost = position.size - followed.read
        self.note(
            f"{position.path} was emptied: going on at its start."
            + (f" {lost:,} bytes of it were not read: only a copy has them." if lost > 0 else "")
        )
        self.counters.rewritten += 1
        del self.open[one.key]
        position.check(followed.read, followed.tail)
        self._emptied(position)
        self.leftovers.append((now_ms, followed))
        fresh = Position(self.new_id(), position.path, position.device, position.inode)
        self._follow(one.descriptor, fresh)
        self.is_new = True

    def _emptied(self, position: Position) -> None:
        """Its copy, if one is found, goes on where writing ended."""
        self.kept.pop((position.device, position.inode), None)
        position.emptied = True
        self.emptied = [*self.emptied[-99:], position]

    def without_copy(self, now_ms: int, wait_ms: int = COPY_WAIT_MS) -> list[Followed]:
        """Emptied files of which no copy was found: what was read of them is all there is."""
        due = [followed for since_ms, followed in self.leftovers if now_ms - since_ms >= wait_ms]
        self.leftovers = [one for one in self.leftovers if one[1] not in due]
        return due

    def is_over(self, one: OpenFile, now_ms: int) -> bool:
        """Renamed or deleted, read to its end, and nobody has written to it for a while."""
        gone, quiet_since = one.gone_since_ms, one.followed.last_byte_ms
        return gone is not None and now_ms - max(gone, quiet_since) >= ROTATE_WAIT_MS

    def let_go(self, one: OpenFile, now_ms: int) -> None:
        position = one.keep_fingerprints(now_ms)
        position.ended = True
        del self.open[one.key]
        self.kept[one.key] = position
        one.close()
        self.counters.files_closed += 1

    def _look_for_renamed(self, now_ms: int) -> None:
        """Files that were rotated away while nobody followed them."""
        for key, position in list(self.kept.items()):
            if position.ended:
                continue
            path = files.renamed(position)
            if path is not None and not path.endswith(files.COMPRESSED):
                self._open_renamed(path, key, position, now_ms)
            elif position.size > position.offset:
                rest = position.size - position.offset
                self.note(
                    f"{position.path} is gone: {rest:,} bytes of it, or more, were not shipped."
                )
                self.counters.files_lost += 1
                position.ended = True

    def _open_renamed(self, path: str, key: Key, position: Position, now_ms: int) -> None:
        try:
            descriptor, there = files.opened(path)
        except OSError as failure:
            self._tell(path, failure.strerror or str(failure))
            return
        if there != key or not files.fits(position, descriptor):
            os.close(descriptor)
            return
        position.path = path
        del self.kept[key]
        self._follow(descriptor, position).gone_since_ms = now_ms

    # ---- what people are told

    def _tell(self, path: str, why: str) -> None:
        if (path, why) not in self._told and len(self._told) < MOST_POSITIONS:
            self._told.add((path, why))
            self.counters.not_followed += 1
            self.note(f"{path} is not followed: {why}.")

    def _tell_of_missing(self) -> None:
        for pattern in self.patterns:
            if files.has_wildcard(pattern):
                if not any(True for _ in files.find([pattern])):
                    self.note(f"No file matches {pattern} yet.")
            elif not os.path.lexists(pattern):
                self.note(f"There is no file {pattern} yet: it is followed once it is there.")

    def close(self) -> None:
        for one in self.open.values():
            one.close()
        self.open.clear()
