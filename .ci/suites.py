"""Runs the suites of the project side by side and ends with a table of their seconds.

The inner ring runs first, alone. Then two suites run at a time: most tests wait for something, so
two fill two cores better than one. What they need from others (Debian's packages, Maven's jars,
Spark) is brought meanwhile. A suite's output is printed whole when it ends. A failed suite makes
the run fail. So does the inner ring if it takes more than 1.5 times its budget of processor time,
which is steady; a suite that is over its budget by the clock, which is not, is only named.

A few tests that failed are tried once more at the end, when nothing runs beside them. What passes
then is red by chance, which is a defect: the result begins with its name, and
docs/reliability-runs.md gets a row. What fails again, or more than a few at first, makes the run
fail.

    .ci/suites.py [--full] [SUITE ...]

Budgets are seconds on two quiet cores, beside another suite: docs/reliability-runs.md.
"""

# ruff: noqa: T201  what it prints is what it is for

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
AT_ONCE = 2
SAID_EVERY_S = 60.0
WHOLE_RUN_S = 1800
# More failures than these are no chance, and no second try begins when the run is this old.
MOST_SECOND_TRIES = 6
LAST_SECOND_TRY_S = 4200
RELIABILITY = PROJECT / "docs" / "reliability-runs.md"
LAST_FULL = "The last good `make full`:"
SECOND_TRIES = "| date | commit | red, then green alone |\n|---|---|---|\n"
# Processor seconds that the inner ring may take, and how much more makes the run fail. It runs
# first and alone: beside other suites the same tests took 315 s instead of 175.
INNER_RING = "test"
INNER_RING_S = 220
TOO_MUCH = 1.5
# As tests/costs.py prints it.
PROCESSOR_TIME = re.compile(r"^processor seconds of this run: (\d+)", re.M)
FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (tests/\S+::[^\n]*?)(?: - .*)?$", re.M)
CLOSING_LINE = re.compile(r"^=*\s*((?:\d+ [a-z]+,? ?)+in [\d.]+s.*?)\s*=*$", re.M)


@dataclass
class Job:
    """One make target; what it `needs` must have ended well before."""

    target: str
    needs: tuple[str, ...] = ()
    budget_s: int | None = None  # None: it only brings something
    output: Path = field(init=False)
    began: float = 0.0
    seconds: float = 0.0
    code: int | None = None
    by_chance: list[str] = field(default_factory=list)  # failed, and passed when tried once more

    def failed_tests(self) -> list[str]:
        """What pytest names in its summary; empty if something else has failed."""
        return FAILED_TEST.findall(self.output.read_text(errors="replace"))

    def closing_lines(self) -> str:
        """What pytest says of itself at the end."""
        return "; ".join(CLOSING_LINE.findall(self.output.read_text(errors="replace")))

    def processor_s(self) -> int | None:
        """Processor seconds of its tests and workers; None if it does not print them."""
        found = PROCESSOR_TIME.findall(self.output.read_text(errors="replace"))
        return sum(map(int, found)) if found else None


BRINGING = (
    Job("develop"),
    Job("packages"),
    Job("spark", ("develop",)),
    Job("tools", ("develop", "packages")),
)
# In this order they are begun, as soon as what they need is there: the longest first, and of those
# that can begin at once the ones that compute beside one that waits.
SUITES = (
    Job("interop", ("tools", "spark"), 1300),
    Job("pipelines", ("spark", "packages"), 1150),
    Job("test", ("develop",), 180),
    Job("integration", ("develop",), 400),
    Job("services", ("develop", "packages"), 600),
    Job("check", ("develop",), 180),
    Job("guides", ("develop", "packages"), 240),
    Job("console", ("develop", "packages"), 300),
    Job("cluster", ("tools",), 420),
    Job("fuzz", ("develop",), 120),
)
# Those of pytest: with --full their tests marked `full` run as well.
OF_PYTEST = {
    "test",
    "integration",
    "cluster",
    "interop",
    "services",
    "pipelines",
    "guides",
    "console",
}


