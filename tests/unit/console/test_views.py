"""What pages show, as plain data: hostile bytes, numbers, retention in words, lag, histograms."""

from __future__ import annotations

import json

import pytest

from headrace.app.triggers.filters import FilterRefused
from headrace.client.admin.groups import GroupDescription, GroupProgress, Move
from headrace.client.admin.topics import Setting
from headrace.client.lookup.record_pages import Page, Seen
from headrace.client.record_json import as_object
from headrace.client.records import Record
from headrace.console.access.rates import RateMeter
from headrace.console.decoding.avro import Schema
from headrace.console.query import Unreadable, moment_ms, offsets_in, offsets_text, whole
from headrace.console.views import words
from headrace.console.views.code_samples import python_to_read, python_to_send
from headrace.console.views.delayed import histogram, lateness_words
from headrace.console.views.draft import draft_from, draft_of, when_from, when_words
from headrace.console.views.groups import group_page, move_rows, spans, way_words
from headrace.console.views.list_pages import Paging
from headrace.console.views.messages import Wanted, marks, message_row, summary
from headrace.console.views.new_topic import settings_from
from headrace.console.views.payloads import LONGEST_SHOWN, Reader, payload
from headrace.console.views.topics import kept_in_words
from headrace.operations.group_resets import Reset, Way


def record(value: bytes | None = b"{}", key: bytes | None = None, **more: object) -> Record:
    headers = more.get("headers", [])
    return Record("orders", 0, 7, 1_700_000_000_000, "create", key, value, headers)  # type: ignore[arg-type]


# ---- payloads


@pytest.mark.parametrize(
    ("raw", "kind", "preview"),
    [
        (None, "null", "null"),
        (b"", "empty", "empty"),
        (b"hello", "text", "hello"),
        (b'{"a": 1}', "json", '{"a": 1}'),
        (b"{broken", "text", "{broken"),
        (b"two\n lines", "text", "two lines"),
        ("\x1b[31mred \u202egnp.exe".encode(), "text", "\\x1b[31mred \\u202egnp.exe"),
        (b"\xff\xfe\x00", "binary", "ff fe 00"),
        (b"text with a \x00", "binary", "74 65 78 74 20 77 69 74 68 20 61 20 00"),
    ],
)
def test_bytes_become_what_people_can_read(raw: bytes | None, kind: str, preview: str) -> None:
    shown = payload(raw)
    assert (shown.kind, shown.preview) == (kind, preview)


def test_nothing_unprintable_comes_through_but_line_ends_of_our_own_layout() -> None:
    every = "".join(map(chr, [*range(1, 0x300), 0x200B, 0x202E, 0x2028, 0xFEFF, 0xE000]))
    for raw in (every.encode() * 3 + b"plain text " * 99, json.dumps({every: every}).encode()):
        for text in (payload(raw).preview, payload(raw).whole):
            assert all(sign.isprintable() or sign in "\n\t" for sign in text)


def test_json_is_indented_and_deep_or_huge_json_does_no_harm() -> None:
    assert payload(b'{"a":[1,2]}').whole == '{\n  "a": [\n    1,\n    2\n  ]\n}'
    assert payload(b"[" * 100_000).kind == "text"
    assert payload(b"[" + b"9" * 10_000 + b"]").kind in ("text", "json")


def test_a_long_value_is_cut_and_says_so() -> None:
    shown = payload(b"x" * (LONGEST_SHOWN + 1))
    assert shown.cut and len(shown.whole) == LONGEST_SHOWN and shown.preview.endswith("…")


def test_binary_is_a_hex_dump_and_says_what_it_could_be() -> None:
    assert payload((42).to_bytes(8)).note == "as a big-endian integer: 42"
    assert "schema id 7" in payload(b"\x00\x00\x00\x00\x07\xffabc").note
    assert payload(b"\xff\x00A").whole.startswith("000000  ff 00 41")


