"""Ids of topics, directories and clusters: 16 bytes on the wire, 22 characters for people.

The text form is base64url without padding, as Kafka prints it. Randomness comes from the caller.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from binascii import a2b_base64

ZERO_ID = bytes(16)
METADATA_TOPIC_ID = bytes(15) + b"\x01"  # the topic id of __cluster_metadata

# Directory ids with a meaning of their own (KIP-858).
MIGRATING_DIRECTORY = ZERO_ID
UNASSIGNED_DIRECTORY = bytes(15) + b"\x01"
LOST_DIRECTORY = bytes(15) + b"\x02"

# Kafka keeps the first hundred ids for itself: all but the last byte zero, and the last below 100.
_RESERVED_BELOW = 100
_TO_STANDARD = str.maketrans("-_", "+/")


def to_text(identity: bytes) -> str:
    """Kafka's way to print an id, such as `4BOuQb6mTQaM4ZYNXxzqHA`."""
    return urlsafe_b64encode(identity).decode().rstrip("=")


def from_text(text: str) -> bytes:
    """The 16 bytes of a printed id; ValueError with a sentence if it is none."""
    plain = text.rstrip("=")
    identity = b""
    if len(plain) == 22 and plain.isascii():
        identity = a2b_base64(plain.translate(_TO_STANDARD) + "==")
    if len(identity) != 16:  # characters that are not of the alphabet are dropped
        raise ValueError(f"{text!r} is not an id: expected 22 characters that stand for 16 bytes")
    return identity


def random_id(randomness: bytes) -> bytes:
    """A version 4 UUID made of 16 random bytes that is not reserved and never prints a leading "-".

    Kafka draws again when the text begins with a dash, since command lines take it for an option;
    here its first bit is cleared instead, so one draw is enough (a dash is the six bits 111110).
    """
    if len(randomness) != 16:
        raise ValueError(f"an id needs 16 random bytes, not {len(randomness)}")
    identity = bytearray(randomness)
    identity[6] = identity[6] & 0x0F | 0x40  # version 4: also keeps it clear of the reserved ids
    identity[8] = identity[8] & 0x3F | 0x80
    if identity[0] >> 2 == 0b111110:
        identity[0] &= 0x7F
    return bytes(identity)


def is_reserved(identity: bytes) -> bool:
    """Returns whether Kafka reserves this id."""
    return identity[:15] == ZERO_ID[:15] and identity[15] < _RESERVED_BELOW
