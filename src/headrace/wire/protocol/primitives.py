"""The building blocks of the generated messages: varints, lengths, tagged fields, the base class.

Everything here is called by generated code, so a function exists only where a call is rarer or
cheaper than writing it out. Decoders take one memoryview and a position and never copy more than
they return. A length or count is checked against the bytes that remain before anything is built;
`struct.error`, `IndexError` and `UnicodeDecodeError` are turned into `MalformedMessage` once, at
the entry of each decoder (`BROKEN`).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, error
from typing import Any, TypeAlias

from headrace.environment import Buffer, FileSlice
from headrace.wire.protocol.errors import MalformedMessage

ZERO_ID = bytes(16)

Piece: TypeAlias = Buffer | FileSlice
Put: TypeAlias = Callable[[Piece], None]
# A run of records: a memoryview when decoded; when encoded, anything that has a length.
Records: TypeAlias = Any

# The exceptions of bad bytes inside a decoder: too short for a Struct, for an index, or not UTF-8.
BROKEN = (error, IndexError, UnicodeDecodeError)

# Stands for "a new empty list" in the constructors of messages.
NEW_LIST: list[Any] = []
# The same for a struct that may also be null.
NEW: Any = object()

LONGEST_STRING = 0x7FFF  # also where the length is a varint, as in Apache Kafka
LARGEST_VARINT = 5  # bytes; a longer one is refused as Apache Kafka does
CACHED_LENGTHS = 256  # longer strings are rare; their Structs are not cached


class Message:
    """Base of all generated classes: equality and representation by the fields."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{self.__class__.__name__}({fields})"


def uvarint(number: int) -> bytes:
    """An unsigned varint, seven bits a byte, lowest first."""
    if number < 128:
        return _ONE_BYTE[number]
    if number < 16_384:
        return bytes((number & 0x7F | 0x80, number >> 7))
    out = bytearray()
    while number > 127:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_ONE_BYTE = [bytes((number,)) for number in range(128)]


def read_uvarint(view: Buffer, pos: int) -> tuple[int, int]:
    """An unsigned varint at `pos` and the position behind it."""
    first = view[pos]
    if first < 128:
        return first, pos + 1
    return more_uvarint(view, pos + 1, first)


def more_uvarint(view: Buffer, pos: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte, above 127, has been read already."""
    number = first & 0x7F
    for shift in range(7, 7 * LARGEST_VARINT, 7):
        byte = view[pos]
        pos += 1
        number |= (byte & 0x7F) << shift
        if byte < 128:
            return number, pos
    raise MalformedMessage("a varint has more than five bytes")


def zigzag(number: int) -> bytes:
    """A signed varint or varlong, as records use them."""
    return uvarint(number << 1 if number >= 0 else ~(number << 1))


def read_zigzag(view: Buffer, pos: int) -> tuple[int, int]:
    """A signed varint or varlong of at most ten bytes, and the position behind it."""
    byte = view[pos]
    if byte < 128:
        return byte >> 1 ^ -(byte & 1), pos + 1
    number = shift = 0
    while True:
        byte = view[pos]
        pos += 1
        number |= (byte & 0x7F) << shift
        if byte < 128:
            return number >> 1 ^ -(number & 1), pos
        shift += 7
        if shift == 70:
            raise MalformedMessage("a varlong has more than ten bytes")


def read_int_array(code: str, view: memoryview, pos: int, count: int) -> list[Any]:
    """`count` numbers of one `struct` code; the caller has checked that they are there."""
    return list(_array(code, count).unpack_from(view, pos))


_ARRAYS: dict[tuple[str, int], Struct] = {}


def _array(code: str, count: int) -> Struct:
    struct = _ARRAYS.get((code, count))
    if struct is None:
        struct = Struct(f">{count}{code}")
        if count < CACHED_LENGTHS:
            _ARRAYS[code, count] = struct
    return struct


def skip_tags(view: memoryview, pos: int, count: int) -> int:
    """Returns the position after `count` unknown tagged fields; `count` may be only the first byte
    of a varint."""
    if count > 127:
        count, pos = more_uvarint(view, pos, count)
    size = len(view)
    for _ in range(count):  # each turn reads two bytes or ends in IndexError
        _, pos = read_uvarint(view, pos)
        length, pos = read_uvarint(view, pos)
        pos += length
        if pos > size:
            raise MalformedMessage("a tagged field is longer than the message")
    return pos


def tag_count(view: memoryview, pos: int, first: int) -> tuple[int, int]:
    """The number of tagged fields, of which the first byte has been read already."""
    count = first
    if count > 127:
        count, pos = more_uvarint(view, pos, first)
    if count * 2 > len(view) - pos:
        raise MalformedMessage(f"{count} tagged fields do not fit the message")
    return count, pos


def read_tag(view: memoryview, pos: int) -> tuple[int, int, int]:
    """Number of a tagged field, where its value begins, and where it ends."""
    tag, pos = read_uvarint(view, pos)
    length, pos = read_uvarint(view, pos)
    end = pos + length
    if end > len(view):
        raise MalformedMessage(f"tagged field {tag} is longer than the message")
    return tag, pos, end


def tagged(tag: int, value: list[Any]) -> bytes:
    """A tagged field from the pieces of its value."""
    body = b"".join(value)
    return uvarint(tag) + uvarint(len(body)) + body


def misfit(what: str, number: int) -> MalformedMessage:
    """A length or count that is negative, null where null is not allowed, or too large."""
    return MalformedMessage(f"{what} {number} does not fit the message")


class TextReader(dict[int, Callable[..., tuple[Any, ...]]]):
    """Unpackers of a string and the fixed fields behind it, by the length as it is on the wire.

    Joining the string with what follows saves a slice and a call (300 -> 145 ns); and as only
    valid lengths ever enter the table, a hit is the check of the length at no price.
    Null is length 0 in the compact form and -1 in the old one; it unpacks like an empty string.
    """

    __slots__ = ("behind", "compact", "nullable")

    def __init__(self, behind: str, compact: bool, nullable: bool) -> None:
        super().__init__()
        self.behind = behind
        self.compact = compact
        self.nullable = nullable

    def __missing__(self, wire_length: int) -> Callable[..., tuple[Any, ...]]:
        length = wire_length - 1 if self.compact else wire_length
        if length > LONGEST_STRING or (length < 0 and not self.nullable):
            raise misfit("a string's length", length)
        unpack = Struct(f">{max(length, 0)}s{self.behind}").unpack_from
        if -1 <= length < CACHED_LENGTHS:
            self[wire_length] = unpack
        return unpack


class RunWriter(dict[int, Callable[..., bytes]]):
    """Packers of fixed fields with one string or one list of numbers among them, by its length.

    `item` is the `struct` code that is repeated: "s" for a string, "i" for 32-bit numbers.
    """

    __slots__ = ("before", "item", "behind")

    def __init__(self, before: str, item: str, behind: str) -> None:
        super().__init__()
        self.before = before
        self.item = item
        self.behind = behind

    def __missing__(self, length: int) -> Callable[..., bytes]:
        if length > LONGEST_STRING and self.item == "s":
            raise ValueError(f"a string of {length} bytes cannot be sent")
        pack = Struct(f">{self.before}{length}{self.item}{self.behind}").pack
        if length < CACHED_LENGTHS:
            self[length] = pack
        return pack
