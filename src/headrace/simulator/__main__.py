"""`python -m headrace.simulator`: runs seeds, prints what happened, and says which one broke what.

`--seeds N` runs the seeds 0 to N-1; `--seed S` runs one. The metadata quorum alone, or with
`--clusters` whole nodes with clients, at some seconds a seed. The exit code is 1 if a promise was
broken or if something that should be tested never happened.
"""

# ruff: noqa: T201  what it prints is what it is for

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from collections.abc import Sequence

from headrace.simulator.cluster_run import run_cluster_seed
from headrace.simulator.counters import Counters
from headrace.simulator.quorum_run import run_seed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m headrace.simulator", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--clusters", action="store_true")
    options = parser.parse_args(arguments)
    seeds = range(options.seeds) if options.seed is None else [options.seed]
    return _run_clusters(seeds) if options.clusters else _run_quorums(seeds)


def _run_clusters(seeds: Sequence[int]) -> int:
    logging.disable(logging.CRITICAL)  # what nodes say of faults that are made on purpose
    broken = 0
    for seed in seeds:
        try:
            print(f"seed {seed}: {run_cluster_seed(seed)}", flush=True)
        except Exception:  # noqa: BLE001 - as below
            traceback.print_exc(limit=-4)
            print(f"seed {seed} broke a promise; `--seed {seed}` runs it again", file=sys.stderr)
            broken += 1
    return 1 if broken else 0


def _run_quorums(seeds: Sequence[int]) -> int:
    total, broken = Counters(), []
    for seed in seeds:
        try:
            total += run_seed(seed)
        except Exception:  # noqa: BLE001 - whatever it is, the other seeds are still worth running
            traceback.print_exc(limit=-4)
            print(f"seed {seed} broke a promise; `--seed {seed}` runs it again", file=sys.stderr)
            broken.append(seed)
    print(f"{len(seeds)} seeds: {total}")
    missing = total.zeros() if len(seeds) > 1 else []
    if missing:
        print(f"never happened: {', '.join(missing)}", file=sys.stderr)
    return 1 if broken or missing else 0


if __name__ == "__main__":
    sys.exit(main())
