"""Bytes become lines, lines become groups: the same ones however the bytes came."""

import itertools
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.services.shipping.followed import Followed, Position
from headrace.services.shipping.line_groups import MOST_BYTES, MOST_LINES, Joiner
from headrace.services.shipping.lines import Line, Splitter
from tests.effort import examples


def lines_of(*chunks, most=10):
    splitter = Splitter(0, most)
    found = [line for chunk in chunks for line in splitter.feed(chunk)]
    return found + splitter.flush()


def groups_of(text):
    joiner = Joiner(joins=True)
    splitter = Splitter(0, 100_000)
    lines = splitter.feed(text.encode()) + splitter.flush()
    found = [group for line in lines for group in joiner.add(line)]
    return ["\n".join(one.decode() for one in group.lines) for group in found + joiner.flush()]


def test_a_line_has_its_place_behind_its_newline():
    assert lines_of(b"ab\nc", b"d\n\ne") == [
        Line(0, 3, b"ab"),
        Line(3, 6, b"cd"),
        Line(6, 7, b""),
        Line(7, 8, b"e"),
    ]


def test_a_line_that_is_too_long_is_cut_into_marked_pieces_and_nothing_is_left_out():
    assert lines_of(b"0123456789abcdefghijXYZ\nnext\n") == [
        Line(0, 10, b"0123456789", "begin"),
        Line(10, 20, b"abcdefghij", "middle"),
        Line(20, 24, b"XYZ", "end"),
        Line(24, 29, b"next"),
    ]


@given(st.binary(max_size=60).map(lambda raw: raw.replace(b"\0", b"\n")), st.data())
def test_the_chunks_in_which_bytes_come_make_no_difference(data, draw):
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=5)))
    chunks = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert lines_of(*chunks, most=7) == lines_of(data, most=7)
    whole = b"".join(
        one.data + (b"\n" if one.end > one.start + len(one.data) else b"")
        for one in lines_of(data, most=7)
    )
    assert whole == data


PYTHON = """2026-01-01 10:00:00 ERROR shop: cannot pay
Traceback (most recent call last):
  File "pay.py", line 3, in pay
    raise KeyError("x")
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "pay.py", line 9, in main
ValueError: no
2026-01-01 10:00:01 INFO shop: next"""

JAVA = """2026-01-01 10:00:00 ERROR c.s.Shop - cannot pay
java.lang.IllegalStateException: no
\tat c.s.Shop.pay(Shop.java:3)
\tat c.s.Shop.main(Shop.java:9)
Caused by: java.io.IOException: gone
\t... 2 more
2026-01-01 10:00:01 INFO c.s.Shop - next"""


def test_a_stack_trace_belongs_to_the_line_above_it():
    for text in (PYTHON, JAVA):
        first, second = groups_of(text)
        assert first == text.rpartition("\n")[0]
        assert second.endswith("next")


def test_a_traceback_below_a_quiet_line_is_a_message_of_its_own():
    quiet, trace, after = groups_of(
        "INFO started\nTraceback (most recent call last):\n  File x\nKeyError: 1\nINFO started"
    )
    assert (quiet, after) == ("INFO started", "INFO started")
    assert trace.startswith("Traceback") and trace.endswith("KeyError: 1")


def test_what_is_json_stands_alone():
    assert groups_of('{"a": 1}\n  indented\n{"b": 2}') == ['{"a": 1}', "  indented", '{"b": 2}']


def test_a_group_that_is_too_long_is_cut_and_marked():
    joiner = Joiner(joins=True)
    found = []
    for number in range(MOST_LINES + 5):
        found += joiner.add(Line(number, number + 1, b" x" if number else b"ERROR x"))
    assert [(len(one.lines), one.cut) for one in found] == [(MOST_LINES, "begin")]
    joiner = Joiner(joins=True)
    found = [
        one
        for number in range(4)
        for one in joiner.add(Line(number, number + 1, b" " * (MOST_BYTES // 2 - 10)))
    ]
    assert all(one.size <= MOST_BYTES for one in found)


# ---- a file that is read again after a kill

PARTS = [
    b"INFO one\n",
    b"ERROR two\n",
    b"Traceback (most recent call last):\n",
    b"  File x\n",
    b"KeyError: 1\n",
    b"\n",
    b"{}\n",
    b"longer than the longest\n",
]


def read_on(position, data, there, kept, chance):
    """One life of a shipper: reads, pauses, sends and hears of a part of it; what it sent. The file
    grows meanwhile: `there[0]` bytes of it are there. Pauses are only at its end."""
    followed = Followed(position, most=12, joins=True, mid=_mid(position, data))
    sent = {}
    flying = []

    def send(groups):
        for group in groups:
            sent[group.start] = (group.end, tuple(group.lines))
            flying.append(followed.sending(group.end))

    while followed.read < len(data):
        some = followed.may_read(min(chance.randint(1, 30), there[0] - followed.read))
        if some:
            send(followed.feed(data[followed.read : followed.read + some], now_ms=0))
        elif followed.pause(now_ms=5, quiet_ms=1):
            kept[:] = [position.offset, list(position.cuts)]
            send(followed.after_pause())
        if chance.random() < 0.4:
            there[0] = min(len(data), there[0] + chance.randint(1, 20))
        if flying and chance.random() < 0.5:
            followed.written(flying.pop(chance.randrange(len(flying))))
        if chance.random() < 0.5:
            kept[:] = [position.offset, list(position.cuts)]
        if chance.random() < 0.1:
            return sent, False
    if followed.finish():
        kept[:] = [position.offset, list(position.cuts)]
        send(followed.at_end())
    return sent, True


def _mid(position, data):
    return position.offset > 0 and data[position.offset - 1 : position.offset] != b"\n"


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=12), st.integers())
def test_a_file_that_is_read_again_gives_the_same_groups_under_the_same_ids(parts, seed):
    data, chance = b"".join(parts), Random(seed)
    kept: list[Any] = [0, []]
    there = [0]
    seen = {}
    ended = False
    while not ended:
        position = Position("f", "f", 0, 0, offset=kept[0], cuts=list(kept[1]))
        sent, ended = read_on(position, data, there, kept, chance)
        for start, what in sent.items():
            assert seen.setdefault(start, what) == what
    places = sorted((start, end) for start, (end, _) in seen.items())
    assert places[0][0] == 0 and places[-1][1] == len(data)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(places))  # none lost
