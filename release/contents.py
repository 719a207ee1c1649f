"""What a wheel must hold: every file of the package that git knows, and nothing else. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from release.changelog import Unfit

SOURCE = "src/"
PACKAGE = "headrace/"


def must_be_whole(tracked: Iterable[str], packed: Iterable[str]) -> int:
    """Compare git's names with those of the wheel; the number of files of the package."""
    expected = {name.removeprefix(SOURCE) for name in tracked if name.startswith(SOURCE + PACKAGE)}
    found = {name for name in packed if name.startswith(PACKAGE) and not name.endswith("/")}
    if missing := sorted(expected - found):
        raise Unfit(f"the wheel lacks {len(missing)} files of the package: {_some(missing)}")
    if strange := sorted(found - expected):
        raise Unfit(
            f"the wheel holds {len(strange)} files that git does not know: {_some(strange)}"
        )
    return len(found)


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
