"""Which version may follow which, where it stands, and what a wheel must hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from release.changelog import Unfit
from release.contents import must_be_whole
from release.version import PLACES, must_follow, order, with_version

PROJECT = Path(__file__).resolve().parents[3]


def test_versions_are_ordered_by_their_numbers_and_candidates_come_before() -> None:
    rising = ["0.9.0", "0.10.0rc1", "0.10.0rc2", "0.10.0rc10", "0.10.0", "0.10.1", "1.0.0"]
    assert sorted(reversed(rising), key=order) == rising


@pytest.mark.parametrize("text", ["", "1.0", "v1.0.0", "1.0.0 ", "01.0.0", "1.0.0-rc1", "1.0.0rc0"])
def test_other_forms_are_no_versions(text: str) -> None:
    with pytest.raises(Unfit, match="is no version"):
        order(text)


def test_a_version_follows_all_released_ones() -> None:
    tags = ["v0.9.0", "v0.10.0", "nightly", "v2", "x9.9.9"]
    must_follow("0.10.1", tags)
    must_follow("0.1.0", [])
    for late in ("0.10.0", "0.9.5", "0.10.0rc1"):
        with pytest.raises(Unfit, match="does not follow 0.10.0"):
            must_follow(late, tags)


@pytest.mark.parametrize("name", PLACES)
def test_the_version_is_replaced_where_it_stands_and_nothing_else_is(name: str) -> None:
    text = (PROJECT / name).read_text("utf-8")
    changed = with_version(name, text, "7.8.9rc1")
    assert changed.count("7.8.9rc1") == 1
    was = PLACES[name].search(text)
    assert was is not None and with_version(name, changed, was[1]) == text
    with pytest.raises(Unfit, match="no line with the version"):
        with_version(name, "", "1.0.0")


def test_a_wheel_holds_every_file_of_the_package_and_no_other() -> None:
    tracked = ["src/headrace/a.py", "src/headrace/console/x.html", "src/other.txt"]
    packed = ["headrace/a.py", "headrace/console/", "headrace/console/x.html"]
    about = ["headrace-1.0.0.dist-info/METADATA"]
    assert must_be_whole(tracked, packed + about) == 2
    with pytest.raises(Unfit, match=r"lacks 1 files of the package: headrace/console/x\.html"):
        must_be_whole(tracked, packed[:2])
    with pytest.raises(Unfit, match=r"1 files that git does not know: headrace/b\.py"):
        must_be_whole(tracked, [*packed, "headrace/b.py"])
