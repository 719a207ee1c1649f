"""An exactly-once copy under kill -9 of broker and client: ROUNDS times, 30 if nobody says."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.interop.brokers import TARGET, make_node
from tests.soak.anomalies import told
from tests.soak.exactly_once import run_copy
from tests.soak.report import write_row

ROUNDS = min(int(os.environ.get("ROUNDS", "30")), 30)
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**31))


@pytest.mark.timeout(240 + 12 * ROUNDS)
def test_the_output_equals_the_input(tmp_path: Path) -> None:
    began = time.monotonic()
    with make_node(TARGET, tmp_path / "node") as node:
        copied = run_copy(node, tmp_path, ROUNDS, SEED)
    if copied.anomalies:
        pytest.fail(
            f"with SEED={SEED}, data kept in {tmp_path}:\n{told(copied.anomalies)}", pytrace=False
        )
    assert copied.committed > ROUNDS, "too few transactions to say anything"
    if TARGET == "headrace":
        write_row(
            f"exactly-once copy, kill -9 of broker and client, {ROUNDS} times (seed {SEED})",
            f"{copied.records:,} records in {copied.committed:,} committed transactions, "
            f"{copied.aborted:,} aborted ones, {copied.copiers} copiers: no duplicate, no gap, "
            f"nothing torn; {time.monotonic() - began:.0f} s in all",
        )
