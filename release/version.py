"""A version's number: its form, what may follow what, and where it stands in the project. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from release.changelog import Unfit

# 1.2.3, and before it 1.2.3rc1, 1.2.3rc2 and so on, as Python's packages are numbered.
_FORM = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:rc([1-9]\d*))?", re.ASCII)
_FINAL = 1 << 30  # a version follows its candidates
# The two files that have it, and the line in each.
PLACES = {
    "pyproject.toml": re.compile(r'^version = "(.*)"$', re.M),
    "src/headrace/__init__.py": re.compile(r'^__version__ = "(.*)"$', re.M),
}


def order(version: str) -> tuple[int, int, int, int]:
    found = _FORM.fullmatch(version)
    if found is None:
        raise Unfit(f"'{version}' is no version: write it as 1.2.3 or 1.2.3rc1")
    major, minor, patch, candidate = found.groups()
    return int(major), int(minor), int(patch), int(candidate) if candidate else _FINAL


def tag(version: str) -> str:
    return f"v{version}"


def must_follow(version: str, tags: Iterable[str]) -> None:
    """Refuse a version that is not later than all that were released."""
    mine = order(version)
    released = [name[1:] for name in tags if _FORM.fullmatch(name[1:]) and name[0] == "v"]
    latest = max(released, key=order, default=None)
    if latest is not None and order(latest) >= mine:
        raise Unfit(f"{version} does not follow {latest}, which was released already")


def with_version(name: str, text: str, version: str) -> str:
    """The text of one of PLACES with another version."""
    line = PLACES[name]
    found = line.search(text)
    if found is None:
        raise Unfit(f"{name} has no line with the version")
    return text[: found.start(1)] + version + text[found.end(1) :]
