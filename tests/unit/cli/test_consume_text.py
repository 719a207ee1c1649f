"""Where reading begins, and how a record is shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
import typer

from headrace.cli.records.consume import parse_start
from headrace.cli.records.record_views import writer
from headrace.client.lookup.record_reader import BEGINNING, END, AtOffset, AtTime, Last, Record
from headrace.client.record_json import as_object

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
NOON_MS = 1769860800000


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("beginning", BEGINNING),
        ("end", END),
        ("0", AtOffset(0)),
        ("1234567890123", AtOffset(1234567890123)),
        ("-5", Last(5)),
        ("-1h", AtTime(NOON_MS - 3_600_000)),
        ("-90s", AtTime(NOON_MS - 90_000)),
        ("-2d", AtTime(NOON_MS - 2 * 86_400_000)),
        ("-250ms", AtTime(NOON_MS - 250)),
        ("2026-01-31T12:00:00Z", AtTime(NOON_MS)),
        ("2026-01-31T12:00", AtTime(NOON_MS)),
        ("2026-01-31T13:00:00.250+01:00", AtTime(NOON_MS + 250)),
        ("2026-01-31", AtTime(NOON_MS - 12 * 3_600_000)),
    ],
)
def test_a_place_to_begin(words: str, place: AtOffset | AtTime | Last) -> None:
    assert parse_start(words, now=NOON) == place


def test_a_time_without_a_zone_is_the_persons_own() -> None:
    tokyo = NOON.astimezone(timezone(timedelta(hours=9)))
    assert parse_start("2026-01-31T21:00", now=tokyo) == AtTime(NOON_MS)


@pytest.mark.parametrize("words", ["", "yesterday", "-1w", "+1h", "12:00 o'clock", "-h"])
def test_what_is_no_place_is_refused_with_what_would_be(words: str) -> None:
    with pytest.raises(typer.BadParameter, match="beginning, end, an offset"):
        parse_start(words, now=NOON)


def record(**changes: object) -> Record:
    fields: dict[str, object] = {
        "topic": "orders",
        "partition": 2,
        "offset": 17,
        "timestamp_ms": NOON_MS,
        "timestamp_type": "create",
        "key": b"k",
        "value": b"v",
        "headers": [],
    }
    return Record(**(fields | changes))  # type: ignore[arg-type]


def written(capsys: pytest.CaptureFixture[str], one: Record, **options: object) -> str:
    chosen = {"as_json": False, "pretty": False, "headers": False} | options
    writer("orders", **chosen)(one)  # type: ignore[arg-type]
    return capsys.readouterr().out


def test_the_pretty_form_says_where_and_what(capsys: pytest.CaptureFixture[str]) -> None:
    shown = written(capsys, record(), pretty=True)
    assert shown.startswith("orders-2@17  2026-")
    assert shown.endswith("  k  v\n")


def test_headers_stand_below_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    shown = written(capsys, record(headers=[("a", b"1"), ("b", None)]), pretty=True, headers=True)
    assert shown.splitlines()[1:] == ["    a: 1", "    b: null"]


def test_a_format_has_the_signs_of_kcat(capsys: pytest.CaptureFixture[str]) -> None:
    one = record(headers=[("a", b"1")])
    assert written(capsys, one, format="%t [%p] at %o: %k=%s %K/%S %h 100%%") == (
        "orders [2] at 17: k=v 1/1 a=1 100%\n"
    )
    assert written(capsys, one, format=r"%T\t%s\x21\n") == f"{NOON_MS}\tv!\n"
    assert written(capsys, record(key=None, value=None), format=r"%k|%s|%K|%S\0") == "||-1|-1\0"


@pytest.mark.parametrize("words", ["%q", "%", r"\q", "", "%s %"])
def test_what_is_no_format_is_refused_with_what_would_be(words: str) -> None:
    with pytest.raises(typer.BadParameter, match="%o offset"):
        writer("orders", as_json=False, pretty=False, headers=False, format=words)


def test_any_timestamp_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert str(2**62) in written(capsys, record(timestamp_ms=2**62), pretty=True)


def test_json_keeps_null_apart_from_empty_and_bytes_apart_from_text() -> None:
    shown = as_object(record(key=None, value=b"", headers=[("h", b"\xff")]))
    assert shown["key"] is None
    assert shown["value"] == ""
    assert shown["headers"] == [{"name": "h", "value_base64": "/w=="}]
    assert "value_base64" in as_object(record(value=b"\xff\x00"))
