"""Runs a ring of tests many times and names every test that failed at least once.

    python -m tests.flaky --rounds 30 --load 2 --ring test        (make flaky ROUNDS=30 LOAD=2)

Every third round runs beside `--load` busy processes. Each round has a hash seed of its own, so
sets and dictionaries are walked in another order. The results of all runs are kept in
`build/flaky`: a later run goes on counting, and the log of each red round stays there. A round
also counts as red if its output has "Logging error" or "Exception ignored". Ends with 1 if any
round of this run was red.
"""

# ruff: noqa: T201  what it prints is what it is for

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
KEPT = PROJECT / "build" / "flaky"
RESULTS = "rounds.jsonl"
FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (tests/[^\n]*?)(?: - .*)?$", re.M)
# Output of a good run that is a defect all the same.
NOISE = re.compile(r"--- Logging error ---|Exception ignored (?:in|while)\b.*")
BUSY = "while True: pass"
LOADED_EACH = 3


@dataclass(slots=True)
class Round:
    """One run of a ring."""

    ring: str
    commit: str
    hash_seed: int
    busy: int  # processes that kept the cores busy beside it
    seconds: int
    failed: list[str] = field(default_factory=list)
    log: str = ""  # kept only of a red round

    @property
    def is_red(self) -> bool:
        return bool(self.failed)


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep `count` cores busy until the block ends."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def red_tests(output: str, code: int) -> list[str]:
    """The tests that failed by pytest's summary; what else was wrong if it names none."""
    failed = sorted(set(FAILED_TEST.findall(output)))
    if not failed and code != 0:
        failed = [f"the run ended with {code} and named no test"]
    return failed + sorted({f"output: {found.group()}" for found in NOISE.finditer(output)})


def run_once(ring: str, *, number: int, busy: int, hash_seed: int, args: str) -> Round:
    log = KEPT / f"{ring}-{time.strftime('%H%M%S')}-{number}.log"
    began = time.monotonic()
    with busy_processes(busy), log.open("wb") as output:
        code = subprocess.run(
            ["make", "--no-print-directory", ring, f"ARGS={args}"],
            cwd=PROJECT,
            env=os.environ | {"PYTHONHASHSEED": str(hash_seed)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        ).returncode
    failed = red_tests(log.read_text(errors="replace"), code)
    result = Round(ring, _commit(), hash_seed, busy, round(time.monotonic() - began), failed)
    if failed:
        result.log = str(log.relative_to(PROJECT))
    else:
        log.unlink()
    return result


def _commit() -> str:
    return subprocess.check_output(
        ["git", "describe", "--always", "--dirty"], cwd=PROJECT, text=True
    ).strip()


def keep(result: Round) -> None:
    with (KEPT / RESULTS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(result)) + "\n")


def kept(ring: str) -> list[Round]:
    """All rounds of a ring that were run here, the oldest first."""
    path = KEPT / RESULTS
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [each for each in (Round(**json.loads(line)) for line in lines) if each.ring == ring]


def summary(rounds: list[Round]) -> str:
    """What all rounds together say: how many were red, and by which tests."""
    red = Counter(test for each in rounds for test in each.failed)
    beside = sum(1 for each in rounds if each.busy)
    lines = [
        f"{len(rounds)} rounds, {beside} of them beside load; {len(red)} tests red at least once"
    ]
    for test, times in red.most_common():
        last = next(each for each in reversed(rounds) if test in each.failed)
        where = f"hash seed {last.hash_seed}, {last.busy} busy, {last.commit}, {last.log}"
        lines.append(f"{times:4} x {test}\n       last: {where}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--load", type=int, default=2, help="busy processes beside every third round"
    )
    parser.add_argument("--ring", default="test", help="the make target")
    parser.add_argument("--args", default="", help="more for pytest")
    given = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    before = len(kept(given.ring))
    for number in range(before, before + given.rounds):
        busy = given.load if number % LOADED_EACH == LOADED_EACH - 1 else 0
        result = run_once(given.ring, number=number, busy=busy, hash_seed=number, args=given.args)
        keep(result)
        word = "red: " + ", ".join(result.failed) if result.is_red else "green"
        print(f"round {number + 1}, {busy} busy, {result.seconds} s: {word}", flush=True)
    rounds = kept(given.ring)
    print(summary(rounds))
    sys.exit(1 if any(each.is_red for each in rounds[before:]) else 0)


if __name__ == "__main__":
    main()
