"""The shipper's quick way makes of any bytes what the plain way makes, byte for byte."""

import itertools
import json
from datetime import UTC
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.services.shipping.followed import Followed, Position
from headrace.services.shipping.formats import FORMATS
from headrace.services.shipping.line_groups import NEVER_GOES_ON, Group, continues
from headrace.services.shipping.moments import moment_ms
from headrace.services.shipping.records import Origin, RecordMaker
from tests.effort import examples
from tests.unit.services.shipping import plain_way

READ_MS = 1_790_000_000_000  # 2026-09-21
MOST = 400
ID = "0123456789abcdef"

TIMES = st.sampled_from(
    [
        *("2026-01-01T10:00:00.123Z", "2026-01-01 10:00:00,123", "[2026-01-01T10:00:00.123456Z]"),
        *("2026-01-01T10:00:00.123456789Z", "2026-01-01T10:00:00.1Z", "2026-01-01T10:00:00Z"),
        *("2026-01-01T10:00:00.123+02:00", "2026-01-01 10:00:00 -0130", "2026-01-01T10:00:00"),
        *("2026-02-30T10:00:00.123Z", "2026-01-01T24:00:00.123Z", "2026-01-01T10:00:61.123Z"),
        *("2030-01-01T10:00:00.123Z", "1980-01-01T10:00:00.999Z", "2100-01-01T00:00:00.000Z"),
        *("20260101T100000.000.123Z", "2026-W01-1T00:00:00.123Z", "٢٠٢٦-01-01 10:00:00"),
        *("2026-01-01T10:00:00.١٢٣Z", "1767261600", "1767261600123", "1e400", "-0", "nan", ""),
        *("01/Jan/2026:10:00:00 +0000", "99/Jan/2026:10:00:00 +0000", "2026-01-01T10:00:00. 23Z"),
    ]
)
WORDS = st.sampled_from(
    [
        *("INFO", "WARN", "WARNING", "ERROR", "CRITICAL", "INFORMATION", "xERROR", "ERRORS"),
        *("[error]", "(warn:", "<crit>", "[warning", "emerg", "notice:", "Error", "TRACE", "éINFO"),
        *(
            "Traceback (most recent call last):",
            "Exception in thread main",
            "KeyError: 1",
            "_ERROR",
        ),
        *("java.lang.IllegalStateException: no", "Caused by: java.io.IOException", "at c.s.Shop"),
        *("a=b", 'a="b c"', 'msg="x \\" y"', "level=info", "=", '"', "\\", "] ", '] "', "{", "}"),
        *("\x00", "\x1f", "\x85", "\u2028", "ü€\U0001f600", "-", ":", "]", " ", "\t", "x" * 190),
        *("service=shop", "app=" + "s" * 70, "exception=boom", "msg=", "time=1", "ts=2026-01-01"),
    ]
)


@st.composite
def text_lines(draw):
    parts = [draw(TIMES)] if draw(st.booleans()) else []
    parts += draw(st.lists(WORDS | st.text(max_size=12), max_size=7))
    return draw(st.sampled_from(["", " ", "\t", "[", "\ufeff"])) + draw(
        st.sampled_from([" ", "  ", "", " - "])
    ).join(parts)


NAMES = st.sampled_from(
    [
        *("time", "ts", "level", "lvl", "severity", "msg", "message", "event", "service", "app"),
        *("stack", "exception", "a", "b", "ü", '"', "", "%s", "log.level"),
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**25, -(2**63) - 1, 2**64, 1767261600123, 1767261600, 30, 50])
    | st.floats()
    | TIMES
    | WORDS
    | st.text(max_size=9)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)


@st.composite
def json_lines(draw):
    value = draw(st.dictionaries(NAMES | st.text(max_size=5), VALUES, max_size=7))
    text = json.dumps(value, ensure_ascii=draw(st.booleans()))
    behind = draw(st.sampled_from(["", "", "", " ", "x", "}", "\r", "\x0c", "\u00a0"]))
    return draw(st.sampled_from(["", "", "", " ", "\ufeff"])) + text + behind


@st.composite
def logfmt_lines(draw):
    pairs = []
    for name in draw(st.lists(NAMES | st.sampled_from(["trace", "9x", "@t", "x/y"]), max_size=7)):
        value = draw(TIMES | WORDS | st.text(max_size=9))
        if draw(st.booleans()):
            value = json.dumps(value, ensure_ascii=False)
        pairs.append(f"{name}={value}")
    return draw(st.sampled_from([" ", "  ", "\t", "\u00a0"])).join(pairs)


