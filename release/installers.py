"""The wheel, installed as people install programs: pip, uv tool, uvx, pipx, each in own folders.

`make installers` calls it. Needs a package index. With each of them `headrace --help` answers, a
node starts, one record goes in and comes out. uv and pipx are on the path, or beside this Python.
"""

# ruff: noqa: T201  what it prints is what it is for

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from release.changelog import Unfit
from release.wheel_check import INSTALL_WITHIN_S, run, send_and_receive

HEADRACE = "headrace"


def check(wheel: Path, folder: Path) -> list[str]:
    """What was seen, a line for each way. Raises Unfit."""
    ways = {"pip": _pip, "uv tool": _uv_tool, "uvx": _uvx, "pipx": _pipx}
    seen = []
    for name, install in ways.items():
        own = folder / name.replace(" ", "-")
        own.mkdir()
        began = time.monotonic()
        command = install(wheel, own)
        run([*command, "--help"], own, INSTALL_WITHIN_S)
        ready_s = time.monotonic() - began
        send_and_receive(command, own)
        seen.append(f"{name}: ready after {ready_s:.1f} s; a node took a record and gave it back")
    return seen


def _pip(wheel: Path, folder: Path) -> list[str | Path]:
    run([sys.executable, "-m", "venv", folder / "shop"], folder)
    python = folder / "shop" / "bin" / "python"
    run([python, "-m", "pip", "install", "--quiet", wheel], folder, INSTALL_WITHIN_S)
    return [python.with_name(HEADRACE)]


def _uv_tool(wheel: Path, folder: Path) -> list[str | Path]:
    own = {"UV_TOOL_DIR": folder / "tools", "UV_TOOL_BIN_DIR": folder / "bin"}
    uv: list[str | Path] = ["uv", "tool", "install", "--quiet", "--python", sys.executable, wheel]
    run(_with(own, uv), folder, INSTALL_WITHIN_S)
    return [folder / "bin" / HEADRACE]


def _uvx(wheel: Path, folder: Path) -> list[str | Path]:
    uvx: list[str | Path] = [
        "uvx",
        "--quiet",
        "--python",
        sys.executable,
        "--from",
        wheel,
        HEADRACE,
    ]
    return _with({"UV_TOOL_DIR": folder / "tools"}, uvx)


def _pipx(wheel: Path, folder: Path) -> list[str | Path]:
    own = {"PIPX_HOME": folder / "home", "PIPX_BIN_DIR": folder / "bin"}
    pipx: list[str | Path] = ["pipx", "install", "--quiet", "--python", sys.executable, wheel]
    run(_with(own, pipx), folder, INSTALL_WITHIN_S)
    return [folder / "bin" / HEADRACE]


def _with(variables: Mapping[str, Path], command: Sequence[str | Path]) -> list[str | Path]:
    program = str(command[0])
    beside = Path(sys.executable).with_name(program)
    found = str(beside) if beside.exists() else shutil.which(program)
    if found is None:
        raise Unfit(f"{program} is not here; install it and try again")
    return ["env", *(f"{name}={value}" for name, value in variables.items()), found, *command[1:]]


def main() -> None:
    try:
        (wheel,) = (Path(word).resolve() for word in sys.argv[1:])
    except ValueError:
        sys.exit(
            "Name one wheel: python -m release.installers dist/headrace-1.2.3-py3-none-any.whl"
        )
    with tempfile.TemporaryDirectory(prefix="headrace-installers-") as folder:
        try:
            for line in check(wheel, Path(folder)):
                print(line, flush=True)
        except Unfit as reason:
            sys.exit(f"Not installable: {reason}")


if __name__ == "__main__":
    main()
