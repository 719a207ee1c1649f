"""A path into a JSON document: `items[0].sku`, `$.items[*].sku`, `['odd name']`. Pure.

Names, numbers and `[*]` only: no expressions, no search through all levels, so that a path costs no
more than the document has parts on its way.
"""

from __future__ import annotations

import re
from typing import Any

LONGEST_PATH = 300
MOST_FOUND = 100

Step = str | int | None  # a name, a number, or None for all of them

_STEP = re.compile(
    r"""\.?(?:(?P<name>[^\s.\[\]'"]+)|\[(?P<number>\d{1,9})\]|(?P<all>\[\*\])"""
    r"""|\['(?P<single>[^']*)'\]|\["(?P<double>[^"]*)"\])"""
)


class PathRefused(ValueError):
    """One sentence about a path that is none."""


def parse(said: str) -> list[Step]:
    path = said.strip().removeprefix("$")
    if len(path) > LONGEST_PATH:
        raise PathRefused(f"A JSON path has at most {LONGEST_PATH} characters.")
    steps: list[Step] = []
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None or (at and path[at] not in ".["):
            raise PathRefused(
                f"{said!r} is not a JSON path; such as items[0].sku or ['odd name'].sku."
            )
        if found["number"] is not None:
            steps.append(int(found["number"]))
        elif found["all"] or found["name"] == "*":
            steps.append(None)
        else:
            steps.append(next(g for g in (found["name"], found["single"], found["double"])
                              if g is not None))  # fmt: skip
        at = found.end()
    if not steps:
        raise PathRefused("A JSON path names a part, such as items[0].sku.")
    return steps


def find(document: Any, steps: list[Step]) -> list[Any]:
    """All parts that the path leads to, at most MOST_FOUND."""
    found = [document]
    for step in steps:
        found = [part for each in found for part in _parts(each, step)][:MOST_FOUND]
    return found


def _parts(document: Any, step: Step) -> list[Any]:
    if step is None:
        if isinstance(document, list):
            return document
        return list(document.values()) if isinstance(document, dict) else []
    if isinstance(step, int):
        inside = isinstance(document, list) and step < len(document)
        return [document[step]] if inside else []
    return [document[step]] if isinstance(document, dict) and step in document else []