@st.composite
def web_lines(draw):
    part = st.sampled_from(["-", "", "ada", "a b", 'q\\"q', "\\\\", "ü", '"', "\x0b", "0"])
    time = draw(TIMES | st.just("01/Jan/2026:10:00:00 +0000"))
    request = draw(part | st.sampled_from(["GET /x HTTP/1.1", "GET /a b HTTP/2", "GET  HTTP/1"]))
    status = draw(st.sampled_from(["200", "404", "503", "20", "٢٠٠"]))
    line = f'{draw(part)} - {draw(part)} [{time}] "{request}" {status} {draw(part)}'
    if draw(st.booleans()):
        line += f' "{draw(part)}" "{draw(part)}"'
    return line + draw(st.sampled_from(["", " ", " more", " \t0.001 "]))


TEXTS = text_lines() | json_lines() | logfmt_lines() | web_lines()
RAW = st.binary(max_size=30) | st.sampled_from(
    [b"\0\0\0x", b"x\0", b"\r", b"", b"   ", b"\xef\xbb\xbfx", b"caf\xe9", b"x" * 1000, b"\x0b"]
)
LINES = TEXTS.map(lambda text: text.encode(errors="surrogatepass")) | RAW
PATHS = st.sampled_from(
    ["/var/log/shop.log.1", "/x/.hidden", f"/x/{'n' * 80}.log", "/x/\udce9.log"]
)
ENDS = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\n\n", b"\n  indented\n", b"\n\tat c.s\n"])


def quick(chunks, joins, path, origin):
    followed = Followed(Position(ID, path, 0, 0), most=MOST, joins=joins)
    groups = [group for chunk in chunks for group in followed.feed(chunk, 0)] + followed.at_end()
    maker = RecordMaker(ID, path, origin, READ_MS)
    return [(one.start, one.end, one.cut, maker.record(one)) for one in groups]


def plain(data, joins, path, origin):
    return [
        (one.start, one.end, one.cut, plain_way.record(one, ID, path, origin, READ_MS))
        for one in plain_way.groups([data], MOST, joins)
    ]


@settings(max_examples=examples(400), deadline=None)
@given(
    st.lists(st.tuples(LINES, ENDS), max_size=6),
    st.lists(st.integers(0, 400), max_size=4),
    st.sampled_from(FORMATS),
    st.sampled_from([UTC, ZoneInfo("Europe/Berlin")]),
    PATHS,
)
def test_records_of_any_bytes_are_those_of_the_plain_way(lines, cuts, form, zone, path):
    data = b"".join(line + end for line, end in lines)
    places = [0, *sorted(min(one, len(data)) for one in cuts), len(data)]
    chunks = [data[a:b] for a, b in itertools.pairwise(places)]
    origin = Origin(host='h"', form=form, zone=zone)
    joins = form in ("auto", "text")
    assert quick(chunks, joins, path, origin) == plain(data, joins, path, origin)


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=examples(200), deadline=None)
@given(TEXTS)
@example('{"a": 123456789012345678901234, "b": -0, "c": 1.0, "d": NaN, "a": 1, "level": true}')
@example('{"msg": "\\ud800", "level": "info"}')
@example("{" * 5000)
@example("2026-01-01 10:00:00" + " " * 200 + "INFO late")
@example("2026-01-01 10:00:00 " + "x" * 176 + "INFORMATION")
@example("2026-01-01 10:00:00INFO and ERROR")
def test_a_line_in_each_format_says_what_it_says_in_the_plain_way(form, text):
    line = text.encode(errors="surrogatepass").replace(b"\n", b" ")
    origin, group = Origin(host="h", form=form), Group(7, 8 + len(line), [line])
    assert RecordMaker(ID, "/a.log", origin, READ_MS).record(group) == plain_way.record(
        group, ID, "/a.log", origin, READ_MS
    )


@settings(max_examples=examples(500))
@given(TIMES | SCALARS)
def test_a_moment_is_that_of_the_plain_way(given_one):
    for _ in range(2):  # the second is remembered
        assert moment_ms(given_one) == plain_way.moment_ms(given_one, UTC)


@given(st.sampled_from(sorted(NEVER_GOES_ON)), st.binary(max_size=20), st.integers(0, 4))
def test_a_line_that_surely_begins_a_group_goes_on_with_none(first, rest, trace):
    group = Group(0, 6, [b"ERROR"])
    group.trace = trace
    assert not continues(group, first + rest)
