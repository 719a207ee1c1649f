"""How people and files say where a group is to go."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer

from headrace.cli.failure import Failure
from headrace.cli.records import reset_targets
from headrace.cli.records.groups import spans
from headrace.client.admin.groups import Move

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T12:00Z",
        "2026-01-31T12:00:00Z",
        "2026-01-31T12:00:00.000Z",
        "2026-01-31T12:00:00.000+00:00",
        "2026-01-31T13:00:00.000+0100",
        "2026-01-31 04:00-08:00",
        "20260131T120000Z",
        str(NOON_MS),
        NOON.astimezone().replace(tzinfo=None).isoformat(),  # this machine's own time
    ],
)
def test_one_moment_in_many_ways(text: str) -> None:
    assert reset_targets.moment_ms(text) == NOON_MS


def test_eight_digits_are_a_day_and_thirteen_are_milliseconds() -> None:
    day = datetime(2026, 1, 31).astimezone()
    assert reset_targets.moment_ms("20260131") == int(day.timestamp() * 1000)
    # As a date it would be a day of 1712.
    assert reset_targets.moment_ms("1712010112345") == 1_712_010_112_345


@pytest.mark.parametrize(
    "text", ["", "soon", "2026", "1769860800", "31.01.2026", "2026-02-30T12:00", "12:00", "9" * 20]
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a time such as"):
        reset_targets.moment_ms(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1_800),
        ("1h30m", 5_400),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("PT30M", 1_800),
        ("P7D", 604_800),
        ("P1DT2H3M4S", 93_784),
        ("pt1h", 3_600),
    ],
)
def test_durations_as_here_and_as_apaches_tool_takes_them(text: str, seconds: int) -> None:
    assert reset_targets.duration_ms(text) == seconds * 1_000


@pytest.mark.parametrize("text", ["", "30", "P", "PT", "P1M", "P1Y", "P7DT", "1.5h", "-2h", "soon"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a duration such as"):
        reset_targets.duration_ms(text)


def test_topics_with_and_without_partitions() -> None:
    assert reset_targets.topic_and_partitions("orders") == ("orders", [])
    assert reset_targets.topic_and_partitions("orders:2") == ("orders", [2])
    assert reset_targets.topic_and_partitions("orders:0-3, 7,2") == ("orders", [0, 1, 2, 3, 7])


@pytest.mark.parametrize(
    "text", ["orders:", ":0", "orders:x", "orders:-1", "orders:3-1", "orders:1,,2", "o:0-999999"]
)
def test_partitions_that_are_no_numbers_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="not a topic with partitions"):
        reset_targets.topic_and_partitions(text)


def test_spans_are_what_a_topic_with_partitions_is_read_from() -> None:
    places = [("bills", 0), *(("orders", n) for n in (0, 1, 2, 3, 7, 9, 10))]
    assert spans(places) == "bills:0 orders:0-3,7,9-10"
    topic, partitions = reset_targets.topic_and_partitions("orders:0-3,7,9-10")
    assert [(topic, n) for n in partitions] == places[1:]
    assert spans([]) == ""


@pytest.mark.parametrize(
    "text",
    [
        "orders,0,4\nbills,1,7\n",
        "\n  orders , 0, 4\r\n\r\nbills,1,7",
        '\ufeff"orders","0","4"\n"bills",1,7\n',
        "billing,orders,0,4\nother,orders,0,9\nbilling,bills,1,7\n",
    ],
)
def test_files_of_places(tmp_path: Path, text: str) -> None:
    file = tmp_path / "places.csv"
    file.write_text(text, "utf-8")
    assert reset_targets.read_places(file, "billing") == {("orders", 0): 4, ("bills", 1): 7}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"orders,0,4\norders,zero,4\n", "Line 2 of {} is not topic,partition,offset."),
        (b"orders,0\n", "Line 1 of {} is not topic,partition,offset."),
        (b"orders,0,4\norders,0,5\n", "Line 2 of {} names orders-0 a second time."),
        (b"", "{} has no offset for group billing."),
        (b"other,orders,0,4\n", "{} has no offset for group billing."),
        (b"\xff\xfe\x00", "{} is not a text file: invalid start byte."),
    ],
)
def test_files_that_cannot_be_read_say_where(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "places.csv"
    file.write_bytes(content)
    with pytest.raises(Failure) as failure:
        reset_targets.read_places(file, "billing")
    assert str(failure.value) == says.format(file)


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="Cannot read .*nothing: No such file or directory"):
        reset_targets.read_places(tmp_path / "nothing", "billing")


def test_what_is_exported_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = reset_targets.exported([Move("orders", 0, None, 4, 4), Move("bills", 1, 3, 7, 9)])
    assert text == "orders,0,4\nbills,1,7\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    read = reset_targets.read_places(reset_targets.STDIN, "billing")
    assert read == {("orders", 0): 4, ("bills", 1): 7}
