"""Faults of a cluster of three under load: MINUTES of them (20) or FAULTS, by a seed of its own.

`TARGET=apache` runs the same script against three nodes of Apache Kafka.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.brokers import TARGET
from tests.soak.anomalies import told
from tests.soak.cluster_faults import Trial, told_of
from tests.soak.private_network import PrivateNetwork
from tests.soak.report import write_row
from tests.soak.three_nodes import ThreeNodes

FAULTS = int(os.environ.get("FAULTS", "0"))  # 0: as many as there is time for
MINUTES = int(os.environ.get("MINUTES", "20"))
LONGEST_S = 300 + (60 * FAULTS if FAULTS else 60 * MINUTES + 300)
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**31))


@pytest.mark.timeout(LONGEST_S)
def test_three_nodes_lose_nothing(tmp_path: Path) -> None:
    with PrivateNetwork(3) as network, ThreeNodes(TARGET, tmp_path, network=network) as cluster:
        try:
            survived = Trial(cluster, SEED).run(_goes_on())
        except AssertionError as wrong:
            pytest.fail(
                f"SEED={SEED}, data in {tmp_path}: {wrong}\n{cluster.logs()}", pytrace=False
            )
    assert not survived.anomalies, f"SEED={SEED}, data in {tmp_path}:\n{told(survived.anomalies)}"
    faults = sum(survived.faults.values())
    assert survived.acknowledged > 100 * faults, "the load was too small to say anything"
    whose = "Headrace" if TARGET == "headrace" else "Apache Kafka"
    write_row(f"three nodes of {whose}, {faults} faults (seed {SEED})", told_of(survived))


def _goes_on() -> Callable[[int], bool]:
    """Whether there is to be another fault after so many."""
    if FAULTS:
        return lambda done: done < FAULTS
    end = time.monotonic() + 60 * MINUTES
    return lambda done: time.monotonic() < end
