"""How this copy of Headrace was installed, and the command that adds a missing package.

A message that names a missing package ends with a command. That command must work where the user
reads it: in a `.venv` that `make setup` made, make installs the locked versions; elsewhere pip
installs the packages of the extra in `pyproject.toml` into the Python that is running. An
environment that uv made has no pip; there uv does it.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import sys
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

# `make setup` installs every extra but Spark's, which is large (0.5 GB).
TARGET_OF_SPARK = "setup-spark"
TARGET_OF_THE_OTHERS = "setup"
# The folder from which a copy that was never installed runs; Headrace is not on an index.
FOLDER = Path(__file__).resolve().parents[2]


def how_to_add(what: str, package: str | None, extra: str) -> str:
    """The sentence for a missing package: what needs it, its name, and the command that adds it."""
    return f"{what} {package}, not installed here. To install: {command_to_add(extra)}"


def command_to_add(extra: str) -> str:
    """A shell command that works in this installation."""
    checkout = _checkout()
    if checkout is not None and Path(sys.prefix).resolve() == (checkout / ".venv").resolve():
        target = TARGET_OF_SPARK if extra == "spark" else TARGET_OF_THE_OTHERS
        return f"make -C {shlex.quote(str(checkout))} {target}"
    packages = _packages_of(extra)
    if not packages:
        packages = [f"{FOLDER}[{extra}]"]
    if importlib.util.find_spec("pip") is None:
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, *packages])
    return shlex.join([sys.executable, "-m", "pip", "install", *packages])


def _distribution() -> metadata.Distribution | None:
    """The installed package; None if Headrace runs from a folder on the path and was never
    installed."""
    try:
        return metadata.distribution("headrace")
    except metadata.PackageNotFoundError:
        return None


def _checkout() -> Path | None:
    """The folder that an editable install points at (PEP 610)."""
    installed = _distribution()
    text = installed.read_text("direct_url.json") if installed else None
    said = json.loads(text) if text else {}
    if not said.get("dir_info", {}).get("editable"):
        return None
    folder = Path(unquote(urlsplit(said["url"]).path))
    return folder if (folder / "Makefile").is_file() else None


def _packages_of(extra: str) -> list[str]:
    installed = _distribution()
    found = []
    for line in (installed.requires or []) if installed else []:
        package, _, condition = line.partition(";")
        asked = re.search(r"""extra\s*==\s*["']([^"']+)["']""", condition)
        if asked is not None and asked.group(1) == extra:
            found.append(package.strip())
    return found
