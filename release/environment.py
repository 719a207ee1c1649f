"""Makes a virtual environment and installs what a lock names into it, with a line for each step.

`python release/environment.py .venv requirements/app.txt --editable`, called by make. Runs on any
Python 3.11 with nothing installed. With uv on the path uv does the work, else pip. An environment
whose Python was removed or replaced is made again. Nothing is compiled here: Python does that at
the first import, for the modules that are really used.
"""

# ruff: noqa: T201  what it prints is what it is for

from __future__ import annotations

import argparse
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

# pip's line for a package that it begins with.
_COLLECTING = re.compile(r"^\s*(?:Collecting|Processing) (?:\S*/)?([A-Za-z0-9._-]+)")
_UNPACKING = re.compile(r"^\s*Installing collected packages")
KEPT_LINES = 15  # of an installer's output, shown when it fails


class Steps:
    """Says what is being done, and how long it took. On a terminal the line changes in place."""

    def __init__(self, number: int, *, live: bool, write: Callable[[str], object]) -> None:
        self._number, self._live, self._write = number, live, write
        self._done = 0

    def run(self, about: str, work: Callable[[Callable[[str], None]], None]) -> None:
        self._done += 1
        line = f"{self._done}/{self._number} {about}"
        began = time.monotonic()

        def progress(detail: str) -> None:
            if self._live:
                self._write(f"\r\x1b[K{line}: {detail}")

        self._write(f"{line} ..." if self._live else line)
        work(progress)
        took = f"{time.monotonic() - began:.1f} s"
        self._write(f"\r\x1b[K{line}, {took}\n" if self._live else f", {took}\n")


def packages_in(lock: str) -> int:
    return len(re.findall(r"(?m)^[A-Za-z0-9._-]+==", lock))


def progress_of(lines: Iterable[str], number: int) -> Iterator[str]:
    """What to show for pip's output so far."""
    begun = 0
    for line in lines:
        if found := _COLLECTING.match(line):
            begun += 1
            yield f"{min(begun, number)} of {number}, {found[1]}"
        elif _UNPACKING.match(line):
            yield "unpacking"


def main() -> None:
    parser = argparse.ArgumentParser(prog="release/environment.py")
    parser.add_argument("folder", type=Path)
    parser.add_argument("locks", type=Path, nargs="+")
    parser.add_argument("--editable", action="store_true", help="Headrace of this folder too")
    given = parser.parse_args()
    folder: Path = given.folder
    python, uv = folder / "bin" / "python", shutil.which("uv")
    new = not _works(python)
    steps = Steps(new + len(given.locks) + given.editable, live=sys.stdout.isatty(), write=_written)
    if new:
        about = f"Make {folder} with Python {platform.python_version()}"
        steps.run(about, lambda progress: _make(folder, uv))
    for lock in given.locks:
        number = packages_in(lock.read_text("utf-8"))
        by = "uv" if uv else "pip"
        words = ["--require-hashes", "-r", str(lock)]

        def install(
            progress: Callable[[str], None], words: list[str] = words, number: int = number
        ) -> None:
            _install(python, uv, words, lambda lines: _show(progress, lines, number))

        steps.run(f"Install {number} packages of {lock} with {by}", install)
    if given.editable:
        # Without an index: its build needs setuptools, which is in the lock.
        words = ["--no-deps", "--no-build-isolation", "--no-index", "-e", "."]
        steps.run(
            "Install headrace from this folder",
            lambda progress: _install(python, uv, words, lambda lines: None),
        )


def _written(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _show(progress: Callable[[str], None], lines: Iterable[str], number: int) -> None:
    for detail in progress_of(lines, number):
        progress(detail)


def _works(python: Path) -> bool:
    """pip too: other targets and messages call it."""
    try:
        return not subprocess.run(
            [python, "-m", "pip", "--version"], capture_output=True
        ).returncode
    except OSError:
        return False


def _make(folder: Path, uv: str | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if uv is None:
        _run([sys.executable, "-m", "venv", str(folder)], list)
    else:
        _run([uv, "venv", "--seed", "--python", sys.executable, str(folder)], list)


def _install(
    python: Path, uv: str | None, words: list[str], follow: Callable[[Iterable[str]], object]
) -> None:
    if uv is None:
        pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
        _run([*pip, "--progress-bar", "off", *words], follow)
    else:
        _run([uv, "pip", "install", "--python", str(python), *words], follow)


def _run(command: list[str], follow: Callable[[Iterable[str]], object]) -> None:
    """Ends this program with the last lines of a command that failed."""
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        follow(_kept(process.stdout, lines))
        lines.extend(process.stdout)
    if process.returncode:
        print("\n" + "".join(lines[-KEPT_LINES:]), end="", file=sys.stderr)
        sys.exit(f"`{' '.join(command)}` ended with {process.returncode}.")


def _kept(source: Iterable[str], lines: list[str]) -> Iterator[str]:
    for line in source:
        lines.append(line)
        yield line


if __name__ == "__main__":
    main()
