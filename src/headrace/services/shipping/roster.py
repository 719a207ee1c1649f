"""Which files are followed now: found, known again, rotated, emptied, copied, gone.

Finds out what is there and gives each file its `OpenFile`; reads no line. Its messages go to
`note`, once for each file and reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.services.shipping import files
from headrace.services.shipping.counters import Counters
from headrace.services.shipping.files import Key, OpenFile, Stamp
from headrace.services.shipping.followed import Followed, Position

# After this long without a byte, a file that no pattern finds any more is let go: one that was
# deleted soon, one that was renamed when its program has surely opened another one.
DELETED_WAIT_MS, RENAMED_WAIT_MS = 5_000, 10 * 60_000
# A file without new writes is closed; then only its size and time are looked at.
REST_MS = 5 * 60_000
# A file that looks like a copy of a followed file waits this long for the other to be emptied.
COPY_WAIT_MS = 10_000
# Positions of files that are gone are forgotten after a day, and at once beyond so many.
FORGET_MS = 86_400_000
MOST_POSITIONS = 20_000
MOST_FILES = 4_000
# The disk space of deleted files that wait to be read.
MOST_DELETED_BYTES = 1024**3


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
    wall_ms: Callable[[], int]
    most_deleted_bytes: int = MOST_DELETED_BYTES
    open: dict[Key, OpenFile] = field(default_factory=dict)
    kept: dict[Key, Position] = field(default_factory=dict)  # not open
    emptied: list[Position] = field(default_factory=list)  # a copy of them may be found
    leftovers: list[tuple[int, Followed]] = field(default_factory=list)  # of those, since when
    is_new: bool = False  # something must be kept before lines are sent
    resting: dict[Key, Stamp] = field(default_factory=dict)  # of `kept`, those closed meanwhile
    is_crowded: bool = False  # there are more files than may be open
    _told: set[tuple[str, str]] = field(default_factory=set)
    _copies: dict[Key, int] = field(default_factory=dict)  # since when they wait

    @property
    def waits(self) -> bool:
        """Whether a file is there that is not followed yet: perhaps a copy, or one too many."""
        return bool(self._copies) or self.is_crowded

    def load(self, positions: list[Position]) -> None:
        self.kept = {(one.device, one.inode): one for one in positions if not one.emptied}
        self.emptied = [one for one in positions if one.emptied]

    def positions(self) -> list[Position]:
        """All that is known, with what is open as it is now."""
        now_ms = self.wall_ms()
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
            self.resting.pop(key, None)

    # ---- a look at what is there

    def look(self, now_ms: int, *, first: bool = False) -> None:
        """Looks for files. `now_ms` is of a monotonic clock."""
        seen: set[Key] = set()
        self.is_crowded = False
        for found in files.find(self.patterns):
            if found.why_not is not None:
                self._tell(found.path, found.why_not)
                continue
            seen.add(found.key)
            if found.key in self.open:
                self._still_there(self.open[found.key], found.path)
            elif self._rests(found):
                self.kept[found.key].path, self.kept[found.key].kept_ms = found.path, self.wall_ms()
            elif len(self.open) >= MOST_FILES:
                self.is_crowded = True
                self._tell("more files", f"{MOST_FILES:,} are open; they wait until others rest")
            else:
                self._open(found.path, now_ms, first=first)
        for key, one in self.open.items():
            if key not in seen and one.gone_since_ms is None:
                one.gone_since_ms = now_ms
        if first:
            self._look_for_renamed([key for key in self.kept if key not in seen], now_ms)
            self._tell_of_missing()
        elif moved := [key for key in self.resting if key not in seen]:
            self._look_for_renamed(moved, now_ms)
        self._give_up_deleted()

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
        position.real = os.path.realpath(path) if os.path.islink(path) else ""
        self._follow(descriptor, position)

    def _position(
        self, path: str, descriptor: int, key: Key, now_ms: int, *, first: bool
    ) -> Position | None:
        """Returns the stored position, or that of the file of which it is a copy, or a new one;
        None: wait."""
        known = self.kept.get(key)
        if known is not None and files.fits(known, descriptor):
            known.path = path
            return known
        if known is not None:
            self.note(
                f"{path} was emptied or replaced while no shipper ran: reading from its start."
            )
            self._emptied(known)
        for old in self.emptied:
            if files.looks_like(old, descriptor):
                self.emptied.remove(old)
                self.note(f"{path} is the copy of {old.path}: continuing at byte {old.offset:,}.")
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
        if not first:
            for one in self.open.values():
                one.keep_fingerprints(self.wall_ms())
        others = [one.followed.position for one in self.open.values()]
        others += [self.kept[resting] for resting in self.resting]
        if any(files.looks_like(one, descriptor) for one in others):
            since = self._copies.setdefault(key, now_ms)
            if now_ms - since < COPY_WAIT_MS:
                return True
        self._copies.pop(key, None)
        return False

    def _follow(self, descriptor: int, position: Position) -> OpenFile:
        position.ended = False
        self.resting.pop((position.device, position.inode), None)
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
        """The file was emptied while it was followed: what comes now is another file of the same
        name."""
        followed, position = one.followed, one.followed.position
        lost = position.size - followed.read
        self.note(
            f"{position.path} was emptied: continuing at its start."
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
        """Notes an emptied file: its copy, if one is found, continues where writing ended."""
        self.kept.pop((position.device, position.inode), None)
        self.resting.pop((position.device, position.inode), None)
        position.emptied = True
        self.emptied = [*self.emptied[-99:], position]

    def without_copy(self, now_ms: int, wait_ms: int = COPY_WAIT_MS) -> list[Followed]:
        """Emptied files of which no copy was found: what was read of them is all there is."""
        due = [followed for since_ms, followed in self.leftovers if now_ms - since_ms >= wait_ms]
        self.leftovers = [one for one in self.leftovers if one[1] not in due]
        return due

    def is_over(self, one: OpenFile, now_ms: int) -> bool:
        """Returns whether it was renamed or deleted, read to its end, and has had no writes for a
        while."""
        gone, quiet_since = one.gone_since_ms, one.followed.last_byte_ms
        if gone is None:
            return False
        wait_ms = RENAMED_WAIT_MS if one.has_a_name else DELETED_WAIT_MS
        return now_ms - max(gone, quiet_since) >= wait_ms

    def let_go(self, one: OpenFile) -> None:
        self._close(one).ended = True

    def _close(self, one: OpenFile) -> Position:
        position = one.keep_fingerprints(self.wall_ms())
        del self.open[one.key]
        self.kept[one.key] = position
        one.close()
        self.counters.files_closed += 1
        return position

    def may_rest(self, one: OpenFile, now_ms: int) -> bool:
        """Returns whether all of it is written to the topic, and it has no new writes."""
        if one.gone_since_ms is not None or not one.followed.is_all_written:
            return False
        return self.is_crowded or now_ms - one.followed.last_byte_ms >= REST_MS

    def rest(self, one: OpenFile) -> None:
        """Close it until it is written to again. A file that was written to after its last byte
        was read has another stamp than its position, and is opened by the next look."""
        stamp = one.stamp
        if stamp[0] == one.followed.read:
            self.resting[one.key] = stamp
            self._close(one)

    def _rests(self, found: files.Found) -> bool:
        return self.resting.get(found.key) == found.stamp

    def fails(self, one: OpenFile, failure: OSError) -> None:
        """The file cannot be read now: the next look opens it again, from what is written."""
        path = one.followed.position.path
        self._tell(path, failure.strerror or str(failure))
        del self.open[one.key]
        self.kept[one.key] = one.followed.position
        one.close()

    def _give_up_deleted(self) -> None:
        """The disk gets back what deleted files take only when they are closed."""
        deleted = [one for one in self.open.values() if one.gone_since_ms is not None]
        deleted = [one for one in deleted if not one.has_a_name]
        held = sum(one.bytes_on_disk() for one in deleted)
        for one in sorted(deleted, key=lambda one: one.gone_since_ms or 0):
            if held <= self.most_deleted_bytes:
                return
            held -= one.bytes_on_disk()
            rest = one.size() - one.followed.read
            if rest > 0:
                self._lose(
                    one.followed.position, rest, "was deleted and takes too much of the disk"
                )
            self.let_go(one)

    def _lose(self, position: Position, rest: int, why: str) -> None:
        self.note(f"{position.path} {why}: {rest:,} bytes of it, or more, were not shipped.")
        self.counters.files_lost += 1

    def _look_for_renamed(self, keys: list[Key], now_ms: int) -> None:
        """Looks for files that were rotated away while no shipper followed them."""
        for key in keys:
            position, rested = self.kept[key], self.resting.pop(key, None) is not None
            if position.ended:
                continue
            path = files.renamed(position)
            if path is not None and not path.endswith(files.COMPRESSED):
                self._open_renamed(path, key, position, now_ms)
            elif position.size > position.offset:
                self._lose(position, position.size - position.offset, "is gone")
                position.ended = True
            else:
                position.ended = True
                if not rested:  # a resting file was whole a second ago
                    self.note(
                        f"{position.path} is gone; lines that were written to it while it was "
                        "not followed were not shipped."
                    )

    def _open_renamed(self, path: str, key: Key, position: Position, now_ms: int) -> None:
        try:
            descriptor, there = files.opened(path)
        except OSError as failure:
            self._tell(path, failure.strerror or str(failure))
            return
        if there != key or not files.fits(position, descriptor):
            os.close(descriptor)
            return
        position.path, position.real = path, ""
        del self.kept[key]
        self._follow(descriptor, position).gone_since_ms = now_ms

    # ---- what users are informed of

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
