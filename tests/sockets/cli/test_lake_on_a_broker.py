"""`headrace lake` as far as it needs no Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sockets.cli.conftest import CommandLine


@pytest.mark.integration
def test_made_up_customers_lie_in_a_compacted_topic(headrace: CommandLine) -> None:
    words = ("lake", "generate", "customers", "--records", "300", "--customers", "20")
    done = headrace.json(*words)
    records = headrace.json_lines("consume", "customers")
    assert len(records) == done["records"] == 300
    assert sum(one["value"] is None for one in records) == done["deletes"] > 0
    assert len({one["key"] for one in records}) == 20
    assert {"name", "orders"} <= json.loads(records[0]["value"]).keys()
    described = json.dumps(headrace.json("topics", "describe", "customers"))
    assert "compact" in described
    assert "300 to customers" in headrace(*words)  # once more into the same topic


def test_what_cannot_be_is_said_before_spark_is_started(
    headrace: CommandLine, tmp_path: Path
) -> None:
    data = ("--data", str(tmp_path))
    for command in ("show", "versions", "compact"):
        assert "no Delta or Iceberg table" in headrace.failure("lake", command, "none", *data)
    both = ("--version", "1", "--at", "2026-01-01")
    assert "not both" in headrace.failure("lake", "show", "none", *both, *data)
    assert "Delta tables only" in headrace.failure(
        "lake", "fill", "customers", "--upsert", "--format", "iceberg", *data
    )
    assert "need their Avro schema" in headrace.failure(
        "lake", "fill", "customers", "--values", "avro", *data
    )
    assert "Cannot read" in headrace.failure(
        "lake", "fill", "customers", "--values", "avro", "--schema", "@/nowhere", *data
    )
    killed = tmp_path / "tables" / "killed" / "_delta_log"
    killed.mkdir(parents=True)  # a log without a commit is what a kill may leave
    assert "no Delta or Iceberg table" in headrace.failure("lake", "show", "killed", *data)
