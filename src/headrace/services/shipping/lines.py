"""Bytes of a file become lines with their places. Pure.

A line that is longer than `most` is cut into pieces of `most` bytes, or up to three less so that no
character is torn, each marked; nothing is left out. Where a line or piece begins and ends follows
from the bytes of the file alone, however they came in chunks, so a file that is read again gives
the same lines.
"""

from __future__ import annotations

from dataclasses import dataclass

BEGIN, MIDDLE, END = "begin", "middle", "end"
MOST_CONTINUED = 3  # bytes of a character behind its first


@dataclass(slots=True)
class Line:
    """`end` is behind its newline; `cut` says which piece of a longer line it is."""

    start: int
    end: int
    data: bytes
    cut: str | None = None


class Splitter:
    """Splits one file into lines, from `offset` on. `mid`: a piece of the line was taken before."""

    def __init__(self, offset: int, most: int, *, mid: bool = False) -> None:
        self.offset = offset  # where what is not a line yet begins
        self.most = most
        self._mid = mid
        self._rest = b""

    @property
    def waiting(self) -> int:
        """Bytes of an incomplete line."""
        return len(self._rest)

    def whole_lines(self, chunk: bytes) -> list[bytes] | None:
        """The lines that are whole with these bytes, from `offset` on and without their newlines,
        if none of them is a piece; otherwise None, and nothing is taken: `feed` takes it.

        The same lines as `feed` gives, without an object for each (a third of its time)."""
        if self._mid:
            return None
        data = self._rest + chunk if self._rest else chunk
        *ended, rest = data.split(b"\n")
        if len(rest) > self.most or (ended and max(map(len, ended)) > self.most):
            return None
        self._rest = rest
        self.offset += len(data) - len(rest)
        return ended

    def feed(self, chunk: bytes) -> list[Line]:
        data = self._rest + chunk if self._rest else chunk
        *ended, self._rest = data.split(b"\n")
        found: list[Line] = []
        for part in ended:
            if len(part) > self.most or self._mid:
                self._end_in_pieces(part, found)
            else:
                end = self.offset + len(part) + 1
                found.append(Line(self.offset, end, part))
                self.offset = end
        while len(self._rest) > self.most:
            self._rest = self._take_piece(self._rest, found)
        return found

    def flush(self) -> list[Line]:
        """Returns the rest as a line, though no newline came."""
        if not self._rest:
            return []
        end = self.offset + len(self._rest)
        line = Line(self.offset, end, self._rest, END if self._mid else None)
        self.offset, self._rest, self._mid = end, b"", False
        return [line]

    def _take_piece(self, data: bytes, found: list[Line]) -> bytes:
        """The rest of it."""
        size = whole_characters(data, self.most)
        found.append(self._piece(data[:size]))
        return data[size:]

    def _piece(self, data: bytes) -> Line:
        line = Line(self.offset, self.offset + len(data), data, MIDDLE if self._mid else BEGIN)
        self.offset, self._mid = line.end, True
        return line

    def _end_in_pieces(self, part: bytes, found: list[Line]) -> None:
        while len(part) > self.most:
            part = self._take_piece(part, found)
        end = self.offset + len(part) + 1
        found.append(Line(self.offset, end, part, END))
        self.offset, self._mid = end, False


def whole_characters(data: bytes, most: int) -> int:
    """Returns where to cut: at most at `most`, and before the UTF-8 character that it would
    split."""
    for size in range(most, max(0, most - MOST_CONTINUED - 1), -1):
        if data[size] & 0xC0 != 0x80:
            return size
    return most
