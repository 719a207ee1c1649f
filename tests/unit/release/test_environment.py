"""What make says while it installs: each step, how far it is, how long it took."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from release import environment
from release.environment import Steps, packages_in, progress_of

OF_PIP = """Looking in links: /wheels
Collecting aiohttp==3.14.5 (from -r requirements/app.txt (line 1))
  Downloading aiohttp-3.14.5.whl (1.3 MB)
Processing /wheels/google_re2-1.1.whl (from -r requirements/app.txt (line 9))
Installing collected packages: aiohttp, google-re2
Successfully installed aiohttp-3.14.5 google-re2-1.1
"""
LOCK = """aiohttp==3.14.5 \\
    --hash=sha256:aa
google-re2==1.1 ; python_version < "3.14" \\
    --hash=sha256:bb
"""


def test_the_packages_of_a_lock_are_counted() -> None:
    assert packages_in(LOCK) == 2


def test_progress_names_the_package_and_never_passes_the_number() -> None:
    assert list(progress_of(OF_PIP.splitlines(), 2)) == [
        "1 of 2, aiohttp",
        "2 of 2, google_re2-1.1.whl",
        "unpacking",
    ]


def test_off_a_terminal_each_step_is_one_plain_line() -> None:
    written: list[str] = []
    steps = Steps(2, live=False, write=written.append)
    steps.run("Make .venv", lambda progress: progress("unseen"))
    steps.run("Install 2 packages", lambda progress: None)
    lines = "".join(written).splitlines()
    assert [line.rpartition(",")[0] for line in lines] == [
        "1/2 Make .venv",
        "2/2 Install 2 packages",
    ]
    assert all(line.endswith(" s") for line in lines)


def test_on_a_terminal_the_line_changes_in_place() -> None:
    written: list[str] = []
    Steps(1, live=True, write=written.append).run("Install", lambda say: say("1 of 2, aiohttp"))
    assert written[1] == "\r\x1b[K1/1 Install: 1 of 2, aiohttp"
    assert written[-1].endswith("\n")


def test_a_failing_installer_ends_with_its_last_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Failed:
        returncode = 1

        def __init__(self, command: list[str], **_: object) -> None:
            self.stdout = iter(["Collecting tea\n", "No matching distribution\n"])

        def __enter__(self) -> Failed:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(subprocess, "Popen", Failed)
    with pytest.raises(SystemExit, match="ended with 1"):
        environment._run([sys.executable, "tea"], lambda lines: list(lines))
    assert "No matching distribution" in capsys.readouterr().err
