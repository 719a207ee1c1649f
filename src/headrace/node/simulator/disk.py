"""A disk in memory that knows what was flushed, and what a power cut may leave of the rest.

A written byte is safe when its file is flushed; a name (made, renamed or removed) is safe when its
folder is flushed. `power_cut` makes a new disk of what is safe and of a part of what is not,
chosen by the `Random` that it is given: the same seed, the same disk.

- Of each page of a file that was written since the last flush, any number of the writes is kept,
  oldest first, and the last one of them may be torn. Pages are chosen one by one, so they are lost
  in any order. The size is one that the file has had since.
- Of the changes of names in a folder the first few are kept (`Names.IN_ORDER`, as a journal does),
  or any of them (`Names.IN_ANY_ORDER`). A rename is one change: it never leaves both names or
  none. Changes in two folders do not depend on each other.
- Flushed data is never touched: flipped bits are not its matter. A whole folder may break
  (`broken`): then all that is asked of its files raises EIO, and what they hold stays as it is.
- A full disk (`is_full`) lets no file grow and replaces none; it removes, renames and flushes.

`before_change` is called before anything is written, renamed, removed or flushed: a power cut can
be taken in the middle of whatever a node does. No threads, no clock but the one it is given.
Not done: moving an entry from one folder to another, hard links, a disk that fills up by itself.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from itertools import pairwise
from random import Random

from headrace.environment import Buffer, Now

PAGE = 512  # the smallest unit that a disk writes as a whole; torn all the same, to be strict


class Names(Enum):
    """Which changes of names in a folder a power cut keeps."""

    IN_ORDER = "in order"
    IN_ANY_ORDER = "in any order"


class Contents:
    """The bytes of a file, whatever its name is: now, and as of the last flush.

    Bytes behind `data` up to `size` are a hole and read as zeros: an index is a hole of 10 MB.
    """

    __slots__ = ("data", "size", "safe", "safe_size", "modified_ms", "_unsafe")

    def __init__(self, data: bytes = b"", size: int = 0) -> None:
        self.data = bytearray(data)
        self.size = max(size, len(data))
        self.safe = bytearray(data)
        self.safe_size = self.size
        self.modified_ms = 0
        # The writes since the last flush, in order: position, bytes, and the resulting size.
        self._unsafe: list[tuple[int, bytes, int]] = []

    def read(self, length: int, position: int) -> bytes:
        end = max(min(position + length, self.size), position)
        return bytes(self.data[position:end]).ljust(end - position, b"\0")

    def write(self, data: bytes, position: int) -> None:
        self.size = max(self.size, position + len(data))
        self._unsafe.append((position, data, self.size))
        _put(self.data, data, position)

    def resize(self, size: int) -> None:
        """Truncated bytes are lost even if the file grows again: it has zeros there then."""
        zeros = bytes(max(len(self.data) - size, 0))
        self.size = size
        self._unsafe.append((size, zeros, size))
        del self.data[size:]

    def flush(self) -> None:
        for position, data, _ in self._unsafe:
            _put(self.safe, data, position)
        del self.safe[len(self.data) :]
        self.safe_size = self.size
        self._unsafe.clear()

    def is_safe(self) -> bool:
        return not self._unsafe

    def after_power_cut(self, random: Random) -> Contents:
        if not self._unsafe:
            return self._copy(bytes(self.safe), self.safe_size)
        size = random.choice([self.safe_size, *(size for _, _, size in self._unsafe)])
        left = bytearray(self.safe)
        for writes in self._writes_by_page().values():
            kept = writes[: random.randrange(len(writes) + 1)]
            for position, data in kept[:-1]:
                _put(left, data, position)
            if kept:
                position, data = kept[-1]
                torn = random.random() < 0.25
                _put(left, data[: random.randrange(len(data))] if torn else data, position)
        return self._copy(bytes(left[:size]), size)

    def _copy(self, data: bytes, size: int) -> Contents:
        copy = Contents(data, size)
        copy.modified_ms = self.modified_ms
        return copy

    def _writes_by_page(self) -> dict[int, list[tuple[int, bytes]]]:
        pages: dict[int, list[tuple[int, bytes]]] = {}
        for position, data, _ in self._unsafe:
            end = position + len(data)
            borders = [position, *range(position - position % PAGE + PAGE, end, PAGE), end]
            for begin, stop in pairwise(borders):
                if begin < stop:
                    piece = data[begin - position : stop - position]
                    pages.setdefault(begin // PAGE, []).append((begin, piece))
        return pages


class Folder:
    """Names and the files or folders that they name: now, and as of the last flush."""

    __slots__ = ("entries", "safe", "_unsafe")

    def __init__(self) -> None:
        self.entries: dict[str, Contents | Folder] = {}
        self.safe: dict[str, Contents | Folder] = {}
        # Since the last flush, in order; None takes a name away.
        self._unsafe: list[dict[str, Contents | Folder | None]] = []

    def change(self, changes: dict[str, Contents | Folder | None]) -> None:
        self._unsafe.append(changes)
        _apply(changes, self.entries)

    def flush(self) -> None:
        self.safe = dict(self.entries)
        self._unsafe.clear()

    def is_safe(self) -> bool:
        return not self._unsafe and all(entry.is_safe() for entry in self.entries.values())

    def after_power_cut(self, random: Random, names: Names) -> Folder:
        kept = dict(self.safe)
        first = random.randrange(len(self._unsafe) + 1)
        for number, changes in enumerate(self._unsafe):
            if number < first if names is Names.IN_ORDER else random.random() < 0.5:
                _apply(changes, kept)
        left = Folder()
        for name in sorted(kept):
            entry = kept[name]
            if isinstance(entry, Folder):
                left.entries[name] = entry.after_power_cut(random, names)
            else:
                left.entries[name] = entry.after_power_cut(random)
        left.safe = dict(left.entries)
        return left


class VirtualFile:
    """One open file; see `environment.File`. It stays valid after its name was removed."""

    __slots__ = ("path", "size", "_disk", "_contents")

    def __init__(self, path: str, contents: Contents, disk: VirtualDisk) -> None:
        self.path = path
        self.size = contents.size
        self._contents = contents
        self._disk = disk

    def fileno(self) -> int:
        raise OSError("a file in memory has no descriptor")

    def append(self, data: Buffer) -> None:
        self.write_at(data, self.size)

    def append_all(self, pieces: Sequence[Buffer]) -> None:
        self.append(b"".join(pieces))

    def read(self, length: int, position: int) -> bytes:
        self._disk.require(self.path, is_open=True)
        return self._contents.read(length, position)

    def write_at(self, data: Buffer, position: int) -> None:
        self._disk.require(self.path, is_open=True)
        if position + len(bytes(data)) > self._contents.size:
            self._disk.require_room()
        self._disk.about_to_change()
        self._contents.write(bytes(data), position)
        self._contents.modified_ms = self._disk.now.wall_ms
        self.size = self._contents.size

    def resize(self, size: int) -> None:
        self._disk.require(self.path, is_open=True)
        self._disk.about_to_change()
        self._contents.resize(size)
        self.size = size

    def flush(self) -> None:
        self._disk.require(self.path, is_open=True)
        self._disk.about_to_change()
        self._contents.flush()

    def close(self) -> None:
        pass


class VirtualDisk:
    """Folders and files by path; see `environment.Disk`."""

    def __init__(self, now: Now, root: Folder | None = None) -> None:
        self.now = now
        self.before_change: Callable[[], None] | None = None
        self.changes = 0  # how many there were, flushes included
        self.broken: set[str] = set()  # folders
        self.is_full = False  # files do not grow, and no small one is written
        self._root = Folder() if root is None else root

    def power_cut(self, random: Random, now: Now, names: Names = Names.IN_ORDER) -> VirtualDisk:
        """The state that the next start may find; this disk continues as if nothing had
        happened."""
        left = VirtualDisk(now, self._root.after_power_cut(random, names))
        left.broken, left.is_full = set(self.broken), self.is_full
        return left

    def is_flushed(self) -> bool:
        """Returns whether a power cut would lose nothing."""
        return self._root.is_safe()

    def require(self, path: str, *, is_open: bool = False) -> None:
        """A call on an open file names it as little as the system does."""
        if self.broken and self.is_broken(path):
            names = () if is_open else (path,)
            raise OSError(errno.EIO, "Input/output error", *names)

    def require_room(self, path: str | None = None) -> None:
        if self.is_full:
            names = () if path is None else (path,)
            raise OSError(errno.ENOSPC, "No space left on device", *names)

    def is_broken(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{folder}/") for folder in self.broken)

    def about_to_change(self) -> None:
        if self.before_change is not None:
            self.before_change()
        self.changes += 1

    def open(self, path: str, *, create: bool = False) -> VirtualFile:
        folder, name = self._folder_and_name(path)
        found = folder.entries.get(name)
        if found is None and create:
            found = self._new(folder, name)
        return VirtualFile(path, _file(found, path), self)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def size(self, path: str) -> int:
        return _file(self._find(path), path).size

    def modified_ms(self, path: str) -> int:
        return _file(self._find(path), path).modified_ms

    def list(self, folder: str) -> list[str]:
        self.require(folder)
        found = self._find(folder)
        return sorted(found.entries) if isinstance(found, Folder) else []

    def make_folder(self, path: str) -> None:
        self.require(path)
        folder = self._root
        for name in _parts(path):
            found = folder.entries.get(name)
            if found is None:
                self.require_room(path)
                found = Folder()
                self.about_to_change()
                folder.change({name: found})
            if not isinstance(found, Folder):
                raise NotADirectoryError(path)
            folder = found

    def rename(self, old: str, new: str) -> None:
        folder, old_name = self._folder_and_name(old)
        to_folder, new_name = self._folder_and_name(new)
        assert folder is to_folder, "nothing moves from one folder to another"
        if old_name not in folder.entries:
            raise FileNotFoundError(old)
        self.about_to_change()
        folder.change({old_name: None, new_name: folder.entries[old_name]})

    def remove(self, path: str) -> None:
        found = self._find(path)
        if found is None:
            return
        _file(found, path)
        folder, name = self._folder_and_name(path)
        self.about_to_change()
        folder.change({name: None})

    def remove_folder(self, path: str) -> None:
        """Entry by entry, as a system does it: a power cut may come in between."""
        found = self._find(path)
        if not isinstance(found, Folder):
            return
        for name in sorted(found.entries):
            entry = f"{path}/{name}"
            if isinstance(found.entries[name], Folder):
                self.remove_folder(entry)
            else:
                self.remove(entry)
        parent, name = self._folder_and_name(path)
        self.about_to_change()
        parent.change({name: None})

    def read_file(self, path: str) -> bytes:
        self.require(path)
        found = _file(self._find(path), path)
        return found.read(found.size, 0)

    def write_file(self, path: str, pieces: Iterable[bytes], *, flush: bool = True) -> None:
        folder, name = self._folder_and_name(path)
        self.require_room(path)
        temporary = f"{name}.tmp"
        written = self._new(folder, temporary)
        for piece in pieces:
            self.about_to_change()
            written.write(bytes(piece), written.size)
        written.modified_ms = self.now.wall_ms
        if flush:
            self.about_to_change()
            written.flush()
        self.about_to_change()
        folder.change({temporary: None, name: written})
        if flush:
            self.about_to_change()
            folder.flush()

    def flush_folder(self, path: str) -> None:
        self.require(path)
        found = self._find(path)
        if not isinstance(found, Folder):
            raise FileNotFoundError(path)
        self.about_to_change()
        found.flush()

    def _new(self, folder: Folder, name: str) -> Contents:
        made = Contents()
        made.modified_ms = self.now.wall_ms
        self.about_to_change()
        folder.change({name: made})
        return made

    def _find(self, path: str) -> Contents | Folder | None:
        found: Contents | Folder | None = self._root
        for name in _parts(path):
            if not isinstance(found, Folder):
                return None
            found = found.entries.get(name)
        return found

    def _folder_and_name(self, path: str) -> tuple[Folder, str]:
        """The folder that holds this name."""
        self.require(path)
        above, _, name = path.rstrip("/").rpartition("/")
        folder = self._find(above)
        if not isinstance(folder, Folder):
            raise FileNotFoundError(path)
        return folder, name


def _parts(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _file(found: Contents | Folder | None, path: str) -> Contents:
    if found is None:
        raise FileNotFoundError(path)
    if isinstance(found, Folder):
        raise IsADirectoryError(path)
    return found


def _put(into: bytearray, data: bytes, position: int) -> None:
    if not data:
        return
    if len(into) < position:
        into.extend(bytes(position - len(into)))
    into[position : position + len(data)] = data


def _apply(
    changes: dict[str, Contents | Folder | None], names: dict[str, Contents | Folder]
) -> None:
    for name, entry in changes.items():
        if entry is None:
            names.pop(name, None)
        else:
            names[name] = entry
