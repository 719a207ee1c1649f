"""Faults of a cluster of three under load: FAULTS of them, with a seed of its own in each run."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.interop.brokers import TARGET
from tests.soak.anomalies import told
from tests.soak.cluster_faults import Trial, told_of
from tests.soak.private_network import PrivateNetwork
from tests.soak.report import write_row
from tests.soak.three_nodes import ThreeNodes

FAULTS = int(os.environ.get("FAULTS", "40"))
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**31))


@pytest.mark.timeout(300 + 60 * FAULTS)
def test_three_nodes_lose_nothing(tmp_path: Path) -> None:
    with PrivateNetwork(3) as network, ThreeNodes(TARGET, tmp_path, network=network) as cluster:
        try:
            survived = Trial(cluster, SEED).run(FAULTS)
        except AssertionError as wrong:
            pytest.fail(
                f"SEED={SEED}, data in {tmp_path}: {wrong}\n{cluster.logs()}", pytrace=False
            )
    assert not survived.anomalies, f"SEED={SEED}, data in {tmp_path}:\n{told(survived.anomalies)}"
    assert survived.acknowledged > 100 * FAULTS, "the load was too small to say anything"
    whose = "Headrace" if TARGET == "headrace" else "Apache Kafka"
    write_row(f"three nodes of {whose}, {FAULTS} faults (seed {SEED})", told_of(survived))
