"""A message as a form holds it: key, value, headers, when. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.client.records import Record
from headrace.console.query import Unreadable, text_in


@dataclass(slots=True)
class Draft:
    key: str | None = None
    value: str | None = ""  # None: a tombstone
    headers: list[tuple[str, str]] = field(default_factory=list)
    delay: str = ""
    id: str = ""
    lost: str = ""  # what of the record it was made from cannot be in a form

    def key_bytes(self) -> bytes | None:
        return None if self.key is None else self.key.encode()

    def value_bytes(self) -> bytes | None:
        return None if self.value is None else self.value.encode()

    def header_lines(self) -> str:
        return "\n".join(f"{name}: {text}" for name, text in self.headers)


def draft_from(form: Mapping[str, Any]) -> Draft:
    """An empty key is none. Forms end lines with CR LF; a message gets LF."""
    value = text_in(form, "value").replace("\r\n", "\n")
    return Draft(
        text_in(form, "key") or None,
        None if text_in(form, "tombstone") == "1" else value,
        _headers(text_in(form, "headers")),
        text_in(form, "delay").strip(),
        text_in(form, "id").strip(),
    )


def _headers(said: str) -> list[tuple[str, str]]:
    found = []
    for line in said.splitlines():
        if not line.strip():
            continue
        name, colon, text = line.partition(":")
        if not colon or not name.strip():
            raise Unreadable(f"{line!r} is no header; write NAME: VALUE, one per line.")
        found.append((name.strip(), text.strip()))
    return found


def draft_of(record: Record) -> Draft:
    """To send it again with edits; bytes that are no text cannot be edited here."""
    try:
        return Draft(
            None if record.key is None else record.key.decode(),
            None if record.value is None else record.value.decode(),
            [(name, (raw or b"").decode()) for name, raw in record.headers],
        )
    except UnicodeDecodeError:
        return Draft(lost="That message holds bytes that are no text, so it cannot be edited here.")
