"""Documents of JSON one after the other, taken from a body that comes in pieces. Pure, bounded.

White space between them may be anything or nothing, as in v3's "concatenated JSON". A document is
given out as soon as it is whole; what is not whole yet is kept, at most `most_bytes` of it. Its
end is found by counting brackets outside of texts, so each byte is looked at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from headrace.services.http.refusal import BAD_REQUEST, TOO_LARGE, Refusal
from headrace.services.http.writes.writes import read_json

_OUTSIDE = re.compile(rb'["{}\[\]]')
_IN_TEXT = re.compile(rb'["\\]')
_NO_SPACE = re.compile(rb"[^ \t\r\n]")
_BACKSLASH, _QUOTE = b"\\"[0], b'"'[0]
_OPENING = b"{["


class JsonSequence:
    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._kept = b""  # what no document was made of yet
        self._at = 0  # looked at up to here
        self._depth = 0  # of brackets; 0: between documents
        self._in_text = False

    def feed(self, piece: bytes) -> Iterator[Any]:
        """The documents that are whole with this piece."""
        kept = self._kept + piece
        begin = 0
        while True:
            if self._depth == 0:
                found = _NO_SPACE.search(kept, begin)
                if found is None:
                    begin = self._at = len(kept)
                    break
                begin = self._at = found.start()
                if kept[begin] != _OPENING[0]:
                    raise Refusal(BAD_REQUEST, "Records are JSON objects, one after the other.")
            end = self._end(kept)
            if end is None:
                break
            yield read_json(kept[begin:end])
            begin = end
        self._kept = kept[begin:]
        self._at -= begin
        if len(self._kept) > self._most:
            raise Refusal(TOO_LARGE, f"A record has over {self._most} bytes.")

    def finish(self) -> None:
        """The body is over."""
        if self._kept:
            raise Refusal(BAD_REQUEST, "The body ends in the middle of a record.")

    def _end(self, kept: bytes) -> int | None:
        """Where the document ends that is being looked at; None if that is yet to come."""
        at = self._at
        while found := (_IN_TEXT if self._in_text else _OUTSIDE).search(kept, at):
            sign, at = kept[found.start()], found.end()
            if self._in_text:
                if sign == _QUOTE:
                    self._in_text = False
                elif at == len(kept):  # what is escaped is not here yet
                    self._at = at - 1
                    return None
                else:
                    assert sign == _BACKSLASH
                    at += 1
            elif sign == _QUOTE:
                self._in_text = True
            elif sign in _OPENING:
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth == 0:
                    self._at = at
                    return at
        self._at = len(kept)
        return None
