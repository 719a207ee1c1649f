"""What the site of the docs has beside the folder `docs/`: a hook of MkDocs (`mkdocs.yml`).

Pages and files elsewhere in the project that a page links to (examples, CONTRIBUTING.md, LICENSE)
become a part of the site under their own path, and links to them lead there. CHANGELOG.md shows
also the fragments that are not gathered yet, and the decisions get a page that lists them.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from release import changelog

PROJECT = changelog.PROJECT
DOCS = "docs"
DECISIONS = "decisions/README.md"
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "STYLE.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
_LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)


def on_files(files: Any, config: Any) -> Any:
    """MkDocs calls it once, with what lies in `docs/`."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, DECISIONS, content=_decisions()))
    known = {file.src_uri for file in files}
    waiting = list(PAGES) + [name for uri in known for name in _linked(f"{DOCS}/{uri}")]
    while waiting:
        name = waiting.pop()
        if site_uri(name) not in known and (PROJECT / name).is_file():
            known.add(site_uri(name))
            files.append(_file(name, config))
            waiting += _linked(name)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links of a page, as they lead on the site."""
    return with_site_links(markdown, _project_name(page.file.src_uri), page.file.src_uri)


def with_site_links(text: str, name: str, uri: str) -> str:
    """The text of the project's file `name`, which is the page `uri` of the site."""
    folder = posixpath.dirname(uri)

    def lead(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), link[1]))
        return posixpath.relpath(site_uri(target), folder or ".")

    parts, at = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(lead, text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, _LINK.sub(lead, text[at:])])


def site_uri(name: str) -> str:
    """Where a file of the project lies on the site."""
    if name == f"{DOCS}/decisions":
        return DECISIONS
    return name.removeprefix(f"{DOCS}/")


def _project_name(uri: str) -> str:
    inside = uri == DECISIONS or (PROJECT / DOCS / uri).is_file()
    return f"{DOCS}/{uri}" if inside else uri


def _linked(name: str) -> Iterator[str]:
    """Files of the project that a page links to."""
    path = PROJECT / name
    if path.suffix == ".md" and path.is_file():
        for link in _LINK.findall(_FENCE.sub("", path.read_text("utf-8"))):
            yield os.path.relpath(path.parent / link, PROJECT)


def _file(name: str, config: Any) -> Any:
    from mkdocs.structure.files import File

    if name == "CHANGELOG.md":
        return File.generated(config, name, content=changelog.gathered())
    return File.generated(config, site_uri(name), abs_src_path=str(PROJECT / name))


def _decisions() -> str:
    lines = ["# Decisions", "", "What others would ask about, and why it is so.", ""]
    for path in sorted((PROJECT / DOCS / "decisions").glob("[0-9]*.md")):
        lines.append(f"- [{_title(path)}]({path.name})")
    return "\n".join(lines) + "\n"


def _title(path: Path) -> str:
    return path.read_text("utf-8").partition("\n")[0].removeprefix("# ")
