"""One thing that the doctor looked at, how it is, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    GOOD = "good"
    WATCH = "watch"  # works, but know it
    WRONG = "wrong"  # the doctor's exit code is 1


@dataclass(slots=True)
class Finding:
    about: str
    state: State
    found: str
    advice: str | None = None


def good(about: str, found: str) -> Finding:
    return Finding(about, State.GOOD, found)


def watch(about: str, found: str, advice: str | None = None) -> Finding:
    return Finding(about, State.WATCH, found, advice)


def wrong(about: str, found: str, advice: str) -> Finding:
    return Finding(about, State.WRONG, found, advice)
