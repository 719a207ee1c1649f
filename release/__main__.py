"""`python -m release VERSION [--dry-run]`: from a clean tree to a tag, and nothing if a step fails.

1. The version follows all released ones; the tree has no change and is on a branch.
2. A copy of the last commit gets the version and the changelog. There the source archive is built,
   from it the wheel, and the wheel is checked in an environment of its own (`wheel_check.py`).
3. Only then the tree gets the version, the changelog without its fragments, a commit and a tag, and
   `dist/` gets both archives. With --dry-run the tree stays as it is.

Nothing is sent anywhere: the last line says how.
"""

# ruff: noqa: T201  what it prints is what it is for

from __future__ import annotations

import argparse
import datetime
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from release import changelog
from release.archives import build_and_check, run
from release.changelog import PROJECT, Unfit
from release.version import PLACES, must_follow, tag, with_version


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make release", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("version")
    parser.add_argument("--dry-run", action="store_true", help="show everything, change nothing")
    given = parser.parse_args()
    try:
        make(given.version, dry=given.dry_run)
    except Unfit as reason:
        sys.exit(f"No release: {reason}")


def make(version: str, *, dry: bool) -> None:
    must_follow(version, git("tag", "--list", "v*").split())
    _must_be_clean(dry=dry)
    changed = new_texts(version, datetime.datetime.now(datetime.UTC).date().isoformat())
    with _copy_of_last_commit(changed) as copy:
        built = build_and_check(copy, version)
        if dry:
            _show(changed, version)
            return
        with _all_or_nothing():
            _keep(changed)
            _commit_and_tag(version)
        _into_dist(built)
    print(f"Made the commit and the tag {tag(version)}; dist/ has the archives. Next:")
    print(f"  git push origin HEAD {tag(version)}")


def new_texts(version: str, date: str) -> dict[str, str]:
    """Each file that a release changes, as it will be."""
    texts = {
        name: with_version(name, (PROJECT / name).read_text("utf-8"), version) for name in PLACES
    }
    return texts | {"CHANGELOG.md": changelog.release(changelog.gathered(), version, date)}


def _must_be_clean(*, dry: bool) -> None:
    if changed := git("status", "--porcelain"):
        reason = f"the tree has changes that are not committed:\n{changed}"
        if not dry:
            raise Unfit(reason)
        print(f"A release would stop here, {reason}\nWhat follows is of the last commit.\n")
    if not git("branch", "--show-current").strip():
        raise Unfit("no branch is checked out, so the commit of the release would be nobody's")


@contextmanager
def _copy_of_last_commit(changed: dict[str, str]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="headrace-release-") as folder:
        packed, copy = Path(folder) / "commit.tar", Path(folder) / "commit"
        git("archive", "--output", str(packed), "HEAD")
        with tarfile.open(packed) as archive:
            archive.extractall(copy, filter="data")
        for name, text in changed.items():
            (copy / name).write_text(text, "utf-8")
        yield copy


def _show(changed: dict[str, str], version: str) -> None:
    print(f"\nA release would write {', '.join(changed)}, remove", end=" ")
    print(
        f"{len(changelog.fragments())} fragments of changelog.d, make the commit 'release:", end=" "
    )
    print(f"{version}' and the tag {tag(version)}. CHANGELOG.md would say of it:\n")
    print(changelog.section(changed["CHANGELOG.md"], version))
    print("Nothing was changed.")


@contextmanager
def _all_or_nothing() -> Iterator[None]:
    """A commit may be refused (no name of an author, a hook), and so may a tag (a signature): then
    the tree, which was clean, is as before."""
    before = git("rev-parse", "HEAD").strip()
    try:
        yield
    except BaseException:
        git("reset", "--quiet", "--hard", before)
        raise


def _keep(changed: dict[str, str]) -> None:
    for name, text in changed.items():
        (PROJECT / name).write_text(text, "utf-8")
    for path in changelog.fragments().values():
        path.unlink()


def _into_dist(archives: tuple[Path, ...]) -> None:
    shutil.rmtree(PROJECT / "dist", ignore_errors=True)
    (PROJECT / "dist").mkdir()
    for archive in archives:
        shutil.copy(archive, PROJECT / "dist")


def _commit_and_tag(version: str) -> None:
    git("add", "--", "CHANGELOG.md", "changelog.d", *PLACES)
    git("commit", "--quiet", "--message", f"release: {version}")
    notes = changelog.section(changelog.DOCUMENT.read_text("utf-8"), version)
    # Its headings begin with the sign of a comment, which git would leave out.
    said = f"Headrace {version}\n\n{notes}"
    git("tag", "--annotate", "--cleanup=verbatim", "--message", said, tag(version))


def git(*arguments: str) -> str:
    return run(["git", *arguments], PROJECT)


if __name__ == "__main__":
    main()
