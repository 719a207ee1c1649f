"""Everything the core may ask of the world: clocks, a disk, and other nodes.

The core takes these as arguments and never reaches for the real thing, so the same code runs on a
real machine (`node/process/`) and on a simulated one. No behaviour lives here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview


@dataclass(slots=True)
class Now:
    """Both clocks, read once per turn of the loop.

    `monotonic_ms` is for timeouts and deadlines; it never jumps. `wall_ms` is for timestamps and
    retention; tests and operators may move it.
    """

    monotonic_ms: int
    wall_ms: int


class File(Protocol):
    """An open file. Writes only ever append; only index files are written in place."""

    path: str
    size: int  # bytes written so far, kept by the File; not a system call

    def fileno(self) -> int: ...

    def append(self, data: Buffer) -> None:
        """Append all of `data`, or raise OSError and leave the file truncated to `size`."""
        ...

    def append_all(self, pieces: Sequence[Buffer]) -> None:
        """Append several pieces in one write."""
        ...

    def read(self, length: int, position: int) -> bytes:
        """At most `length` bytes from `position`; shorter only at the end of the file."""
        ...

    def write_at(self, data: Buffer, position: int) -> None: ...

    def resize(self, size: int) -> None: ...

    def flush(self) -> None:
        """fdatasync. May be called from another thread; everything else may not."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """Folders and files by path. Paths are plain strings made with "/"."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """Wall-clock time of the last write to a file."""
        ...

    def list(self, folder: str) -> list[str]:
        """Returns the names in `folder`, sorted; an empty list if the folder does not exist."""
        ...

    def make_folder(self, path: str) -> None: ...

    def rename(self, old: str, new: str) -> None:
        """Atomic; open Files of `old` stay valid."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; does nothing if it does not exist."""
        ...

    def remove_folder(self, path: str) -> None:
        """Remove a folder with all it holds."""
        ...

    def read_file(self, path: str) -> bytes: ...

    def write_file(self, path: str, pieces: Iterable[bytes], *, flush: bool = True) -> None:
        """Replace `path` atomically: temporary file, fsync (unless `flush` is False), rename."""
        ...

    def flush_folder(self, path: str) -> None:
        """fsync of a folder, so that new names in it survive a power cut."""
        ...


@dataclass(slots=True)
class FileSlice:
    """A range of a file that a fetch response sends: the bytes stay in the file until the socket
    takes them."""

    file: File
    position: int
    length: int

    def __len__(self) -> int:
        return self.length


class Address(NamedTuple):
    """Where a node listens, and the name of that listener, which decides about TLS and the
    login."""

    host: str
    port: int
    listener: str = "PLAINTEXT"


class Peers(Protocol):
    """The other nodes, by their addresses."""

    def ask(
        self,
        to: Address,
        lane: str,
        messages: Any,
        request: Any,
        answered: Callable[[Any], None],
        *,
        timeout_ms: int,
        newest: int | None = None,
    ) -> None:
        """Send a request of `headrace.wire.protocol.messages` in the newest version that both sides
        know, `newest` at most. It leaves when all writes of this turn are done.

        `answered` is called once, in a later turn, with the answer or with None: no answer came,
        and it is not known whether the request was carried out. Requests of one lane arrive in
        their order, each after the answers to those before it; lanes do not wait for each other.
        """
        ...
