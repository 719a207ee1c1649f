"""Files on this machine as the shipper follows them: found by pattern, known again after rotation.

A file is identified by device and inode, and by its first bytes and those before the read position:
inodes are reused, and a file may be emptied and filled again. A file that was renamed stays open
and is read to its end; one that was renamed while no shipper ran is searched for in its folder.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.services.shipping.followed import HEAD, TAIL, Followed, Position, fingerprint

# The suffixes of rotated files; their lines were read before.
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip", ".Z")

Key = tuple[int, int]  # device and inode
Stamp = tuple[int, int]  # size and time of the last write: equal if nothing was written
ANY_DEPTH = "**"


@dataclass(slots=True)
class OpenFile:
    """A file that is open, and what was read of it."""

    descriptor: int
    followed: Followed
    gone_since_ms: int | None = None  # no pattern finds it any more

    @property
    def key(self) -> Key:
        return self.followed.position.device, self.followed.position.inode

    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def is_rewritten(self) -> bool:
        """Returns whether the bytes that were read are no longer in the file: emptied, perhaps
        filled again."""
        followed = self.followed
        if self.size() < followed.read:
            return True
        tail = followed.tail
        return bool(tail) and os.pread(self.descriptor, len(tail), followed.read - len(tail)) != (
            tail
        )

    @property
    def stamp(self) -> Stamp:
        return stamp_of(os.fstat(self.descriptor))

    @property
    def has_a_name(self) -> bool:
        """Returns whether the file still has a name in a folder, whatever the name is."""
        return os.fstat(self.descriptor).st_nlink > 0

    def bytes_on_disk(self) -> int:
        return os.fstat(self.descriptor).st_blocks * 512

    def chunk(self, most: int) -> bytes:
        followed = self.followed
        return os.pread(self.descriptor, followed.may_read(most), followed.read)

    @property
    def is_known_by_its_head(self) -> bool:
        """Whether the first bytes that were read are kept, as far as they count."""
        return self.followed.position.head_size >= min(HEAD, self.followed.read)

    def keep_fingerprints(self, now_ms: int) -> Position:
        """Returns the position with the bytes by which the file is recognized."""
        position = self.followed.position
        if self.size() < self.followed.read:
            return position  # emptied a moment ago: what is known of it stays
        if not self.is_known_by_its_head:
            head = os.pread(self.descriptor, min(HEAD, self.followed.read), 0)
            position.head_size, position.head = len(head), fingerprint(head)
        if position.checked_at != position.offset:
            position.check(position.offset, tail_before(self.descriptor, position.offset))
        position.size = self.size()
        position.kept_ms = now_ms
        return position

    def close(self) -> None:
        os.close(self.descriptor)


def tail_before(descriptor: int, offset: int) -> bytes:
    size = min(TAIL, offset)
    return os.pread(descriptor, size, offset - size)


def is_mid_line(descriptor: int, offset: int) -> bool:
    return tail_before(descriptor, offset)[-1:] not in (b"", b"\n")


def fits(position: Position, descriptor: int) -> bool:
    """Whether the open file is the one that the position was kept for."""
    head = os.pread(descriptor, HEAD, 0)
    tail = tail_before(descriptor, position.checked_at)
    return position.fits(head, tail, os.fstat(descriptor).st_size)


def looks_like(position: Position, descriptor: int) -> bool:
    """Whether the open file may be a copy of it."""
    head = os.pread(descriptor, HEAD, 0)
    tail = tail_before(descriptor, position.checked_at)
    return position.looks_like(head, tail, os.fstat(descriptor).st_size)


@dataclass(slots=True)
class Found:
    """A path that a pattern names; `why_not` says why it cannot be followed."""

    path: str
    key: Key = (0, 0)
    why_not: str | None = None
    stamp: Stamp = (0, 0)


def find(patterns: list[str]) -> Iterator[Found]:
    """The files of all patterns, each once; what cannot be followed too."""
    seen: set[Key] = set()
    for pattern in patterns:
        for path in sorted(matching(pattern)):
            found = _look(os.path.abspath(path), is_named=path == pattern)
            if found is not None and (found.why_not is not None or found.key not in seen):
                seen.add(found.key)
                yield found


def matching(pattern: str) -> Iterator[str]:
    """`**` are all folders below, but not those behind links: a link to a folder above would give
    the same files again, for ever deeper paths."""
    before, any_depth, behind = _parted(pattern)
    if not any_depth:
        yield from glob.iglob(pattern)
        return
    for base in glob.iglob(before) if before else [""]:
        for folder, _, _ in os.walk(base or os.curdir):
            yield from matching(os.path.join(glob.escape(folder), behind or "*"))


def _parted(pattern: str) -> tuple[str, bool, str]:
    """The part before the first `**`, whether there is one, and the part after it."""
    parts = pattern.split(os.sep)
    if ANY_DEPTH not in parts:
        return pattern, False, ""
    at = parts.index(ANY_DEPTH)
    before = os.sep.join(parts[:at]) or (os.sep if pattern.startswith(os.sep) else "")
    return before, True, os.sep.join(parts[at + 1 :])


def stamp_of(about: os.stat_result) -> Stamp:
    return about.st_size, about.st_mtime_ns


def _look(path: str, *, is_named: bool) -> Found | None:
    try:
        about = os.stat(path)
    except FileNotFoundError:
        return None  # renamed between two looks
    except OSError as failure:
        return Found(path, why_not=failure.strerror)
    if stat.S_ISDIR(about.st_mode):
        return (
            Found(path, why_not=f"it is a folder; name its files, as '{path}/*.log'")
            if (is_named)
            else None
        )
    if not stat.S_ISREG(about.st_mode):
        return Found(path, why_not="it is not a plain file; pipe it into `headrace ship logs -`")
    if path.endswith(COMPRESSED):
        return Found(path, why_not="it is compressed")
    return Found(path, (about.st_dev, about.st_ino), stamp=stamp_of(about))


def opened(path: str) -> tuple[int, Key]:
    """Raises OSError. The key is that of the file that was opened: names move."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    about = os.fstat(descriptor)
    return descriptor, (about.st_dev, about.st_ino)


def renamed(position: Position) -> str | None:
    """Returns the new path of a file that was renamed within its folder, or within the folder of
    its link's target; None if it is not found."""
    folders = [os.path.dirname(one) for one in (position.path, position.real) if one]
    for folder in dict.fromkeys(folders):
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.inode() == position.inode and entry.is_file(follow_symlinks=False):
                        return entry.path
        except OSError:
            continue
    return None


def has_wildcard(pattern: str) -> bool:
    return glob.has_magic(pattern)
