"""The wheel is whole: installed where no checkout is, it runs a node and answers a client."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from tests.interop.brokers import HeadraceNode

ROOT = Path(__file__).resolve().parents[2]


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], cwd=ROOT, check=True)


def wheel_in(folder: Path) -> Path:
    build = folder / "build"
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(build), ".")
    (wheel,) = build.glob("headrace-*-py3-none-any.whl")
    return wheel


def environment_with(wheel: Path, folder: Path) -> Path:
    """A fresh environment. What Headrace depends on is taken from this one, by the path."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip("--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    here, there = sysconfig.get_path("purelib"), next(folder.glob("lib/python*/site-packages"))
    (there / "dependencies.pth").write_text(here + "\n")
    return python


class InstalledNode(HeadraceNode):
    def __init__(self, folder: Path, python: Path) -> None:
        super().__init__(folder)
        self._python = python

    def command(self) -> list[str]:
        return [str(self._python.with_name("headrace")), *super().command()[1:]]


def test_a_node_runs_from_the_wheel_alone(tmp_path: Path) -> None:
    python = environment_with(wheel_in(tmp_path), tmp_path / "shop")
    where = subprocess.run(
        [python, "-c", "import headrace; print(headrace.__file__)"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(tmp_path / "shop"))
    with InstalledNode(tmp_path / "node", python) as node:
        headrace = [str(python.with_name("headrace"))]
        at = ["--bootstrap", node.bootstrap]
        subprocess.run([*headrace, "topics", "create", "tea", *at], check=True)
        subprocess.run([*headrace, "produce", "tea", *at], input=b"green\n", check=True)
        read = subprocess.run([*headrace, "consume", "tea", *at], capture_output=True, check=True)
        assert read.stdout == b"green\n"
