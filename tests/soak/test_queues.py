"""A queue under kill -9 of its brokers, with workers that crash, hang, release and reject.

On one node and on three: RECORDS (20,000) in KILLS (10), by a seed.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.interop.brokers import TARGET, make_node
from tests.soak.queue_rounds import SETTINGS, Worked, run_queue
from tests.soak.report import write_row
from tests.soak.three_nodes import ThreeNodes

RECORDS = int(os.environ.get("RECORDS", "20000"))
LETTERS = TARGET == "headrace"
KILLS = int(os.environ.get("KILLS", "10"))
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**31))


@pytest.mark.timeout(900 + 60 * KILLS)
def test_a_queue_on_one_node(tmp_path: Path) -> None:
    began = time.monotonic()
    with make_node(TARGET, tmp_path / "node", SETTINGS) as node:
        worked = run_queue(
            [node],
            node.bootstrap,
            tmp_path,
            records=RECORDS,
            kills=KILLS,
            seed=SEED,
            with_letters=LETTERS,
        )
    tell(worked, "one node", tmp_path, time.monotonic() - began)


@pytest.mark.timeout(900 + 60 * KILLS)
def test_a_queue_on_three_nodes(tmp_path: Path) -> None:
    began = time.monotonic()
    with ThreeNodes(TARGET, tmp_path, SETTINGS) as cluster:
        worked = run_queue(
            cluster.members,
            cluster.bootstrap,
            tmp_path,
            records=RECORDS,
            kills=KILLS,
            seed=SEED,
            with_letters=LETTERS,
        )
    tell(worked, "three nodes", tmp_path, time.monotonic() - began)


def tell(worked: Worked, where: str, folder: Path, took_s: float) -> None:
    if worked.anomalies:
        shown = "\n".join(worked.anomalies[:20])
        pytest.fail(
            f"{len(worked.anomalies)} anomalies, SEED={SEED}, data in {folder}:\n{shown}",
            pytrace=False,
        )
    assert worked.accepted_after_kills, "the queue was empty before the last kill"
    assert worked.rejected and worked.used_up, "the load was too small to say anything"
    whose = "Headrace" if TARGET == "headrace" else "Apache Kafka"
    write_row(
        f"queue on {where} of {whose}, {worked.records:,} records, brokers killed {worked.kills} "
        f"times (seed {worked.seed})",
        f"{worked.deliveries:,} deliveries to {worked.workers} workers that crash, hang, release "
        f"and reject: {worked.accepted:,} records accepted once, {worked.rejected:,} rejected, "
        f"{worked.used_up:,} given up after their last delivery ({worked.unnoticed:,} of these "
        f"deliveries reached no worker), {worked.accepted_after_kills:,} accepted after the last "
        f"kill; {worked.letters:,} dead letters, {worked.copies:,} of them written again after a "
        "kill; none lost, no count forgotten, none delivered again after an answer; "
        f"{took_s:.0f} s in all",
    )
