"""Records of a coordinator's log: a typed key and value <-> the bytes that Kafka writes.

A key is two bytes of record type and the key's body, always in version 0; a value is two bytes of
version and the value's body. A null value is a tombstone: it deletes the key. A type or a version
that is not known here was written by a later release; it is skipped, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from headrace.wire.protocol.errors import MalformedMessage

KEY_VERSION = 0


class Record(NamedTuple):
    """One change. `value` None deletes the key. `version` is the value's format."""

    key: Any
    value: Any
    version: int = 0


Encoded = tuple[bytes, bytes | None]  # key and value
Shortcut = Callable[[Record], Encoded | None]
ReadingShortcut = Callable[[bytes, bytes], Record | None]


class RecordCodec:
    """`kinds` are the pairs of generated modules: of a key, and of its value.

    `shortcuts` encode the usual form of frequent records directly, by the type of their keys, and
    `reading_shortcuts` decode it, by the number of their type; they return None for any other form.
    `adds_up`: a record changes what earlier ones of its key have left, so that all of them are
    replayed; otherwise only the last record of a key counts.
    """

    __slots__ = ("_by_type", "_by_key", "_shortcuts", "_reading_shortcuts", "adds_up")

    def __init__(
        self,
        kinds: Iterable[tuple[ModuleType, ModuleType]],
        shortcuts: Mapping[type[Any], Shortcut] | None = None,
        reading_shortcuts: Mapping[int, ReadingShortcut] | None = None,
        *,
        adds_up: bool = False,
    ) -> None:
        self.adds_up = adds_up
        self._shortcuts = dict(shortcuts or {})
        self._reading_shortcuts = dict(reading_shortcuts or {})
        self._by_type: dict[int, tuple[Any, Any]] = {}
        self._by_key: dict[type[Any], tuple[bytes, Any, Any]] = {}
        for keys, values in kinds:
            self._by_type[keys.API_KEY] = keys.DECODE[KEY_VERSION], values.DECODE
            prefix = keys.API_KEY.to_bytes(2, "big")
            key_type = getattr(keys, keys.NAME)
            self._by_key[key_type] = prefix, keys.ENCODE[KEY_VERSION], values.ENCODE

    def encode(self, record: Record) -> Encoded:
        kind = type(record.key)
        shortcut = self._shortcuts.get(kind)
        if shortcut is not None:
            encoded = shortcut(record)
            if encoded is not None:
                return encoded
        prefix, encode_key, encode_value = self._by_key[kind]
        pieces = [prefix]
        encode_key(record.key, pieces.append)
        key = b"".join(pieces)
        if record.value is None:
            return key, None
        pieces = [record.version.to_bytes(2, "big")]
        encode_value[record.version](record.value, pieces.append)
        return key, b"".join(pieces)

    def decode(self, key: bytes, value: bytes | None) -> Record | None:
        """Returns None if this release does not know the kind of record."""
        number = int.from_bytes(key[:2], "big")
        shortcut = self._reading_shortcuts.get(number)
        if shortcut is not None and value is not None:
            record = shortcut(key, value)
            if record is not None:
                return record
        kind = self._by_type.get(number)
        if kind is None or len(key) < 2:
            return None
        decode_key, decode_value = kind
        found, _ = decode_key(memoryview(key), 2)
        if value is None:
            return Record(found, None)
        if len(value) < 2:
            raise MalformedMessage("a value without a version")
        version = int.from_bytes(value[:2], "big")
        if version not in decode_value:
            return None
        return Record(found, decode_value[version](memoryview(value), 2)[0], version)
