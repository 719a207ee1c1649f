"""`CHANGELOG.md`: what changed in each version, gathered from the fragments in `changelog.d/`.

A fragment is `NAME.KIND.md`. `gather` puts fragments into the section of the next version, which is
called Unreleased until `release` gives it its number and its date. All of this is pure: text in,
text out; `python -m release.changelog` reads and writes the files.
"""

# ruff: noqa: T201  what it prints is what it is for

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
FRAGMENTS = PROJECT / "changelog.d"
DOCUMENT = PROJECT / "CHANGELOG.md"
KINDS = ("added", "changed", "fixed", "removed")
NEXT = "## Unreleased"
HEAD = """# What changed

Every version, the newest first. [How versions are numbered, and what to do at an
upgrade](docs/upgrading.md).
"""
_FRAGMENT = re.compile(r"[^.]+\.(\w+)\.md")
_SECTION = re.compile(r"^## .*\n", re.M)

Changes = dict[str, list[str]]  # kind -> entries


class Unfit(Exception):
    """A sentence for the person who makes the release."""


def gather(document: str, fragments: Mapping[str, str]) -> str:
    """The document with the fragments, by file name, in the section of the next version."""
    head, changes, rest = _parts(document)
    for name in sorted(fragments):
        changes.setdefault(_kind(name), []).append(_entry(fragments[name]))
    return _written(head, NEXT, changes, rest) if changes else document


def release(document: str, version: str, date: str) -> str:
    """The document with the next version's section under its number."""
    head, changes, rest = _parts(document)
    if not changes:
        raise Unfit("nothing has changed since the last version: changelog.d has no fragment")
    if _heading(document, version):
        raise Unfit(f"CHANGELOG.md has a section for {version} already")
    return _written(head, f"## {version} ({date})", changes, rest)


def section(document: str, version: str) -> str:
    """What the document says of one version, without its heading."""
    heading = _heading(document, version)
    if heading is None:
        raise Unfit(f"CHANGELOG.md has no section for {version}")
    return _SECTION.split(document[heading.end() :])[0].strip() + "\n"


def _heading(document: str, version: str) -> re.Match[str] | None:
    return re.search(rf"^## {re.escape(version)}(?: \(.*\))?\n", document, re.M)


def _parts(document: str) -> tuple[str, Changes, str]:
    """What stands before the next version's section, its changes, and what stands behind."""
    found = re.search(rf"^{NEXT}\n", document, re.M)
    if found is None:
        first = _SECTION.search(document)
        at = first.start() if first else len(document)
        return document[:at], {}, document[at:]
    after = _SECTION.search(document, found.end())
    end = after.start() if after else len(document)
    return document[: found.start()], _read(document[found.end() : end]), document[end:]


def _read(text: str) -> Changes:
    """The entries of a section as `_written` left them. Raises Unfit for what a hand has added and
    `_written` would leave out."""
    changes: Changes = {}
    loose, *parts = re.split(r"^### ", text, flags=re.M)
    for part in parts:
        heading, _, entries = part.partition("\n")
        kind = heading.strip().lower()
        if kind not in KINDS:
            raise Unfit(f"CHANGELOG.md has {heading.strip()!r} under Unreleased: one of {KINDS}")
        before, *points = re.split(r"^- ", entries, flags=re.M)
        loose += before
        changes.setdefault(kind, []).extend(f"- {one.strip()}" for one in points)
    if loose.strip():
        raise Unfit(
            "CHANGELOG.md has a text under Unreleased that is no point of a list: "
            f"{loose.strip().splitlines()[0][:80]!r}"
        )
    return changes


def _written(head: str, heading: str, changes: Changes, rest: str) -> str:
    parts = [head.strip(), heading]
    for kind in KINDS:
        if entries := changes.get(kind):
            parts += [f"### {kind.capitalize()}", "\n".join(entries)]
    return "\n\n".join([*parts, rest]).strip() + "\n"


def _kind(name: str) -> str:
    found = _FRAGMENT.fullmatch(name)
    if found is None or found[1] not in KINDS:
        raise Unfit(f"changelog.d/{name} is no fragment: NAME.KIND.md, KIND one of {KINDS}")
    return found[1]


def _entry(text: str) -> str:
    """One point of a list. Links in a fragment begin at its folder."""
    if not text.strip():
        raise Unfit("a fragment of changelog.d is empty: write what changed, or remove it")
    lines = text.strip().replace("](../", "](").splitlines()
    return "- " + "\n".join(f"  {line}" if line else "" for line in lines).strip()


# ---- the files


def fragments() -> dict[str, Path]:
    """All that is there: a name that is no fragment's is refused when it is gathered."""
    return {
        path.name: path
        for path in FRAGMENTS.iterdir()
        if path.name != "README.md" and not path.name.startswith(".")
    }


def gathered() -> str:
    """The document as it would be with all fragments."""
    document = DOCUMENT.read_text("utf-8") if DOCUMENT.exists() else HEAD
    return gather(document, {name: path.read_text("utf-8") for name, path in fragments().items()})


def main() -> None:
    try:
        text, found = gathered(), fragments()
    except Unfit as reason:
        sys.exit(f"Nothing was gathered: {reason}")
    DOCUMENT.write_text(text, "utf-8")
    for path in found.values():
        path.unlink()
    print(f"{len(found)} fragments of changelog.d are in CHANGELOG.md now, under Unreleased.")


if __name__ == "__main__":
    main()
