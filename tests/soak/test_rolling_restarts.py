"""Rolling restarts of three brokers, one after the other, under a producer with acks=all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.started import started
from tests.cluster.test_growth import headrace, read
from tests.cluster.test_rolling_restart import Sending

# A round restarts three brokers, so a fifth of the rounds that kill one of them is enough.
RESTARTS = max(1, int(os.environ.get("ROUNDS", "5")) // 5)


@pytest.mark.timeout(300 + 120 * RESTARTS)
def test_every_acknowledged_record_is_there_once_and_in_order(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(data, "--brokers", "3", "--no-console") as running:
        at = running.wait_until_ready().bootstrap
        admin = AdminClient({"bootstrap.servers": at})
        admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(60)
        words = ("--rolling", "--again", "--execute", "--data", str(data), "-b", at)
        with Sending(at, "orders") as sending:
            for _ in range(RESTARTS):
                assert sorted(headrace("cluster", "restart", *words)["restarted"]) == [1, 2, 3]
        sending.require_in_order(read(at, "orders", len(sending.acknowledged)))
        assert headrace("cluster", "status", "-b", at)["well"]
        running.stop()
