"""`python -m headrace.node.simulator`: runs seeds, and prints which of them broke what.

`--seeds N` runs the seeds 0 to N-1 of the metadata quorum and of whole clusters with clients;
`--only quorum` or `--only clusters` one of both, `--seed S` one seed. `--beyond` runs clusters that
lose more than is promised, and counts what is gone. The exit code is 1 if a promise was broken or
if something that should be tested never happened. A seed runs the same way every time. Ctrl-C ends
it with what the seeds so far have seen.
"""

# ruff: noqa: T201  what it prints is what it is for

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from headrace.node.simulator.cluster.report import ClusterReport
from headrace.node.simulator.counters import Counters
from headrace.node.simulator.seeds import results

TOLD_EVERY = 100  # seeds; a hundred clusters take some minutes
INTERRUPTED = 130  # as a shell has it


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m headrace.node.simulator", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="one seed only")
    parser.add_argument("--only", choices=("quorum", "clusters"))
    parser.add_argument("--beyond", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    one = options.seed is not None
    seeds = [options.seed] if one else range(options.first, options.first + options.seeds)
    kinds = ["quorum", "clusters"] if options.only is None else [options.only]
    if options.beyond:
        kinds = ["beyond"]
    processes = 1 if one else options.processes
    return max(run_all(kind, seeds, processes) for kind in kinds)


def run_all(kind: str, seeds: Sequence[int], processes: int) -> int:
    """Run the seeds and print what happened; the exit code."""
    total: Any = Counters() if kind == "quorum" else ClusterReport()
    broken: list[int] = []
    done = losing = 0
    try:
        for seed, report, failure in results(kind, seeds, processes):
            done += 1
            if report is None:
                broken.append(seed)
                again = f"--seed {seed} --only {kind}"
                print(
                    f"{failure}\n{kind}, seed {seed}: broken; `{again}` runs it again", flush=True
                )
            elif kind == "quorum":
                total += report
            else:
                losing += report.lost_records > 0
                total.add(report)
            if done % TOLD_EVERY == 0:
                told = f"{kind}: {done:,} of {len(seeds):,} seeds, {len(broken)} broken"
                print(told, file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print(f"{kind}: stopped after {done:,} of {len(seeds):,} seeds", file=sys.stderr)
        print(f"{kind}, {done} seeds, {len(broken)} broken: {total}")
        return INTERRUPTED
    print(f"{kind}, {len(seeds)} seeds, {len(broken)} broken: {total}")
    if kind == "beyond":
        print(f"acknowledged records were lost in {losing} of {len(seeds)} runs")
        return 1 if broken or not losing else 0
    missing = total.zeros() if len(seeds) > 1 else []
    if missing:
        print(f"never happened: {', '.join(missing)}", file=sys.stderr)
    return 1 if broken or missing else 0


if __name__ == "__main__":
    sys.exit(main())
