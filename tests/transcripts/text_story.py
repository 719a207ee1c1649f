"""The run of a text story: on each line what is done, and behind an arrow what is then true.

    pause 1 for 10s
    run 6s                  -> node 2 leads epoch 2; node 1 lacks a

Lines that begin with # are comments. A story has two tables of phrases, for the left side and for
the right side. A phrase is matched as a whole; its groups are the arguments of its call.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

Phrases = tuple[tuple[str, Callable[..., None]], ...]


def tell_story(path: Path, story: object, *, commands: Phrases, facts: Phrases) -> None:
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        try:
            _tell_line(line, story, commands, facts)
        except AssertionError as error:
            raise AssertionError(f"{path.name}, line {number}: {line.strip()}: {error}") from error


def _tell_line(line: str, story: object, commands: Phrases, facts: Phrases) -> None:
    command, _, then = line.partition("->")
    if command.strip() and not line.startswith("#"):
        _match(story, commands, command.strip())
    for fact in filter(None, (fact.strip() for fact in then.split(";"))):
        _match(story, facts, fact)


def _match(story: object, phrases: Phrases, text: str) -> None:
    for pattern, call in phrases:
        if found := re.fullmatch(pattern, text):
            call(story, *found.groups())
            return
    raise AssertionError(f"nobody knows what {text!r} means")


def milliseconds(seconds: str) -> int:
    return int(float(seconds) * 1_000)


def numbers(text: str) -> list[int]:
    return [] if text == "nobody" else sorted(int(number) for number in text.split(", "))
