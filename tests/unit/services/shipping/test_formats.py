"""Lines in the formats that programs write, and lines in none."""

import json
from zoneinfo import ZoneInfo

import pytest

from headrace.services.shipping.formats import MOST_FIELDS, parsed
from headrace.services.shipping.line_groups import Group
from headrace.services.shipping.moments import moment_ms
from headrace.services.shipping.records import Origin, RecordMaker, shortened

AT_MS = 1_767_261_600_000  # 2026-01-01T10:00:00Z


@pytest.mark.parametrize(
    ("line", "level", "message", "fields"),
    [
        ('{"time": "2026-01-01T10:00:00Z", "level": "warn", "msg": "slow", "ms": 3}',
         "WARN", "slow", {"ms": "3"}),
        ('{"ts": 1767261600.0, "severity": "ERROR", "message": "no", "a": {"b": [1]}}',
         "ERROR", "no", {"a": '{"b": [1]}'}),
        ('{"level": 50, "time": 1767261600000, "msg": "pino"}', "ERROR", "pino", {}),
        ('time=2026-01-01T10:00:00Z level=info msg="a \\"b\\" c" user=7',
         "INFO", 'a "b" c', {"user": "7"}),
        ('1.2.3.4 - ada [01/Jan/2026:11:00:00 +0100] "GET /x?y=1 HTTP/1.1" 503 12 "-" "curl"',
         "ERROR", "GET /x?y=1 HTTP/1.1 503",
         {"client": "1.2.3.4", "status": "503", "method": "GET", "path": "/x?y=1", "user": "ada",
          "bytes": "12", "agent": "curl"}),
        ('::1 - - [01/Jan/2026:10:00:00 +0000] "-" 400 -',
         "WARN", "- 400", {"client": "::1", "status": "400"}),
        ("2026-01-01 10:00:00,000 INFO  shop: paid a=b", "INFO", "INFO  shop: paid a=b", {}),
        ("[2026-01-01T10:00:00.000Z] [error] gone", "ERROR", "[error] gone", {}),
    ],
)  # fmt: skip
def test_a_line_is_recognized(line, level, message, fields):
    entry = parsed(line)
    assert (entry.time_ms, entry.level, entry.message) == (AT_MS, level, message)
    assert (entry.fields, entry.problem) == (fields, None)


@pytest.mark.parametrize(
    "line", ["hello", "a = b", "x=1 and more", "{broken", '{"a": 1} behind', "[1]", "=", "50%=x"]
)
def test_what_is_in_no_format_is_text_as_it_stands(line):
    entry = parsed(line)
    assert (entry.message, entry.time_ms, entry.problem) == (line, None, None)


@pytest.mark.parametrize("form", ["json", "logfmt", "web"])
def test_a_line_that_is_not_in_the_format_that_was_named_is_kept_and_marked(form):
    entry = parsed("2026-01-01T10:00:00Z ERROR what", form)
    assert (entry.time_ms, entry.level, entry.problem) == (AT_MS, "ERROR", f"not {form}")


def test_moments():
    assert moment_ms("2026-01-01T11:00:00+01:00") == AT_MS
    assert moment_ms("2026-01-01 11:00:00", ZoneInfo("Europe/Berlin")) == AT_MS
    for number in (AT_MS // 1000, AT_MS, AT_MS * 1000, AT_MS * 1_000_000, str(AT_MS)):
        assert moment_ms(number) == AT_MS
    for wrong in (
        True,
        0,
        -5,
        10**30,
        float("nan"),
        "",
        "today",
        None,
        "31/Foo/2026:10:00:00 +0000",
    ):
        assert moment_ms(wrong) is None
    assert moment_ms("31/Feb/2026:10:00:00 +0000") is None


def record(*lines, cut=None, path="/var/log/shop.log.1", **origin):
    group = Group(7, 9, list(lines), cut)
    return RecordMaker("f", path, Origin(host="h", **origin), AT_MS).record(group)


def document(*lines, **more):
    import json

    return json.loads(record(*lines, **more)[0])


def test_a_record_names_its_file_and_its_place():
    found = record(b"hello\r", b"  there")
    assert found[1] == b"f:7"
    assert document(b"hello\r", b"  there") == {
        "id": "f:7",
        "time": "2026-01-01T10:00:00.000Z",
        "service": "shop",
        "host": "h",
        "message": "hello\n  there",
        "file": "/var/log/shop.log.1",
    }


def test_bytes_that_are_no_text_are_kept_as_text_and_marked():
    found = document(b"caf\xe9")
    assert (found["message"], found["problem"]) == ("caf\\xe9", "not UTF-8")
    assert document(b'{"msg": "\\ud800"}')["message"] == "\\ud800"


def test_blank_lines_are_no_record():
    assert record(b"", b"  \r") is None


def test_a_service_is_the_lines_own_or_the_one_given_or_the_files_name():
    assert document(b'{"msg": "x", "service": "pay"}', service="shop")["service"] == "pay"
    assert document(b"x", service="pay")["service"] == "pay"
    assert document(b"x", path="/x/.hidden")["service"] == "unnamed"


def test_more_fields_than_a_log_has_are_one():
    many = "{" + ",".join(f'"k{n}": {n}' for n in range(MOST_FIELDS + 9)) + "}"
    assert len(document(many.encode())["fields"]) == MOST_FIELDS + 1


def test_a_record_for_a_topic_that_takes_less_says_that_it_is_cut():
    import json

    found = json.loads(shortened(record(b"x" * 9000)[0]))
    assert (len(found["message"]), found["cut"]) == (4096, "begin")
    assert "larger" in found["problem"]


@pytest.mark.parametrize(
    ("begin", "ms"),
    [
        ("2026-01-31 12:00:00", 0),
        ("2026-01-31 12:00:00,1", 100),
        ("[2026-01-31T12:00:00.123456789Z]", 123),
        ("2026-01-31 14:00:00.007 +0200", 7),
        ("2026-01-31 10:30:00 -01:30", 0),
    ],
)
def test_the_time_at_the_beginning_of_a_line(begin, ms):
    for _ in range(2):  # the second is remembered
        entry = parsed(f"{begin} INFO paid")
        assert (entry.time_ms, entry.message) == (1_769_860_800_000 + ms, "INFO paid")
    assert parsed("2026-02-30 12:00:00 INFO paid").time_ms is None


@pytest.mark.parametrize("number", [10**400, -(10**400), float("inf"), float("nan"), 1e308])
def test_a_number_without_bounds_is_no_time(number):
    assert moment_ms(number) is None
    line = json.dumps({"time": number, "msg": "m", "level": "info"}).encode()
    assert document(line)["time"] == "2026-01-01T10:00:00.000Z"
