"""An environment with the wheel and what it always needs, and nothing else. Needs no index.

The packages are links to those of the running Python, so that making one takes a second. What an
extra brings is not there: code that imports it too early fails.
"""

from __future__ import annotations

import re
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

HEADRACE = "headrace"


def make(wheel: Path, folder: Path) -> Path:
    """The environment's Python; the wheel's entry point stands beside it."""
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (found,) = metadata.distributions(name=HEADRACE, path=[str(packages)])
    for line in sorted(needed(found)):
        _link(metadata.distribution(line), packages)
    python = folder / "bin" / "python"
    for script in found.entry_points.select(group="console_scripts"):
        module, _, function = script.value.partition(":")
        command = folder / "bin" / script.name
        command.write_text(
            f"#!{python}\nimport sys\nfrom {module} import {function}\n{function}()\n"
        )
        command.chmod(0o755)
    return python


def needed(of: metadata.Distribution) -> set[str]:
    """The names of what it needs without extras, and what that needs, and so on."""
    found: set[str] = set()
    open_ = list(_requirements(of))
    while open_:
        name = open_.pop()
        if name not in found:
            found.add(name)
            open_ += _requirements(metadata.distribution(name))
    return found


def _requirements(of: metadata.Distribution) -> Iterator[str]:
    for line in of.requires or ():
        name, _, condition = line.partition(";")
        if "extra" in condition or not _applies(condition):
            continue
        word = re.match(r"[A-Za-z0-9._-]+", name.strip())
        assert word is not None, line
        yield word[0]


def _applies(condition: str) -> bool:
    """The markers of these packages name other systems and older Pythons: none applies."""
    return not condition.strip()


def _link(package: metadata.Distribution, into: Path) -> None:
    here = Path(sysconfig.get_path("purelib"))
    for top in {Path(file).parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
        if not (into / top).exists():
            (into / top).symlink_to(here / top)