class Run:
    """The jobs of one run. All fields are guarded by `changed`."""

    def __init__(self, suites: list[Job], *, full: bool) -> None:
        self.bringing = _needed(suites)
        self.suites, self.full = suites, full
        self.changed = threading.Condition()
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-ci-"))

    def whole(self) -> bool:
        """Run everything; whether all of it was good."""
        began = time.monotonic()
        for job in [*self.bringing, *self.suites]:
            job.output = self.folder / job.target
        with self.changed:
            while any(job.code is None for job in self.suites):
                self._begin_what_can()
                if not self._running():
                    break  # what the others need has failed
                if not self.changed.wait(SAID_EVERY_S):
                    self._say_what_runs()
        self._try_failed_once_more(time.monotonic() - began)
        return self._say_all(time.monotonic() - began)

    def _try_failed_once_more(self, seconds: float) -> None:
        failed = [job for job in self.suites if job.code]
        tests = [test for job in failed for test in job.failed_tests()]
        if not all(job.failed_tests() for job in failed) or len(tests) > MOST_SECOND_TRIES:
            return
        for job in failed:
            if seconds < LAST_SECOND_TRY_S:
                names = job.failed_tests()
                _say(f"once more, alone: {', '.join(names)}")
                job.output = job.output.with_name(f"{job.target}-once-more")
                job.code = self._run(job, "--last-failed", "--last-failed-no-failures=none")
                job.by_chance = names if job.code == 0 else []
                print(job.output.read_text(errors="replace").rstrip(), flush=True)

    def _running(self) -> list[Job]:
        return [j for j in [*self.bringing, *self.suites] if j.began and j.code is None]

    def _begin_what_can(self) -> None:
        for job in self.suites:
            if job.target == INNER_RING and job.code is None:
                self._begin_alone(job)
                return
        for job in self.bringing:
            if not job.began and self._is_ready(job):
                self._begin(job)
        for job in self.suites:
            under_way = [j for j in self._running() if j in self.suites]
            if len(under_way) < AT_ONCE and not job.began and self._is_ready(job):
                self._begin(job)

    def _begin_alone(self, job: Job) -> None:
        for needed in self.bringing:
            if needed.target in job.needs and not needed.began:
                self._begin(needed)
        if self._is_ready(job) and not job.began:
            self._begin(job)

    def _is_ready(self, job: Job) -> bool:
        return all(j.code == 0 for j in self.bringing if j.target in job.needs)

    def _begin(self, job: Job) -> None:
        job.began = time.monotonic()
        _say(f"begins: make {job.target}")
        threading.Thread(target=self._make, args=(job,), daemon=True).start()

    def _run(self, job: Job, *args: str) -> int:
        command = ["make", "--no-print-directory", job.target]
        if job.target in OF_PYTEST:
            # Each remembers its own failures.
            cache = self.folder / f"{job.target}-cache"
            command.append("ARGS=" + " ".join(["-o", f"cache_dir={cache}", *args]))
            if self.full:
                command.append("FULL=1")
        with job.output.open("wb") as output:
            return subprocess.run(
                command, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            ).returncode

    def _make(self, job: Job) -> None:
        code = self._run(job)
        with self.changed:
            job.seconds, job.code = time.monotonic() - job.began, code
            if job.budget_s is not None or code != 0:
                print(f"\n==== make {job.target}", flush=True)
                print(job.output.read_text(errors="replace").rstrip(), flush=True)
            outcome = "passed" if code == 0 else f"FAILED ({code})"
            _say(f"make {job.target} {outcome} in {job.seconds:.0f} s")
            self.changed.notify_all()

    def _say_what_runs(self) -> None:
        now = time.monotonic()
        _say("running: " + ", ".join(f"{j.target} {now - j.began:.0f} s" for j in self._running()))

    def _say_all(self, seconds: float) -> bool:
        by_chance = [test for job in self.suites for test in job.by_chance]
        too_dear = [job for job in self.suites if not self.full and _is_too_dear(job)]
        good = all(job.code == 0 for job in self.suites) and not too_dear
        print()
        for test in by_chance:
            print(f"!!!! SECOND TRY: red by chance, which is a defect: {test}", flush=True)
        print(
            f"{'suite':<12}{'result':<10}{'seconds':>8}{'budget':>8}{'cpu s':>8}  tests", flush=True
        )
        for job in self.suites:
            print(_row(job), flush=True)
        print(f"{'all':<12}{_word(good):<10}{seconds:>8.0f}{WHOLE_RUN_S:>8}", flush=True)
        for job in too_dear:
            most = INNER_RING_S * TOO_MUCH
            spent_s = job.processor_s()
            print(f"!!!! TOO DEAR: {job.target}, {spent_s} processor s of at most {most:.0f}")
        for job in self.suites:
            if job.budget_s is not None and job.seconds > job.budget_s:
                print(f"!!!! OVER BUDGET: {job.target} by {job.seconds - job.budget_s:.0f} s")
        if seconds > WHOLE_RUN_S:
            print(f"!!!! OVER BUDGET: the whole run by {seconds - WHOLE_RUN_S:.0f} s")
        if by_chance:
            _note_second_tries(by_chance)
        elif good and self.full and self.suites == list(SUITES):
            _keep_in_the_docs(seconds, _changed_files())
        return good


