"""What somebody looks for among log records."""

import json

import pytest

from headrace.services.shipping import search
from headrace.services.shipping.search import Found, Wanted

AT_MS = 1_767_261_600_000  # 2026-01-01T10:00:00Z


def line(number, **more):
    at = f"2026-01-01T10:00:{number:02d}.000Z"
    return {"id": f"f:{number}", "time": at, "service": "shop", "message": f"n {number}"} | more


LINES = [
    line(0, level="INFO"),
    line(1, level="ERROR", message="Card refused"),
    line(2, service="pay", level="FATAL"),
    line(3, fields={"user": "Ada"}),
    line(1, level="ERROR", message="Card refused"),
]


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (Wanted(), [0, 1, 2, 3]),
        (Wanted(level="ERROR"), [1, 2]),
        (Wanted(service="pay"), [2]),
        (Wanted(text="card"), [1]),
        (Wanted(text="ada"), [3]),
        (Wanted(from_ms=AT_MS + 1000, to_ms=AT_MS + 3000), [1, 2]),
    ],
)
def test_lines_are_found_once_and_in_their_order(wanted, numbers):
    found = Found(10)
    for one in reversed(LINES):
        found.look(json.dumps(one).encode(), wanted)
    assert [one["id"] for one in found.records] == [f"f:{n}" for n in numbers]
    assert found.matched == len(numbers)


def test_the_newest_are_kept_and_the_others_counted():
    found = Found(2)
    for number in range(5):
        found.look(json.dumps(line(number)).encode(), Wanted())
    for strange in (None, b"no JSON", b"[1]", b'{"time": "never"}'):
        found.look(strange, Wanted())
    assert [one["id"] for one in found.records] == ["f:3", "f:4"]
    assert (found.matched, found.unreadable) == (5, 4)


def test_more_ids_than_can_be_remembered_are_shown_once_and_told_of(monkeypatch):
    monkeypatch.setattr(search, "MOST_IDS", 2)
    found = Found(3)
    for number in (0, 1, 2, 3, 3, 2):
        found.look(json.dumps(line(number)).encode(), Wanted())
    assert [one["id"] for one in found.records] == ["f:1", "f:2", "f:3"]
    assert not found.is_exact
