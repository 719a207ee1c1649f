"""Fragments become a section of CHANGELOG.md, and the section becomes a version."""

from __future__ import annotations

from pathlib import Path

import pytest

from release import changelog
from release.changelog import HEAD, Unfit, gather, release, section

FRAGMENTS = {
    "tea.added.md": "Tea, see [the guide](../docs/guide/delay.md).\nIt is green.\n",
    "cups.fixed.md": "Cups no longer leak.\n",
    "bread.added.md": "Bread.\n",
}
GATHERED = f"""{HEAD}
## Unreleased

### Added

- Bread.
- Tea, see [the guide](docs/guide/delay.md).
  It is green.

### Fixed

- Cups no longer leak.
"""


def test_fragments_are_gathered_by_kind_and_their_links_begin_at_the_top() -> None:
    assert gather(HEAD, FRAGMENTS) == GATHERED


def test_later_fragments_join_the_same_section() -> None:
    later = gather(GATHERED, {"jam.removed.md": "Jam.", "milk.added.md": "Milk\n\nin two sorts."})
    assert later.count("## Unreleased") == 1
    assert "  It is green.\n- Milk\n\n  in two sorts.\n\n### Fixed" in later
    assert later.endswith("### Removed\n\n- Jam.\n")


def test_gathering_nothing_changes_nothing() -> None:
    assert gather(GATHERED, {}) == GATHERED


def test_a_release_gives_the_section_a_number_and_the_next_one_stands_before_it() -> None:
    first = release(GATHERED, "1.0.0", "2026-11-17")
    second = release(gather(first, {"jam.changed.md": "Jam is red."}), "1.1.0", "2026-12-01")
    headings = [line for line in second.splitlines() if line.startswith("## ")]
    assert headings == ["## 1.1.0 (2026-12-01)", "## 1.0.0 (2026-11-17)"]
    assert section(second, "1.1.0") == "### Changed\n\n- Jam is red.\n"
    assert section(second, "1.0.0").endswith("- Cups no longer leak.\n")
    assert second.startswith(HEAD)


def test_no_release_without_a_change_or_twice() -> None:
    first = release(GATHERED, "1.0.0", "2026-11-17")
    with pytest.raises(Unfit, match="nothing has changed"):
        release(first, "1.1.0", "2026-12-01")
    with pytest.raises(Unfit, match="a section for 1.0.0 already"):
        release(gather(first, {"jam.added.md": "Jam."}), "1.0.0", "2026-12-01")
    with pytest.raises(Unfit, match="no section for 1.0"):
        section(first, "1.0")


@pytest.mark.parametrize("name", ["tea.md", "tea.eaten.md", "two.words.added.md"])
def test_a_file_that_is_no_fragment_is_refused(name: str) -> None:
    with pytest.raises(Unfit, match=f"changelog.d/{name} is no fragment"):
        gather(HEAD, {name: "Tea."})


@pytest.mark.parametrize(
    "by_hand",
    ["### Security\n\n- Locks.\n", "A word before.\n\n### Added\n\n- Tea.\n",
     "### Added\n\n* A star is no point.\n"],
)  # fmt: skip
def test_what_a_hand_wrote_under_unreleased_is_not_left_out(by_hand: str) -> None:
    with pytest.raises(Unfit, match="under Unreleased"):
        gather(f"{HEAD}\n## Unreleased\n\n{by_hand}", FRAGMENTS)


def test_a_heading_that_comes_twice_keeps_the_points_of_both() -> None:
    twice = f"{HEAD}\n## Unreleased\n\n### Added\n\n- Tea.\n\n### Added\n\n- Jam.\n"
    assert "- Tea.\n- Jam.\n" in gather(twice, {"milk.fixed.md": "Milk."})


def test_nothing_to_gather_makes_no_heading() -> None:
    assert gather(HEAD, {}) == HEAD


@pytest.mark.parametrize("name", ["tea.added.txt", "tea.added", "tea.MD", "tea.green.md"])
def test_a_file_that_is_no_fragment_is_not_passed_over(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changelog, "FRAGMENTS", tmp_path)
    (tmp_path / "README.md").write_text("How to write them.")
    (tmp_path / name).write_text("Tea.")
    with pytest.raises(Unfit, match="is no fragment"):
        changelog.gathered()


def test_an_empty_fragment_is_refused() -> None:
    with pytest.raises(Unfit, match="is empty"):
        gather(HEAD, {"tea.added.md": " \n"})
