"""kill -9 under load: ROUNDS times (50 in `make soak`), with a seed of its own in each run."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.interop.brokers import TARGET, make_node
from tests.soak.kills import Outcome, run_rounds
from tests.soak.report import write_row

ROUNDS = int(os.environ.get("ROUNDS", "50"))
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**31))


@pytest.mark.timeout(600 + 12 * ROUNDS)
def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    began = time.monotonic()
    with make_node(TARGET, tmp_path) as node:
        try:
            outcome = run_rounds(node, ROUNDS, SEED)
        except AssertionError as wrong:
            pytest.fail(f"with SEED={SEED}, data kept in {tmp_path}: {wrong}", pytrace=False)
    assert outcome.acknowledged > 100 * ROUNDS, "the load was too small to say anything"
    tell(outcome, time.monotonic() - began)


def tell(outcome: Outcome, took_s: float) -> None:
    if TARGET == "headrace":
        write_row(
            f"kill -9 under load, {outcome.rounds} times (seed {outcome.seed})",
            f"{outcome.acknowledged:,} records and {outcome.topics_made:,} topics acknowledged, "
            f"none lost, none at two offsets, {outcome.stored:,} read back with right checksums; "
            f"slowest start {outcome.slowest_start_s:.1f} s; {took_s:.0f} s in all",
        )
