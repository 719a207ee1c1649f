"""`headrace pipeline new NAME`: the project's own test passes on its own broker and Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(1200)


def test_a_new_project_passes_its_own_test(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace", "pipeline", "new", "busy-hours"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    project = tmp_path / "busy-hours"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout
