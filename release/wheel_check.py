"""A wheel, installed where no checkout is, must be a whole Headrace.

In a new environment with the locked versions of `requirements/run.txt` and the wheel: the command
says its version, a node starts, one record goes in and comes out, and SIGTERM ends the node well.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

from release.changelog import Unfit
from release.contents import must_be_whole

RECORD = b"green tea\n"
# Each is done in seconds; a loaded machine gets more.
WITHIN_S = 120.0
INSTALL_WITHIN_S = 900.0


def check(wheel: Path, *, version: str, tracked: list[str], locked: Path, folder: Path) -> str:
    """Do all of it below `folder`; a sentence about what was seen. Raises Unfit."""
    with zipfile.ZipFile(wheel) as archive:
        files = must_be_whole(tracked, archive.namelist())
    python = _environment(wheel, locked, folder / "environment")
    headrace = python.with_name("headrace")
    said = run([headrace, "--version"], folder).decode().strip()
    if version not in said.split():
        raise Unfit(f"`headrace --version` of the wheel says '{said}', not {version}")
    send_and_receive([headrace], folder)
    return f"{files} files; {said}; a node started, took a record, gave it back, and ended well"


def _environment(wheel: Path, locked: Path, folder: Path) -> Path:
    run([sys.executable, "-m", "venv", folder], folder.parent)
    python = folder / "bin" / "python"
    pip: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    run([*pip, "--require-hashes", "-r", locked], folder.parent, INSTALL_WITHIN_S)
    run([*pip, "--no-deps", "--no-index", wheel], folder.parent)
    run([python, "-m", "pip", "check"], folder.parent)
    return python


def send_and_receive(headrace: list[str | Path], folder: Path) -> None:
    """One record through a node that the command `headrace` starts. Raises Unfit."""
    arguments = ["start", "--json", "--no-console", "--listen", "localhost:0", "--data", "data"]
    node = subprocess.Popen(
        [*headrace, *arguments], cwd=folder, env=_variables(), stdout=subprocess.PIPE
    )
    try:
        assert node.stdout is not None
        at = ["--bootstrap", json.loads(node.stdout.readline() or b"{}").get("address", "")]
        if not at[1]:
            raise Unfit("the node of the wheel does not start")
        run([*headrace, "topics", "create", "tea", *at], folder)
        run([*headrace, "produce", "tea", *at], folder, given=RECORD)
        if (read := run([*headrace, "consume", "tea", *at], folder)) != RECORD:
            raise Unfit(f"{RECORD!r} was written and {read!r} was read")
        node.send_signal(signal.SIGTERM)
        if code := node.wait(WITHIN_S):
            raise Unfit(f"the node of the wheel ended with {code} after SIGTERM")
    finally:
        node.kill()
        node.wait()


def run(
    command: list[str | Path], folder: Path, within_s: float = WITHIN_S, given: bytes = b""
) -> bytes:
    words = " ".join(str(part) for part in command)
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=_variables(),
            input=given,
            capture_output=True,
            timeout=within_s,
        )
    except subprocess.TimeoutExpired as late:
        raise Unfit(f"`{words}` took longer than {within_s:g} s") from late
    if done.returncode:
        raise Unfit(f"`{words}` ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
    return done.stdout


def _variables() -> dict[str, str]:
    """Of this process, without what would lead Python back to the checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
