"""A message as a form holds it: key, value, headers, when. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.client.delay.schedules import When
from headrace.client.records import Record
from headrace.console.query import Unreadable, moment_ms, text_in
from headrace.console.views import words


@dataclass(slots=True)
class Draft:
    key: str | None = None
    value: str | None = ""  # None: a tombstone
    headers: list[tuple[str, str]] = field(default_factory=list)
    when: When = field(default_factory=lambda: When())
    id: str = ""
    lost: str = ""  # what of the record it was made from cannot be in a form

    def key_bytes(self) -> bytes | None:
        return None if self.key is None else self.key.encode()

    def value_bytes(self) -> bytes | None:
        return None if self.value is None else self.value.encode()

    def header_lines(self) -> str:
        return "\n".join(f"{name}: {text}" for name, text in self.headers)


def draft_from(form: Mapping[str, Any]) -> Draft:
    """Makes a draft of a form. An empty key means none. Forms end lines with CR LF; a message gets
    LF."""
    value = text_in(form, "value").replace("\r\n", "\n")
    return Draft(
        text_in(form, "key") or None,
        None if text_in(form, "tombstone") == "1" else value,
        _headers(text_in(form, "headers")),
        when_from(form),
        text_in(form, "id").strip(),
    )


def when_from(form: Mapping[str, Any]) -> When:
    """Returns one of `delay`, `deliver_at` and `cron`; the client refuses invalid values."""
    delay, at, cron, zone = (
        text_in(form, name).strip() for name in ("delay", "deliver_at", "cron", "cron_zone")
    )
    if sum(map(bool, (delay, at, cron))) > 1:
        raise Unreadable("Choose one: after a time, at a time, by cron.")
    if delay:
        return When(delay=delay)
    if at:
        return When(deliver_at=moment_ms(at))
    return When(cron=cron, **({"cron_zone": zone} if zone else {})) if cron else When()


def when_words(when: When) -> str:
    if when.get("delay"):
        return f"in {when['delay']}"
    if (at := when.get("deliver_at")) is not None:
        return f"at {words.moment(at) if isinstance(at, int) else at}"
    return f"by cron {when.get('cron')}"


def _headers(said: str) -> list[tuple[str, str]]:
    found = []
    for line in said.splitlines():
        if not line.strip():
            continue
        name, colon, text = line.partition(":")
        if not colon or not name.strip():
            raise Unreadable(f"{line!r} is not a header; write NAME: VALUE, one per line.")
        found.append((name.strip(), text.strip()))
    return found


def draft_of(record: Record) -> Draft:
    """Makes a draft of a record, to send it again with edits; bytes that are not text cannot be
    edited here."""
    try:
        draft = Draft(
            None if record.key is None else record.key.decode(),
            None if record.value is None else record.value.decode(),
            [(name, (raw or b"").decode()) for name, raw in record.headers],
        )
    except UnicodeDecodeError:
        return Draft(
            lost="That message holds bytes that are not text, so it cannot be edited here."
        )
    odd = [name for name, text in draft.headers if not _fits_a_line(name, text)]
    if odd:
        draft.headers = [each for each in draft.headers if _fits_a_line(*each)]
        draft.lost = (
            f"These headers do not fit in one line each and are left out: {', '.join(odd)}."
        )
    return draft


def _fits_a_line(name: str, text: str) -> bool:
    """Returns whether the form gives back what it was given. A line end within a value from another
    client would become a header of its own."""
    try:
        return _headers(f"{name}: {text}") == [(name, text)]
    except Unreadable:
        return False
