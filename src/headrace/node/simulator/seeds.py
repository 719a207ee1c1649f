"""Runs of many seeds, in several processes: each gives a report, or the traceback of what broke."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

from headrace.node.simulator.cluster.run import run_beyond_the_promise, run_cluster_seed
from headrace.node.simulator.quorum_run import run_seed

KINDS: dict[str, Callable[[int], Any]] = {
    "quorum": run_seed,
    "clusters": run_cluster_seed,
    "beyond": run_beyond_the_promise,
}

Result = tuple[int, Any, str | None]  # seed, report, traceback


def results(kind: str, seeds: Sequence[int], processes: int) -> Iterator[Result]:
    """Yields the results in the order in which the runs end."""
    if processes <= 1:
        for seed in seeds:
            yield run_one(kind, seed)
        return
    forked = get_context("fork")
    with ProcessPoolExecutor(processes, mp_context=forked, initializer=_prepare) as pool:
        try:
            for done in as_completed([pool.submit(run_one, kind, seed) for seed in seeds]):
                yield done.result()
        finally:  # also if the caller stops early
            pool.shutdown(wait=True, cancel_futures=True)


def run_one(kind: str, seed: int) -> Result:
    try:
        return seed, KINDS[kind](seed), None
    except Exception:  # noqa: BLE001 - whatever it is, the other seeds are still worth running
        return seed, None, traceback.format_exc(limit=-4)


def _prepare() -> None:
    """Imported modules stay: the collector need not look at them each time."""
    gc.collect()
    gc.freeze()
