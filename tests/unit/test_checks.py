"""The tools that judge tests: what each one costs, which are red by chance, the table of CI."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import costs, coverage_report, flaky
from tests.costs import Cost

PROJECT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def suites() -> ModuleType:
    spec = importlib.util.spec_from_file_location("suites", PROJECT / ".ci" / "suites.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["suites"] = module  # where its dataclasses look for their module
    spec.loader.exec_module(module)
    return module


# ---- costs


def test_costs_are_kept_and_added_up_by_folder_and_file(tmp_path: Path) -> None:
    measured = [
        Cost("tests/unit/app/test_a.py::test_1", 1.0, 0.5),
        Cost("tests/unit/app/test_a.py::test_2[x]", 2.0, 1.5),
        Cost("tests/sockets/test_b.py::test_3", 9.0, 0.1),
    ]
    kept = tmp_path / "new" / "costs.jsonl"
    costs.write(measured, kept)
    assert costs.read(kept) == measured
    assert costs.table(measured, parts=2) == [
        "| `tests/unit` | 2 | 2.0 | 3.0 |",
        "| `tests/sockets` | 1 | 0.1 | 9.0 |",
    ]
    assert costs.table(measured, parts=9)[0].startswith("| `tests/unit/app/test_a.py` | 2 |")


# ---- red by chance


def test_a_round_is_red_by_failed_tests_by_noise_and_by_an_end_without_reason() -> None:
    output = "FAILED tests/unit/test_a.py::test_1[x y] - assert 1 == 2\nERROR tests/b.py::test_2\n"
    assert flaky.red_tests(output, 1) == ["tests/b.py::test_2", "tests/unit/test_a.py::test_1[x y]"]
    assert flaky.red_tests("all is well", 0) == []
    assert flaky.red_tests("killed", 137) == ["the run ended with 137 and named no test"]
    noise = "--- Logging error ---\nException ignored in: <function f>\n"
    assert len(flaky.red_tests(noise, 0)) == 2


def test_all_rounds_together_name_each_test_that_was_red_once() -> None:
    green = flaky.Round("test", "abc", 0, 0, 100)
    red = flaky.Round("test", "def", 1, 2, 130, ["tests/a.py::test_1"], "build/flaky/x.log")
    said = flaky.summary([green, red, green])
    assert said.startswith("3 rounds, 1 of them beside load; 1 tests red at least once")
    assert "1 x tests/a.py::test_1" in said and "hash seed 1, 2 busy, def" in said


# ---- the table of CI


def test_only_the_inner_ring_is_too_dear_and_only_far_over_its_budget(
    suites: ModuleType, tmp_path: Path
) -> None:
    def ring(target: str, processor_s: int) -> object:
        job = suites.Job(target)
        job.output, job.code = tmp_path / target, 0
        job.output.write_text(f"{costs.WHOLE_RUN} {processor_s} (1 in tests)\n")
        return job

    most = suites.INNER_RING_S * suites.TOO_MUCH
    assert not suites._is_too_dear(ring("test", int(most)))
    assert suites._is_too_dear(ring("test", int(most) + 1))
    assert not suites._is_too_dear(ring("integration", 10_000))


def test_a_second_try_gets_a_row_in_the_docs(
    suites: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "reliability.md"
    page.write_text(suites.RELIABILITY.read_text("utf-8"), "utf-8")
    monkeypatch.setattr(suites, "RELIABILITY", page)
    monkeypatch.setattr(suites, "_head", lambda: "abc1234")
    suites._note_second_tries(["tests/a.py::test_1"])
    assert "| abc1234 | `tests/a.py::test_1` |" in page.read_text("utf-8")
    suites._keep_in_the_docs(61.0, changed="")
    assert "commit abc1234, 61 s." in page.read_text("utf-8")


# ---- coverage


def test_the_least_covered_modules_come_first_and_generated_ones_do_not_count() -> None:
    def of(branches: int, covered: int) -> dict[str, dict[str, int]]:
        return {"summary": {"num_branches": branches, "covered_branches": covered}}

    report = {
        "files": {
            "src/headrace/a.py": of(10, 9),
            "src/headrace/b.py": of(10, 1),
            "src/headrace/small.py": of(2, 0),
            "src/headrace/wire/protocol/messages/x.py": of(1000, 0),
        }
    }
    lines = coverage_report.table(coverage_report.modules_of(report)).splitlines()
    assert lines[0] == "45.5% of 22 branches in 3 modules"
    assert lines[4:] == [
        "| `src/headrace/b.py` | 10 | 10% |",
        "| `src/headrace/a.py` | 10 | 90% |",
    ]


def test_the_inner_ring_runs_first_and_alone(
    suites: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside other suites its processor time would say little."""
    order = ("interop", "check", "test")
    run = suites.Run([suites.Job(name, ("develop",), 1) for name in order], full=False)
    for job in [*run.bringing, *run.suites]:
        job.output = tmp_path / job.target
    begun: list[str] = []

    def begin(job: Any) -> None:
        job.began = 1.0
        begun.append(job.target)

    monkeypatch.setattr(run, "_begin", begin)
    for ended, expected in (
        (None, ["develop"]),
        ("develop", ["develop", "test"]),
        ("test", ["develop", "test", "interop", "check"]),
    ):
        for job in [*run.bringing, *run.suites]:
            if job.target == ended:
                job.code = 0
        run._begin_what_can()
        assert begun == expected