# ---- words


def test_numbers_sizes_and_times_in_words() -> None:
    assert words.number(1_234_567) == "1\u202f234\u202f567"
    assert (words.number(None), words.number(0)) == ("–", "0")
    assert [words.size(n) for n in (0, 1023, 1536, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KB",
        "5.0 GB",
    ]
    assert words.moment(10**17) == str(10**17) and words.iso(-5) == ""
    assert [words.lasting(ms) for ms in (900, 59_000, 3_725_000, 93_600_000)] == [
        "0.9 s",
        "59 s",
        "1h2m",
        "1d2h",
    ]
    assert words.count(1, "topic") == "1 topic"


def test_retention_in_words() -> None:
    def kept(**settings: str) -> str:
        return kept_in_words(
            {name.replace("_", "."): Setting(value, "topic") for name, value in settings.items()}
        )

    assert kept(retention_ms="604800000") == "for 7 days"
    assert kept(cleanup_policy="compact") == "the last message of each key"
    assert kept(cleanup_policy="compact,delete", retention_ms="5400000") == (
        "the last message of each key, for 90 minutes"
    )
    assert kept(retention_ms="-1") == "for ever"


def test_a_new_topics_retention_and_compaction_become_settings() -> None:
    day = str(86_400_000)
    assert settings_from("", compact=False) == {}
    assert settings_from("-1", compact=False) == {"retention.ms": "-1"}
    assert settings_from("-1", compact=True) == {"cleanup.policy": "compact"}
    assert settings_from(day, compact=True) == {
        "cleanup.policy": "compact,delete",
        "retention.ms": day,
    }
    with pytest.raises(Unreadable):
        settings_from("12", compact=False)


# ---- addresses


def test_what_an_address_says_is_read_strictly() -> None:
    assert offsets_in("0:12,3:40") == {0: 12, 3: 40}
    assert offsets_text({3: 40, 0: 12}) == "0:12,3:40"
    assert whole({"n": " 5 "}, "n", default=1) == 5 and whole({}, "n", default=1) == 1
    for wrong in ("0:", "a:1", "0:1,,", "0:١"):
        with pytest.raises(Unreadable):
            offsets_in(wrong)
    for wrong in ("-1", "1e3", "9" * 30, "²"):
        with pytest.raises(Unreadable):
            whole({"n": wrong}, "n", default=1)
    assert moment_ms("1700000000000") == 1_700_000_000_000
    assert moment_ms("2026-01-31T10:00:00Z") == 1_769_853_600_000
    with pytest.raises(Unreadable, match="is not a time"):
        moment_ms("tomorrow")


def test_paging_knows_its_neighbours() -> None:
    assert (Paging(0, 25, 60).previous, Paging(0, 25, 60).next) == (None, 1)
    last = Paging(2, 25, 60)
    assert (last.first, last.last, last.next) == (51, 60, None)
    assert Paging(0, 25, 0).first == 0


# ---- messages


def test_conditions_must_all_hold_and_an_expression_is_never_run() -> None:
    seen = Seen(record(b'{"amount": 150}', key=b"tom", headers=[("kind", b"refund")]))

    def accepts(**given: str) -> bool:
        return Wanted(**given).accepts()(seen)  # type: ignore[arg-type]

    assert accepts(key="to", text="150", header="kind=refund", where="value.amount > 100")
    assert not accepts(key="tim")
    assert not accepts(header="kind=sale")
    assert accepts(header="kind")
    assert not accepts(where='key == "tim"')
    with pytest.raises(FilterRefused):
        accepts(where="__import__('os').system('true')")


def test_aborted_records_and_markers_are_shown_only_to_those_who_ask() -> None:
    aborted = Seen(record(), producer_id=3, aborted=True)
    marker = Seen(record(), marker="abort")
    for seen in (aborted, marker):
        assert not Wanted().accepts()(seen)
        assert Wanted(control=True).accepts()(seen)
    assert marks(aborted) == ["aborted"]
    assert marks(marker) == ["abort marker"]
    assert marks(Seen(record(None), producer_id=3)) == ["transaction", "tombstone"]


def test_a_download_keeps_bytes_that_are_no_text() -> None:
    assert as_object(record(b"\xff", key=b"k"))["value_base64"] == "/w=="
    assert as_object(record(None))["value"] is None


def test_a_form_becomes_a_message_and_back() -> None:
    form = {"key": "", "value": "a\r\nb", "headers": "kind: sale\n\ntrace:1", "delay": " 30m "}
    draft = draft_from(form)
    assert (draft.key, draft.value, draft.when) == (None, "a\nb", {"delay": "30m"})
    assert draft.headers == [("kind", "sale"), ("trace", "1")]
    assert draft_from({"tombstone": "1", "value": "x"}).value_bytes() is None
    with pytest.raises(Unreadable, match="is not a header"):
        draft_from({"headers": "nonsense"})
    assert draft_of(record(b"v", key=b"k", headers=[("h", b"1")])).header_lines() == "h: 1"
    assert draft_of(record(b"\xff")).lost


# ---- groups


def test_a_group_without_commits_has_no_lag_rather_than_one_of_zero() -> None:
    never = GroupDescription(
        "g", "Stable", "classic", "", 1, [], [GroupProgress("t", 0, None, 9, unread=9)]
    )
    some = GroupDescription(
        "g",
        "Empty",
        "classic",
        "",
        1,
        [],
        [GroupProgress("t", 0, 4, 9, unread=5), GroupProgress("t", 1, None, 5, unread=5)],
    )
    assert group_page(never).lag is None
    assert group_page(some).lag == 5
    assert [row.share for row in group_page(some).progress] == [1.0, 0.0]


def test_a_reset_is_told_partition_by_partition_and_as_a_command() -> None:
    moves = [Move("t", 0, 10, 0, 0), Move("t", 1, None, 5, 99)]
    rows = move_rows(moves)
    assert [(row.change, row.at_the_edge) for row in rows] == [(-10, False), (None, True)]
    assert way_words(Reset("g", Way.SHIFT, -5)) == ["--shift-by=-5"]
    assert way_words(Reset("g", Way.TIME, 1_700_000_000_000))[0] == "--to-time"
    assert spans([("t", 0), ("t", 1), ("t", 4), ("u", 0)]) == "t 0-1, 4; u 0"


# ---- charts


def test_a_histogram_has_every_message_in_one_bar() -> None:
    due = [0, 1, 2, 50, 99, 100]
    bars = histogram(due, bars=10)
    assert sum(bar.count for bar in bars) == len(due)
    assert (bars[0].count, bars[-1].count, bars[0].share) == (3, 2, 1.0)
    assert histogram([5]) == [] and histogram([5, 5]) == []


def test_rates_come_of_two_samples_and_begin_anew_after_a_pause() -> None:
    meter = RateMeter()
    meter.note({"a": 0, "b": 10}, 100.0)
    assert meter.rates is None
    meter.note({"a": 20, "b": 10, "new": 5}, 102.0)
    assert meter.rates is not None
    assert (meter.rates.total, meter.rates.busiest) == (10.0, [("a", 10.0)])
    meter.note({"a": 0}, 104.0)  # deleted and created again
    assert meter.rates is not None and meter.rates.total == 0
    meter.note({"a": 10**9}, 900.0)
    assert meter.rates is None


# ---- when


def test_one_time_is_said_and_no_more() -> None:
    assert when_words(when_from({"delay": "5m"})) == "in 5m"
    assert when_words(when_from({"deliver_at": "2026-01-31T10:00"})).startswith("at 2026-01-31")
    assert when_from({"cron": "0 9 * * 1-5", "cron_zone": "Europe/Berlin"}) == {
        "cron": "0 9 * * 1-5",
        "cron_zone": "Europe/Berlin",
    }
    assert when_from({"cron_zone": "Europe/Berlin"}) == {}
    with pytest.raises(Unreadable):
        when_from({"delay": "5m", "cron": "* * * * *"})
    with pytest.raises(Unreadable):
        when_from({"deliver_at": "tomorrow"})


def test_lateness_is_told_by_bounds() -> None:
    assert lateness_words({5: 0, None: 0}) == ""
    assert lateness_words({5: 60, 20: 39, None: 1}) == (
        "half within 5 ms, 99 % within 20 ms, all later than the last bound"
    )


# ---- reading bytes as something else


def test_bytes_are_read_as_asked() -> None:
    assert Reader("hex").payload(b"ab").preview == "61 62"
    assert Reader("number").payload((42).to_bytes(2)).preview == "42, little-endian 10752"
    assert "float" in Reader("number").payload(bytes(8)).preview
    assert "too many" in Reader("number").payload(bytes(99)).preview
    assert Reader("text").payload(b"\xff\x1b").preview == "\ufffd\\x1b"
    avro = Reader("avro", Schema('{"type": "array", "items": "string"}'))
    assert avro.payload(b"\x02\x02a\x00").preview == '[ "a" ]'
    assert (
        avro.payload(b"\x09").kind == "binary"
        and "not of this schema" in avro.payload(b"\x09").note
    )
    assert avro.document(b"\x02\x02a\x00") == ["a"] and avro.document(b"\x09") is None


def test_of_each_key_the_latest_is_let_through() -> None:
    accepts = Wanted(latest=True, text="1").accepts()
    newest_first = [(b"a", b"2"), (b"b", b"1"), (b"a", b"1"), (None, b"1"), (b"b", b"1")]
    assert [accepts(Seen(record(value, key))) for key, value in newest_first] == [
        False, True, False, False, False,
    ]  # fmt: skip


def test_a_path_narrows_and_is_shown() -> None:
    seen = Seen(record(b'{"items": [{"sku": "A\\u202e"}, {"sku": 7}]}'))
    assert Wanted(path="items[*].sku", path_is="7").accepts()(seen)
    assert not Wanted(path="items[*].sku", path_is="8").accepts()(seen)
    assert message_row(seen, path="items[*].sku").at_path == "A\\u202e, 7"


def test_a_message_as_a_program_is_literals_only() -> None:
    odd = record(b"');import os;('", b"\xff", headers=[("h'\"", None)])
    sample = python_to_send("x:1'", odd)
    compiled = compile(sample, "sample", "exec")
    assert "os" not in compiled.co_names and "\\xff" in sample
    assert "..." in python_to_send("b", record(b"x" * 9_999))
    compile(python_to_read("b", odd), "sample", "exec")


def test_a_header_of_several_lines_becomes_no_other_header_when_it_is_sent_again() -> None:
    hostile = b"x\nheadrace-deliver-at: 1"
    headers = [
        ("plain", b"a: b"),
        ("stack", hostile),
        ("odd:name", b"y"),
        ("u", "a\u2028b".encode()),
    ]
    draft = draft_of(Record("t", 0, 0, 0, "create", b"k", b"v", headers))
    assert draft.headers == [("plain", "a: b")]
    assert draft.lost.endswith("left out: stack, odd:name, u.")
    assert draft_from({"value": "v", "headers": draft.header_lines()}).headers == draft.headers


def test_a_page_that_is_full_does_not_claim_to_have_stopped_at_a_limit() -> None:
    found = [Seen(Record("t", 0, n, 0, "create", None, b"v", [])) for n in range(2)]
    page = Page(found, {0: 2}, looked_at=9, at_the_end=False)
    assert summary(page, Wanted(text="v"), 2).endswith("9 messages; there may be more")
    assert "stopped at its limit" in summary(page, Wanted(text="v"), 50)
