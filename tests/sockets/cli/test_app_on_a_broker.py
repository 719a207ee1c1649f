"""`headrace app` on a real broker, with worker processes that die and files that change."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.cli.applications.workers import python_files
from headrace.testing import Broker
from tests.patience import until
from tests.sockets.cli.conftest import CommandLine
from tests.whole_lines import whole_lines

PROGRAM = """
import os
from headrace import App

app = App(os.environ["BOOTSTRAP"], group="written")

@app.on("lines")
def write(value: str) -> None:
    "Write a line."
    with open(os.environ["OUT"], "a") as file:
        file.write(f"{os.getpid()} first {value}\\n")
"""


@pytest.fixture
def project(
    tmp_path: Path, broker: Broker, headrace: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> Path:
    headrace("topics", "create", "lines", "--partitions", "2", "--if-missing")
    (tmp_path / "written.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    monkeypatch.delitem(sys.modules, "written", raising=False)
    return tmp_path


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", "headrace", "app", "run", *words])
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def lines(project: Path) -> list[list[str]]:
    return [line.split() for line in whole_lines(project / "out")]


def test_an_app_is_described(project: Path, headrace: CommandLine) -> None:
    assert "written.write" in headrace("app", "describe", "written:app")
    described = headrace.json("app", "describe", "written:app")
    assert described["operations"]["receive-lines"]["summary"] == "Write a line."
    assert "MODULE:APP" in headrace.failure("app", "describe", "written")
    assert "no module" in headrace.failure("app", "describe", "absent:app")
    assert "no App called" in headrace.failure("app", "describe", "written:os")


def test_a_program_that_cannot_be_loaded_is_one_line_with_its_place(
    project: Path, headrace: CommandLine
) -> None:
    (project / "garbled.py").write_text("def f(:\n")
    (project / "undefined.py").write_text("import os\n\ntotal = amounts\n")
    handler = 'app = App(group="g")\n\n\n@app.on("lines")\ndef f(a: str, b: str) -> None: ...\n'
    (project / "greedy.py").write_text("from headrace import App\n\n" + handler)
    said = {
        name: headrace.failure("app", "describe", f"{name}:app")
        for name in ("garbled", "undefined", "greedy")
    }
    assert said["garbled"].endswith("SyntaxError: invalid syntax (garbled.py:1)")
    assert said["undefined"].endswith("name 'amounts' is not defined (undefined.py:3)")
    assert "two parameters for the value" in said["greedy"] and "(greedy.py:6)" in said["greedy"]


@pytest.mark.integration
def test_workers_share_the_work_and_one_that_dies_is_started_again(
    project: Path, headrace: CommandLine
) -> None:
    with running("written:app", "--workers", "2"):
        for number in range(4):
            headrace("produce", "lines", "--partition", str(number % 2), stdin=f"a{number}\n")
        until(lambda: len({line[2] for line in lines(project)}) == 4)
        killed = int(lines(project)[-1][0])
        os.kill(killed, signal.SIGKILL)
        for number in range(4):
            headrace("produce", "lines", "--partition", str(number % 2), stdin=f"b{number}\n")
        until(lambda: len({line[2] for line in lines(project)}) == 8)
    assert any(int(line[0]) != killed for line in lines(project))


@pytest.mark.integration
def test_a_change_of_the_program_takes_effect(project: Path, headrace: CommandLine) -> None:
    with running("written:app", "--reload"):
        headrace("produce", "lines", stdin="one\n")
        until(lambda: any(line[2] == "one" for line in lines(project)))
        (project / "written.py").write_text(PROGRAM.replace("first", "second"))
        until(lambda: _second_says(project, headrace))


def _second_says(project: Path, headrace: CommandLine) -> bool:
    headrace("produce", "lines", stdin="more\n")
    return any(line[1] == "second" for line in lines(project))


def test_only_files_of_the_project_are_watched(tmp_path: Path) -> None:
    for name in ("a.py", "b.txt", ".git/c.py", "env/pyvenv.cfg", "env/d.py", "sub/e.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    found = sorted(str(path.relative_to(tmp_path)) for path in python_files(tmp_path))
    assert found == ["a.py", "sub/e.py"]


@pytest.mark.integration
def test_logs_are_json_lines(project: Path, headrace: CommandLine) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "app", "run", "written:app", "--json"],
        stderr=subprocess.PIPE,
    )
    headrace("produce", "lines", stdin="logged\n")
    until(lambda: any(line[2] == "logged" for line in lines(project)))
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=300)
    for line in said.decode().splitlines():
        assert {"time", "level", "logger", "message"} <= set(json.loads(line))
