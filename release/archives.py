"""Builds the source archive and the wheel of a checkout, checks them, and puts them into `dist/`.

The wheel is made from the source archive, so that is whole as well. `python -m release.archives`
does it for this checkout as it is.
"""

# ruff: noqa: T201  what it prints is what it is for

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from release import wheel_check
from release.changelog import PROJECT, Unfit
from release.version import PLACES

LOCKED = PROJECT / "requirements" / "run.txt"
BUILD_WITHIN_S = 600.0


def build(checkout: Path) -> tuple[Path, Path]:
    """The source archive and the wheel, in the checkout's `dist/`."""
    backend = "import setuptools.build_meta as backend; backend.build_sdist('dist')"
    run([sys.executable, "-c", backend], checkout)
    (source,) = (checkout / "dist").glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel"]
    run([*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", str(source)], checkout)
    (wheel,) = (checkout / "dist").glob("*.whl")
    return source, wheel


def build_and_check(checkout: Path, version: str) -> tuple[Path, Path]:
    """The same, and what was seen of the wheel is said. Raises Unfit."""
    source, wheel = build(checkout)
    print(f"Built {source.name} ({_size(source)}) and {wheel.name} ({_size(wheel)}).", flush=True)
    tracked = run(["git", "ls-files", "src"], PROJECT).splitlines()
    with tempfile.TemporaryDirectory(prefix="headrace-wheel-") as folder:
        seen = wheel_check.check(
            wheel, version=version, tracked=tracked, locked=LOCKED, folder=Path(folder)
        )
    print(f"Checked the wheel in a new environment: {seen}.")
    return source, wheel


def run(command: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=BUILD_WITHIN_S
        )
    except subprocess.TimeoutExpired as late:
        raise Unfit(f"`{' '.join(command)}` took longer than {BUILD_WITHIN_S:g} s") from late
    if done.returncode:
        raise Unfit(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


def main() -> None:
    line = PLACES["pyproject.toml"].search((PROJECT / "pyproject.toml").read_text("utf-8"))
    assert line is not None, "a test holds it"
    for left in ("build", "dist"):
        shutil.rmtree(PROJECT / left, ignore_errors=True)
    try:
        build_and_check(PROJECT, line[1])
    except Unfit as reason:
        sys.exit(f"No archives: {reason}")


if __name__ == "__main__":
    main()