def _is_too_dear(job: Job) -> bool:
    """Whether the inner ring took far more processor time than it may."""
    spent_s = job.processor_s() if job.target == INNER_RING and job.code == 0 else None
    return spent_s is not None and spent_s > INNER_RING_S * TOO_MUCH


def _note_second_tries(tests: list[str]) -> None:
    text = RELIABILITY.read_text("utf-8")
    today, commit = time.strftime("%Y-%m-%d"), _head()
    rows = "".join(f"| {today} | {commit} | `{test}` |\n" for test in tests)
    RELIABILITY.write_text(text.replace(SECOND_TRIES, SECOND_TRIES + rows), "utf-8")


def _keep_in_the_docs(seconds: float, changed: str) -> None:
    """Note when everything was last good. Leaves the page alone if files were changed."""
    if changed:
        _say("files were changed, so docs/reliability-runs.md is left as it is")
        return
    text = RELIABILITY.read_text("utf-8")
    line = f"{LAST_FULL} {time.strftime('%Y-%m-%d')}, commit {_head()}, {seconds:.0f} s.\n"
    RELIABILITY.write_text(re.sub(f"{re.escape(LAST_FULL)}.*\n", line, text), "utf-8")


def _head() -> str:
    return subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()


def _changed_files() -> str:
    return subprocess.check_output(["git", "status", "--porcelain"], text=True)


def _needed(suites: list[Job]) -> list[Job]:
    wanted = {name for job in suites for name in job.needs}
    wanted |= {name for job in BRINGING if job.target in wanted for name in job.needs}
    return [job for job in BRINGING if job.target in wanted]


def _row(job: Job) -> str:
    result = "not run" if job.code is None else _word(job.code == 0)
    tests = job.closing_lines() if job.code is not None else ""
    spent_s = job.processor_s() if job.code is not None else None
    seconds = f"{job.seconds:>8.0f}{job.budget_s or 0:>8}{spent_s or '':>8}"
    return f"{job.target:<12}{result:<10}{seconds}  {tests}".rstrip()


def _word(good: bool) -> str:
    return "passed" if good else "FAILED"


def _say(words: str) -> None:
    print(f"==== {time.strftime('%H:%M:%S')} {words}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--full", action="store_true", help="with the tests that are marked full")
    parser.add_argument("suite", nargs="*", choices=[[], *(job.target for job in SUITES)])
    given = parser.parse_args()
    suites = [job for job in SUITES if not given.suite or job.target in given.suite]
    os.chdir(PROJECT)
    sys.exit(0 if Run(suites, full=given.full).whole() else 1)


if __name__ == "__main__":
    main()
