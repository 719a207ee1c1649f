"""A part of a page that may be missing: its answer, or a message why there is none.

A page shows what is known and states what is not: a broker that is down, or a right that the user
lacks, must not hide the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.client.errors import ClientError

Answer = TypeVar("Answer")


@dataclass(slots=True)
class Part(Generic[Answer]):
    answer: Answer | None
    missing: str = ""  # why there is no answer


def part(question: Callable[[], Answer]) -> Part[Answer]:
    try:
        return Part(question())
    except ClientError as failure:
        return Part(None, str(failure))
