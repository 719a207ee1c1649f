"""Records on a page: what is shown of each, which match the filter, where the page
continues. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.app.triggers.filters import Filter
from headrace.client.lookup.record_pages import Page, Seen
from headrace.client.records import Record
from headrace.console.decoding import json_path
from headrace.console.views.json_tree import Node, json_tree
from headrace.console.views.payloads import AUTO, AVRO, LONGEST_JSON, Payload, Reader, payload
from headrace.foreign_text import escaped

Accepts = Callable[[Seen], bool]

AS_IT_LOOKS = Reader()
LONGEST_AT_PATH = 300
MOST_HEADERS = 200
LONGEST_HEADER_NAME = 300
MOST_KEYS = 100_000  # how many keys are distinguished to find the latest value of each


@dataclass(slots=True)
class MessageRow:
    partition: int
    offset: int
    timestamp_ms: int | None
    key: Payload
    value: Payload
    headers: int
    marks: list[str]
    at_path: str = ""  # what a JSON path leads to


def message_row(
    seen: Seen, key: Reader = AS_IT_LOOKS, value: Reader = AS_IT_LOOKS, path: str = ""
) -> MessageRow:
    record = seen.record
    return MessageRow(
        record.partition,
        record.offset,
        record.timestamp_ms,
        key.payload(record.key),
        value.payload(record.value),
        len(record.headers),
        marks(seen),
        at_path(value.document(record.value), path) if path else "",
    )


def at_path(document: Any, path: str) -> str:
    found = [_plain(each) for each in json_path.find(document, json_path.parse(path))]
    return escaped(", ".join(found)[:LONGEST_AT_PATH])


def _plain(part: Any) -> str:
    return part if isinstance(part, str) else json.dumps(part, ensure_ascii=False)


def marks(seen: Seen) -> list[str]:
    found = []
    if seen.marker is not None:
        found.append(f"{seen.marker} marker")
    elif seen.aborted:
        found.append("aborted")
    elif seen.producer_id is not None:
        found.append("transaction")
    if seen.marker is None and seen.record.value is None:
        found.append("tombstone")
    return found


@dataclass(slots=True)
class WholeMessage:
    row: MessageRow
    timestamp_type: str
    producer_id: int | None
    headers: list[tuple[str, Payload]]  # at most MOST_HEADERS
    headers_left: int = 0
    key_tree: Node | None = None  # of a JSON document
    value_tree: Node | None = None


def whole_message(
    seen: Seen, key: Reader = AS_IT_LOOKS, value: Reader = AS_IT_LOOKS
) -> WholeMessage:
    kinds = {"create": "set by the producer", "append": "set by the broker"}
    return WholeMessage(
        message_row(seen, key, value),
        kinds.get(seen.record.timestamp_type or "", ""),
        seen.producer_id,
        header_rows(seen.record.headers),
        max(len(seen.record.headers) - MOST_HEADERS, 0),
        _tree(seen.record.key, key),
        _tree(seen.record.value, value),
    )


def _tree(raw: bytes | None, reader: Reader) -> Node | None:
    if not raw or len(raw) > LONGEST_JSON or reader.how not in (AUTO, AVRO):
        return None
    return json_tree(reader.document(raw))


def header_rows(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, Payload]]:
    """Returns the first headers: a record of a megabyte can have half a million."""
    return [
        (escaped(name[:LONGEST_HEADER_NAME]), payload(value))
        for name, value in headers[:MOST_HEADERS]
    ]


# ---- which records are let through


@dataclass(slots=True)
class Wanted:
    """Conditions; all that are given must hold."""

    key: str = ""  # a part of the key
    text: str = ""  # a part of the value
    header: str = ""  # NAME, or NAME=VALUE
    where: str = ""  # an expression
    path: str = ""  # into a JSON value
    path_is: str = ""  # what is there; "" is anything
    latest: bool = False  # of each key only the newest record; for pages from the newest on
    control: bool = False  # markers and aborted records too
    reader: Reader = field(default_factory=Reader)  # of values

    @property
    def narrows(self) -> bool:
        return bool(self.key or self.text or self.header or self.where or self.path or self.latest)

    def accepts(self, shown_before: Mapping[int, int] | None = None) -> Accepts:
        """Returns whether a record matches. Raises FilterRefused for an invalid expression. Earlier
        pages have shown the latest messages of keys down to these offsets: these keys count, and
        are not shown again."""
        tests: list[Accepts] = [] if self.control else [lambda seen: seen.is_data]
        if self.key:
            key = self.key.encode()
            tests.append(lambda seen: key in (seen.record.key or b""))
        if self.text:
            text = self.text.encode()
            tests.append(lambda seen: text in (seen.record.value or b""))
        if self.header:
            tests.append(_has_header(self.header))
        if self.where:
            expression = Filter(self.where)
            tests.append(lambda seen: expression.accepts(facts_of(seen.record, self.reader)))
        if self.path:
            tests.append(self._leads_there())
        if shown_before:
            tests.insert(0, lambda seen: _is_before(seen, shown_before))
        if self.latest:  # first: an older record of a key is not its state, whatever it holds
            tests.insert(0, _is_latest())
        return lambda seen: all(test(seen) for test in tests)

    def _leads_there(self) -> Accepts:
        steps, wanted = json_path.parse(self.path), self.path_is

        def leads(seen: Seen) -> bool:
            found = json_path.find(self.reader.document(seen.record.value), steps)
            return any(not wanted or _plain(each) == wanted for each in found)

        return leads


def _is_before(seen: Seen, offsets: Mapping[int, int]) -> bool:
    return seen.record.offset < offsets.get(seen.record.partition, 0)


def _is_latest() -> Accepts:
    """Records come newest first within a partition, and a key stays in its partition."""
    known: set[tuple[int, bytes | None]] = set()

    def is_first_seen(seen: Seen) -> bool:
        if not seen.is_data or seen.record.key is None or len(known) >= MOST_KEYS:
            return False
        key_of_partition = (seen.record.partition, seen.record.key)
        if key_of_partition in known:
            return False
        known.add(key_of_partition)
        return True

    return is_first_seen


def _has_header(said: str) -> Accepts:
    name, equals, value = said.partition("=")

    def has(seen: Seen) -> bool:
        return any(
            each == name and (not equals or (raw or b"") == value.encode())
            for each, raw in seen.record.headers
        )

    return has


def facts_of(record: Record, reader: Reader = AS_IT_LOOKS) -> dict[str, Any]:
    """The names that an expression can use, as in a trigger's filter."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _text(record.key),
        "headers": {name: _text(value) for name, value in record.headers},
        "value": reader.document(record.value),
    }


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode(errors="replace")


# ---- what the page says of itself


def summary(page: Page, wanted: Wanted, want: int) -> str:
    """The searched range; nothing is left out silently."""
    shown = f"{len(page.found):,} shown"
    if wanted.narrows:
        shown = f"{len(page.found):,} found among {page.looked_at:,} messages"
    if not page.at_the_end and wanted.narrows:
        is_full = len(page.found) >= want
        shown += (
            "; there may be more" if is_full else "; the search stopped at its limit and can go on"
        )
    return shown


# ---- as JSON, one line each
