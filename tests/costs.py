"""Measures what each test costs: seconds by the clock and seconds of the processor.

A pytest plugin. Processor time includes the processes that a test started and waited for. At the
end of a run it prints the whole processor time and the ten most expensive tests. With
`--costs FILE` it also writes a line of JSON for each test.

    python -m tests.costs FILE      prints such a file by folder and by file (make test-costs)
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

MOST_EXPENSIVE = 10
# The line that .ci/suites.py compares with the budget of a ring.
WHOLE_RUN = "processor seconds of this run:"
FILES_SHOWN = 40
# Cheaper tests are not worth a line.
WORTH_A_LINE_S = 0.1


@dataclass(slots=True)
class Cost:
    """What one test took, its set-up and its clean-up included."""

    test: str
    clock_s: float = 0.0
    processor_s: float = 0.0

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]


def processor_s() -> float:
    """Processor seconds of this process and of the children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Costs:
    """Adds up the costs of one run, also where workers run the tests."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.of_tests: dict[str, Cost] = {}
        self.of_workers_s = 0.0

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        outcome: Any = yield
        report = outcome.get_result()
        now_s, before_s = processor_s(), item.stash.get(MEASURED, None)
        report.processor_s = 0.0 if before_s is None else now_s - before_s
        item.stash[MEASURED] = now_s

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        item.stash[MEASURED] = processor_s()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cost = self.of_tests.setdefault(report.nodeid, Cost(report.nodeid))
        cost.clock_s += report.duration
        cost.processor_s += getattr(report, "processor_s", 0.0)

    def pytest_sessionfinish(self) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["processor_s"] = processor_s()
        elif path := self.config.getoption("--costs"):
            write(self.of_tests.values(), Path(path))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.of_workers_s += getattr(node, "workeroutput", {}).get("processor_s", 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if hasattr(self.config, "workeroutput") or not self.of_tests:
            return
        dearest = sorted(self.of_tests.values(), key=lambda cost: -cost.processor_s)
        terminalreporter.section("the most expensive tests, processor seconds", sep="-")
        for cost in dearest[:MOST_EXPENSIVE]:
            if cost.processor_s >= WORTH_A_LINE_S:
                terminalreporter.write_line(f"{cost.processor_s:7.1f}  {cost.test}")
        whole_s = self._whole_run_s()
        of_tests_s = sum(cost.processor_s for cost in dearest)
        terminalreporter.write_line(f"{WHOLE_RUN} {whole_s:.0f} ({of_tests_s:.0f} in tests)")

    def _whole_run_s(self) -> float:
        """This process and its workers, which count as its children once they have ended."""
        times = os.times()
        children_s = times.children_user + times.children_system
        return times.user + times.system + max(children_s, self.of_workers_s)


MEASURED = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", metavar="FILE", help="write what each test costs, as JSON lines")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs(config), "headrace-costs")


def write(costs: Iterable[Cost], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(asdict(cost)) + "\n" for cost in costs), "utf-8")


def read(path: Path) -> list[Cost]:
    return [Cost(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def table(costs: Iterable[Cost], *, parts: int) -> list[str]:
    """Rows by the first `parts` parts of a test's path, the most expensive first."""
    sums: dict[str, list[Cost]] = defaultdict(list)
    for cost in costs:
        sums["/".join(cost.file.split("/")[:parts])].append(cost)
    rows = sorted(sums.items(), key=lambda row: -sum(cost.processor_s for cost in row[1]))
    return [
        f"| `{name}` | {len(of):,} | {sum(c.processor_s for c in of):.1f} "
        f"| {sum(c.clock_s for c in of):.1f} |"
        for name, of in rows
    ]


def main() -> None:
    costs = read(Path(sys.argv[1]))
    head = ["| {} | tests | processor s | clock s |", "|---|--:|--:|--:|"]
    out = sys.stdout.write
    for title, parts, shown in (("folder", 2, 99), ("part", 3, 99), ("file", 9, FILES_SHOWN)):
        rows = [head[0].format(title), head[1], *table(costs, parts=parts)[:shown]]
        out("\n".join(rows) + "\n\n")
    out(f"{len(costs):,} tests, {sum(c.processor_s for c in costs):.0f} processor s, ")
    out(f"{sum(c.clock_s for c in costs):.0f} s by the clock of each ({time.strftime('%F')})\n")


if __name__ == "__main__":
    main()
