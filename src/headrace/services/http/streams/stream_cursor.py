"""Where a reader of a stream is: the next offset of each partition, as the id of an event. Pure.

`t4f2a91c0.0-17.1-5`: eight characters derived from the topic's id, then partition and offset. A
browser sends the last id that it saw as `Last-Event-ID` when it comes again. By the topic's id, a
topic that was deleted and created again is distinguished from the one that was read.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from headrace.services.http.refusal import BAD_REQUEST, Refusal

MOST_PARTITIONS = 500  # an id must fit a header line
_TEXT = re.compile(r"t([0-9a-f]{8})((?:\.[0-9]{1,9}-[0-9]{1,18})*)")


@dataclass(slots=True)
class Cursor:
    topic_mark: str
    next: dict[int, int]

    def text(self) -> str:
        offsets = "".join(f".{p}-{offset}" for p, offset in sorted(self.next.items()))
        return f"t{self.topic_mark}{offsets}"

    @staticmethod
    def read(text: str) -> Cursor:
        found = _TEXT.fullmatch(text.strip())
        if found is None:
            raise Refusal(BAD_REQUEST, "Last-Event-ID is not one that a stream of ours gave.")
        pairs = (part.split("-") for part in found[2].split(".") if part)
        return Cursor(found[1], {int(p): int(offset) for p, offset in pairs})


def mark_of(topic_id: object) -> str:
    return hashlib.sha256(str(topic_id).encode()).hexdigest()[:8]
