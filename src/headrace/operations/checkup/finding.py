"""One check of the doctor: its result, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingState(StrEnum):
    GOOD = "good"
    WATCH = "watch"  # works, but the user should know
    WRONG = "wrong"  # the doctor's exit code is 1


@dataclass(slots=True)
class Finding:
    about: str
    state: FindingState
    found: str
    advice: str | None = None


def good(about: str, found: str) -> Finding:
    return Finding(about, FindingState.GOOD, found)


def watch(about: str, found: str, advice: str | None = None) -> Finding:
    return Finding(about, FindingState.WATCH, found, advice)


def wrong(about: str, found: str, advice: str) -> Finding:
    return Finding(about, FindingState.WRONG, found, advice)
