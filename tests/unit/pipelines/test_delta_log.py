"""A Delta table's id and the last batches of its streams, from the files of its log."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from headrace.pipelines.sinks import delta_log
from headrace.pipelines.sinks.table_memory import TableMemory


def commit(log: Path, version: int, *actions: dict[str, object]) -> None:
    log.mkdir(exist_ok=True)
    text = "\n".join(json.dumps(one) for one in actions)
    (log / f"{version:020}.json").write_text(text + "\n")


def txn(stream: str, batch: int) -> dict[str, object]:
    return {"txn": {"appId": stream, "version": batch, "lastUpdated": 1}}


def checkpoint(log: Path, name: str, rows: list[dict[str, object]]) -> None:
    kinds = {
        "metaData": pyarrow.struct([("id", pyarrow.string()), ("name", pyarrow.string())]),
        "txn": pyarrow.struct([("appId", pyarrow.string()), ("version", pyarrow.int64())]),
        "add": pyarrow.struct([("path", pyarrow.string())]),
    }
    table = pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(list(kinds.items())))
    parquet.write_table(table, log / name)


def test_commits_and_the_last_checkpoint(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    assert delta_log.read(str(tmp_path)) is None
    commit(log, 0, {"metaData": {"id": "one"}}, txn("a", 0))
    commit(log, 1, {"add": {"path": "x"}}, txn("a", 1))
    assert delta_log.read(str(tmp_path)) == TableMemory("one", {"a": 1})
    rows: list[dict[str, object]] = [
        {"metaData": {"id": "one"}},
        {"txn": {"appId": "a", "version": 9}},
        {"txn": {"appId": "b", "version": 3}},
        {"add": {"path": "x"}},
    ]
    checkpoint(log, f"{10:020}.checkpoint.parquet", rows)
    (log / f"{0:020}.json").unlink()  # Delta removes old ones
    commit(log, 11, txn("b", 4))
    assert delta_log.read(str(tmp_path)) == TableMemory("one", {"a": 9, "b": 4})


def test_a_checkpoint_in_parts_counts_when_it_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    commit(log, 0, {"metaData": {"id": "one"}}, txn("a", 5))
    checkpoint(log, f"{7:020}.checkpoint.0000000001.0000000002.parquet", [txn_row("a", 6)])
    assert delta_log.read(str(tmp_path)) == TableMemory("one", {"a": 5})
    whole: list[dict[str, object]] = [{"metaData": {"id": "one"}}, txn_row("c", 1)]
    checkpoint(log, f"{7:020}.checkpoint.0000000002.0000000002.parquet", whole)
    assert delta_log.read(str(tmp_path)) == TableMemory("one", {"a": 6, "c": 1})


def txn_row(stream: str, batch: int) -> dict[str, object]:
    return {"txn": {"appId": stream, "version": batch}}


@pytest.mark.parametrize("damage", ['{"txn": ', "[1]", '{"txn": {"appId": "a", "version": "x"}}'])
def test_what_cannot_be_read_is_left_to_spark(tmp_path: Path, damage: str) -> None:
    log = tmp_path / "_delta_log"
    commit(log, 0, {"metaData": {"id": "one"}})
    (log / f"{1:020}.json").write_text(damage)
    assert delta_log.read(str(tmp_path)) is None
