"""Which idempotency keys were seen in the last 24 hours, of one partition of their topic. Pure.

The topic has the truth: one record per key, written in the same transaction as the request's
records. This module only knows the offset of each, in the order of the log, so that the oldest are
at the front. A window that is full takes no more keys: it never forgets one early, for then a
repeated request would be written twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.services.http.dialects.v2 import Written
from headrace.services.http.refusal import BAD_REQUEST, Refusal
from headrace.services.http.writes.writes import Write
from headrace.wire.contract.own_records import json_object, whole_number

LONGEST_KEY = 255
DIGEST_BYTES = 16
# Offset and time of one key as one number: half the memory of a pair, of which there are many.
_TIME_BITS = 44
_TIME_MASK = (1 << _TIME_BITS) - 1


class Window:
    def __init__(self, *, most: int, lasts_ms: int) -> None:
        self._most, self._lasts_ms = most, lasts_ms
        self._keys: dict[bytes, int] = {}
        self.next_offset: int | None = None  # None: nothing was read yet

    def __len__(self) -> int:
        return len(self._keys)

    def note(self, digest: bytes, *, offset: int, wall_ms: int) -> None:
        """Notes a key, in the order of the log; a key that comes again after its time moves to the
        end."""
        self._keys.pop(digest, None)
        self._keys[digest] = offset << _TIME_BITS | (wall_ms & _TIME_MASK)
        self.next_offset = max(self.next_offset or 0, offset + 1)

    def find(self, digest: bytes, wall_ms: int) -> int | None:
        """Returns the offset of a key's record; None if the key is unknown or too old."""
        found = self._keys.get(digest)
        if found is None or (found & _TIME_MASK) + self._lasts_ms <= wall_ms:
            return None
        return found >> _TIME_BITS

    def has_room(self, wall_ms: int) -> bool:
        self.expire(wall_ms)
        return len(self._keys) < self._most

    def expire(self, wall_ms: int) -> None:
        while self._keys:
            first = next(iter(self._keys))
            if (self._keys[first] & _TIME_MASK) + self._lasts_ms > wall_ms:
                return
            del self._keys[first]

    def forget(self) -> None:
        """Empties the window: the topic was deleted and created again."""
        self._keys.clear()
        self.next_offset = None


def digest_of(key: str) -> bytes:
    """The stored form of a key; `"a"` and `a` are the same, as in HTTP."""
    said = key.strip()
    if len(said) > 1 and said[0] == said[-1] == '"':
        said = said[1:-1]
    if not 0 < len(said) <= LONGEST_KEY or not (said.isascii() and said.isprintable()):
        raise Refusal(
            BAD_REQUEST, f"An Idempotency-Key has 1 to {LONGEST_KEY} printable characters of ASCII."
        )
    return hashlib.sha256(said.encode()).digest()[:DIGEST_BYTES]


def slot_of(digest: bytes, slots: int) -> int:
    return int.from_bytes(digest[:4], "big") % slots


def fingerprint(topic: str, writes: Sequence[Write]) -> str:
    """Returns a hash of all that a request asks for: the same key with another request is
    refused."""
    found = hashlib.sha256(topic.encode())
    for each in writes:
        parts = (each.value, each.key, each.headers, each.partition, each.timestamp_ms, each.when)
        found.update(repr(parts).encode("utf-8", "replace"))
    return found.hexdigest()[:32]


@dataclass(slots=True)
class Entry:
    """The stored facts of a written request: enough to answer it again."""

    fingerprint: str
    written: list[Written]

    def to_bytes(self) -> bytes:
        written = [[each.partition, each.offset, each.timestamp_ms] for each in self.written]
        document = {"v": 1, "request": self.fingerprint, "written": written}
        return json.dumps(document, separators=(",", ":")).encode()

    @staticmethod
    def read(value: bytes | None) -> Entry:
        """Reads an entry. Raises ValueError for a record that no server of ours has written."""
        try:
            found = json_object(value)
            written = [[whole_number(number) for number in each] for each in found["written"]]
            return Entry(str(found["request"]), [Written(*each) for each in written])
        except (LookupError, TypeError) as failure:
            raise ValueError("no entry of a key") from failure
