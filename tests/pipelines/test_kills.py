"""kill -9 in mid-batch: the table holds each record once. `make soak` does it for every sink."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.interop.brokers import TARGET, make_node
from tests.pipelines.killing import SINKS, rounds
from tests.pipelines.orders import table

pytestmark = pytest.mark.timeout(1800)

ROUNDS = int(os.environ.get("ROUNDS", "3"))


def test_after_kills_in_mid_batch_the_table_holds_each_record_once(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sink = SINKS["delta append"]
    with make_node(TARGET, tmp_path / "node") as node:
        killed = rounds(node, sink, tmp_path / "run", ROUNDS, seed=7)
    assert killed.in_mid_batch  # or this shows nothing
    spark = request.getfixturevalue("spark")
    held = table(spark, tmp_path / "run" / "tables" / "killed")
    assert held == sink.expected(killed.orders)
