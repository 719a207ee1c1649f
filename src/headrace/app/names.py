"""Names of the topics that belong to a topic and a group: `<topic>.<group>.retry` and `.dead`.

Different pairs have different names. A group's name may hold any character: characters that a
topic's name must not hold, and the separating dot, are written as `_` and two hexadecimal digits. A
name that would be too long is cut and ends in a hash of the whole. The topic's own part is never
changed, so names sort beside it.
"""

from __future__ import annotations

import hashlib
import re

from headrace.wire.contract.companions import DEAD_SUFFIX, RETRY_SUFFIX

# Kafka allows 249 characters; the companions of delayed messages add up to 15 to a retry topic.
LONGEST = 234

_PLAIN = re.compile(r"[A-Za-z0-9-]")
_HEX_PAIR = re.compile(r"[0-9A-F]{2}")
# No group's name leads to this: the letter Z is never escaped.
_CUT = "_5A"


def retry_topic(topic: str, group: str) -> str:
    return _name(topic, group, RETRY_SUFFIX)


def dead_topic(topic: str, group: str) -> str:
    return _name(topic, group, DEAD_SUFFIX)


def wide_topic(topic: str, group: str) -> str:
    """The topic through which a group's backlog is drained: `headrace backlog widen`."""
    return _name(topic, group, ".wide")


def _name(topic: str, group: str, suffix: str) -> str:
    whole = f"{topic}.{escaped(group)}{suffix}"
    if len(whole) <= LONGEST:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:32]
    tail = f".{_CUT}{digest}{suffix}"
    return whole[: LONGEST - len(tail)] + tail


def escaped(group: str) -> str:
    """A group's name in the letters of a topic's; `unescaped` is its inverse."""
    written = []
    for at, character in enumerate(group):
        if _PLAIN.match(character) or (character == "_" and not _HEX_PAIR.match(group, at + 1)):
            written.append(character)
        else:
            written.extend(f"_{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
    return "".join(written)


def unescaped(written: str) -> str:
    raw = re.sub(rb"_([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), written.encode())
    return raw.decode("utf-8", "surrogatepass")
