"""The editor of a dead letter: what is sent, and what is shown before."""

from __future__ import annotations

from headrace.console.views.edited_value import MOST_COMPARED, edited_value


def test_an_untouched_editor_sends_the_letter_as_it_is() -> None:
    for value in (b"one\ntwo", b"one\r\ntwo", b"one\rtwo"):
        assert edited_value(value, "one\r\ntwo") is None
    assert edited_value(None, "") is None
    assert edited_value(b"\xff", "anything") is None


def test_a_change_is_sent_and_shown_line_by_line() -> None:
    found = edited_value(b"one\ntwo\nthree", "one\r\n2\r\nthree")
    assert found is not None and found.text == "one\n2\nthree"
    assert found.diff == [(" ", "one"), ("-", "two"), ("+", "2"), (" ", "three")]


def test_of_a_very_long_value_the_beginning_is_compared() -> None:
    found = edited_value(b"x\n" * (MOST_COMPARED + 1), "y")
    assert found is not None and not found.is_whole
