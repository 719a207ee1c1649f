"""kill -9 of `headrace lake fill` while a batch is being written: each record is one row."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.client.connection import ClientSettings
from headrace.pipelines.shipped import lake_tables
from headrace.pipelines.shipped.topic_to_lake import Lake
from tests.pipelines import lakes
from tests.pipelines.driver import Driver
from tests.pipelines.orders import expected, new_topic, orders

pytestmark = pytest.mark.timeout(1800)

# Of the three that `make pipelines` gives to the kills of a pipeline, one is for each of these.
ROUNDS = max(1, int(os.environ.get("ROUNDS", "3")) // 3)
PER_ROUND, PER_BATCH = 200, 20


class FillProcess(Driver):
    """`headrace lake fill` as a process."""

    def __init__(self, folder: Path, bootstrap: str, lake: Lake) -> None:
        super().__init__(folder, bootstrap, "", lake.pipeline().name)
        self.words = [lake.topic, "--format", lake.format, "--per-batch", str(lake.per_batch)]
        self.table = folder / "tables" / lake.topic

    def start(self, *words: str) -> None:
        self.began_at = self.committed()
        command = [sys.executable, "-m", "headrace", "lake", "fill", *self.words, *words]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--data", str(self.at), *self.more],
                cwd=self.at,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """However busy the machine is: the test has a limit of its own."""
        assert self.process is not None
        while not condition():
            assert self.process.poll() is None, f"ended before: {what}\n{self.said()}"
            time.sleep(0.005)

    def files(self) -> int:
        return sum(1 for _ in self.table.rglob("*.parquet"))

    def kill_while_it_writes(self) -> None:
        """A batch is planned, and a file of it has appeared in the table."""
        self.wait_for_batches(1)
        self.wait_for(self.is_in_mid_batch, "a batch under way")
        before = self.files()
        self.wait_for(lambda: self.files() > before, "a file of the batch")
        self.kill()


@pytest.mark.parametrize("form", ["delta", pytest.param("iceberg", marks=pytest.mark.full)])
def test_a_killed_lake_writer_leaves_each_record_once(
    form: str, spark: SparkSession, connection: ClientSettings, tmp_path: Path
) -> None:
    topic = new_topic(connection, f"killed-{form}-lake")
    lake = Lake(topic=topic, format=form, per_batch=PER_BATCH)
    with FillProcess(tmp_path, connection.bootstrap, lake) as process:
        for number in range(ROUNDS):
            begin = number * PER_ROUND
            orders(connection.bootstrap, topic, range(begin, begin + PER_ROUND))
            process.start()
            process.kill_while_it_writes()
            assert process.committed() < ROUNDS * PER_ROUND // PER_BATCH - 1  # in the midst of it
    lakes.fill(Lake(topic=topic, format=form), connection, tmp_path)
    table = lake_tables.rows_of(spark, str(tmp_path / "tables" / topic))
    found = sorted(tuple(row) for row in table.select("id", "amount").collect())
    assert found == expected(range(ROUNDS * PER_ROUND))
