"""The doctor looks at the machine."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from headrace.operations.checkup import kcat, machine
from headrace.operations.checkup.finding import FindingState


def test_an_old_python_and_a_python_without_asserts_are_wrong() -> None:
    assert machine.check_python((3, 10), optimized=False).state == FindingState.WRONG
    assert machine.check_python((3, 12), optimized=True).state == FindingState.WRONG
    assert machine.check_python((3, 11), optimized=False).state == FindingState.GOOD


def test_few_open_files_are_to_be_watched() -> None:
    assert machine.check_open_files(1024).state == FindingState.WATCH
    assert machine.check_open_files(1 << 20).state == FindingState.GOOD
    assert machine.check_open_files(resource.RLIM_INFINITY).state == FindingState.GOOD


def test_the_disk_of_a_folder_that_does_not_exist_yet(tmp_path: Path) -> None:
    finding = machine.check_disk(tmp_path / "not" / "yet")
    assert "free of" in finding.found


def test_a_full_disk_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "LITTLE_SPACE_BYTES", 1 << 60)
    assert machine.check_disk(tmp_path).state == FindingState.WRONG


def test_the_packages_of_this_very_environment_are_there() -> None:
    finding = machine.check_packages()
    assert finding.state == FindingState.GOOD
    assert "confluent-kafka" in finding.found


def test_a_tool_that_is_missing_is_no_fault() -> None:
    assert machine.check_tool("no-such-tool-anywhere", "nothing").state == FindingState.GOOD


def test_a_kcat_that_cannot_log_in_by_scram_is_named_with_the_version_that_can() -> None:
    old = kcat.judged("/usr/bin/kcat", (2, 0, 2))
    assert old.state == FindingState.WATCH
    assert "2.0.2" in old.found and "2.6.1" in (old.advice or "")
    assert kcat.judged("/usr/bin/kcat", (2, 6, 1)).state == FindingState.GOOD
    assert kcat.judged("/usr/bin/kcat", None).state == FindingState.GOOD
