"""An exactly-once copy under kill -9 of broker and client: ROUNDS times, 30 if nobody says."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.interop.brokers import TARGET, make_node
from tests.soak.anomalies import told
from tests.soak.exactly_once import SETTINGS, Copied, run_copy, run_late_commit
from tests.soak.report import write_row

ROUNDS = min(int(os.environ.get("ROUNDS", "30")), 30)
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**31))


@pytest.mark.timeout(600 + 30 * ROUNDS)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_output_equals_the_input(tmp_path: Path, protocol: str) -> None:
    began = time.monotonic()
    with make_node(TARGET, tmp_path / "node", SETTINGS) as node:
        copied = run_copy(node, tmp_path, ROUNDS, SEED, protocol)
    if copied.anomalies:
        pytest.fail(
            f"with SEED={SEED}, data kept in {tmp_path}:\n{told(copied.anomalies)}", pytrace=False
        )
    assert copied.committed > ROUNDS, "too few transactions to say anything"
    tell(copied, protocol, time.monotonic() - began)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("where", ["before-offsets", "before-commit"])
def test_the_commit_of_a_copier_that_slept_too_long_is_refused(
    tmp_path: Path, where: str, protocol: str
) -> None:
    with make_node(TARGET, tmp_path / "node", SETTINGS) as node:
        anomalies = run_late_commit(node, tmp_path, where, protocol)
    assert not anomalies, told(anomalies)


def tell(copied: Copied, protocol: str, took_s: float) -> None:
    if TARGET == "headrace":
        events = ", ".join(f"{what} {times} times" for what, times in copied.events.items())
        write_row(
            f"exactly-once copy, {protocol} group, {copied.rounds} rounds (seed {copied.seed}): "
            f"{events}",
            f"{copied.records:,} records in {copied.committed:,} committed transactions, "
            f"{copied.aborted:,} aborted and {copied.refused:,} refused ones, of a source with "
            f"{copied.fed:,} committed and {copied.fed_aborted:,} aborted transactions; "
            f"{copied.copiers} copiers: no duplicate, no gap, nothing out of order, nothing torn, "
            f"nothing aborted seen; {took_s:.0f} s in all",
        )
