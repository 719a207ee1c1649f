"""Which keys are known: for 24 hours, never fewer, and no more than there is room for."""

from __future__ import annotations

import pytest

from headrace.services.http.dialects.v2 import Written
from headrace.services.http.refusal import Refusal
from headrace.services.http.writes.idempotency_window import (
    Entry,
    Window,
    digest_of,
    fingerprint,
    slot_of,
)
from headrace.services.http.writes.writes import Write

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000


def test_a_key_is_known_for_a_day_and_not_longer() -> None:
    window = Window(most=10, lasts_ms=DAY_MS)
    window.note(b"a", offset=7, wall_ms=NOW_MS)
    assert window.find(b"a", NOW_MS + DAY_MS - 1) == 7
    assert window.find(b"a", NOW_MS + DAY_MS) is None
    assert window.find(b"b", NOW_MS) is None
    assert window.next_offset == 8


def test_a_full_window_takes_no_more_and_forgets_nothing_early() -> None:
    window = Window(most=2, lasts_ms=DAY_MS)
    for offset, key in enumerate((b"a", b"b")):
        window.note(key, offset=offset, wall_ms=NOW_MS + offset)
    assert not window.has_room(NOW_MS + 5)
    assert window.find(b"a", NOW_MS + 5) == 0
    assert window.has_room(NOW_MS + DAY_MS) and len(window) == 1


def test_a_key_that_comes_again_after_its_day_is_young_again() -> None:
    window = Window(most=2, lasts_ms=DAY_MS)
    window.note(b"a", offset=0, wall_ms=NOW_MS)
    window.note(b"b", offset=1, wall_ms=NOW_MS + 1)
    window.note(b"a", offset=2, wall_ms=NOW_MS + DAY_MS)
    window.expire(NOW_MS + DAY_MS + 1)
    assert window.find(b"a", NOW_MS + DAY_MS + 1) == 2 and len(window) == 1


def test_an_entry_is_read_as_it_was_written() -> None:
    entry = Entry("f" * 32, [Written(0, 17, NOW_MS), Written(3, 2**40, -1)])
    assert Entry.read(entry.to_bytes()) == entry
    for nonsense in (None, b"", b"{}", b'{"request": 1, "written": [[1]]}', b"[]"):
        with pytest.raises(ValueError):
            Entry.read(nonsense)


def test_keys_are_texts_of_http() -> None:
    assert digest_of('"a b"') == digest_of(" a b ")
    assert digest_of("a") != digest_of("b")
    for bad in ("", '""', "x" * 256, "tab\there", "é"):
        with pytest.raises(Refusal):
            digest_of(bad)
    assert {slot_of(digest_of(str(n)), 16) for n in range(500)} == set(range(16))


def test_another_request_has_another_fingerprint() -> None:
    plain = [Write(b"1", b"k")]
    assert fingerprint("a", plain) == fingerprint("a", [Write(b"1", b"k")])
    others = [Write(b"2", b"k")], [Write(b"1")], [Write(b"1", b"k", partition=0)], plain * 2
    assert len({fingerprint("a", plain), *(fingerprint("a", each) for each in others)}) == 5
    assert fingerprint("b", plain) != fingerprint("a", plain)
