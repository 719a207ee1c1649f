"""A text story that is not true, or that nobody understands, fails and names its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.text_story import Phrases, tell_story


class Count:
    def __init__(self) -> None:
        self.total = 0

    def add(self, number: str) -> None:
        self.total += int(number)

    def is_so(self, number: str) -> None:
        assert self.total == int(number), self.total

    def is_even(self) -> None:
        assert self.total % 2 == 0, self.total


COMMANDS: Phrases = ((r"add (\d+)", Count.add),)
FACTS: Phrases = ((r"total (\d+)", Count.is_so), (r"even", Count.is_even))


def tell(folder: Path, text: str) -> None:
    path = folder / "count.txt"
    path.write_text(text, "utf-8")
    tell_story(path, Count(), commands=COMMANDS, facts=FACTS)


def test_commands_and_facts_are_taken_in_order(tmp_path: Path) -> None:
    tell(tmp_path, "# add 9\n\nadd 1   -> total 1\nadd 3   -> total 4; even\n        -> even\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("add 1\nadd 2   -> total 3; even", "count.txt, line 2: add 2   -> total 3; even: 3"),
        ("add 1   -> total 2; total 1", "count.txt, line 1: add 1   -> total 2; total 1: 1"),
        ("add 1\n     -> even", "count.txt, line 2: -> even: 1"),
        ("add some", "nobody knows what 'add some' means"),
        ("add 1 more", "nobody knows what 'add 1 more' means"),
        ("add 1   -> odd", "nobody knows what 'odd' means"),
    ],
)
def test_what_is_not_so_fails_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(AssertionError) as raised:
        tell(tmp_path, text)
    assert said in str(raised.value)
