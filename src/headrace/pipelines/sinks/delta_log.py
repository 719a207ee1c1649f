"""The memory of a Delta table on this machine, read from its log without Spark: its id, and the
last batch of each stream that was appended to it.

Asking Spark takes seconds when it has not read the table yet. The last checkpoint of the log and
the commits behind it hold both. Nothing else of the log is looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.pipelines.sinks.table_memory import TableMemory

COMMIT = re.compile(r"(\d{20})\.json")
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?(?:\.[0-9a-f-]{36})?\.\w+")
COLUMNS = ["metaData.id", "txn.appId", "txn.version"]


def read(location: str) -> TableMemory | None:
    """Returns what the table's log says. None: there is no table, or only Spark can read
    its log."""
    log = Path(location) / "_delta_log"
    try:
        names = sorted(one.name for one in log.iterdir())
        found = TableMemory("", {})
        begin = -1
        version, parts = _last_checkpoint(names)
        for name in parts:
            begin = version
            for action in _of_checkpoint(log / name):
                _take(found, action)
        for name in names:
            if (commit := COMMIT.fullmatch(name)) is not None and int(commit[1]) > begin:
                for line in (log / name).read_text("utf-8").splitlines():
                    _take(found, json.loads(line))
    except (OSError, ValueError, ImportError):  # pyarrow's errors are among them
        return None
    return found if found.id else None


def _last_checkpoint(names: list[str]) -> tuple[int, list[str]]:
    """The version and the files of the last one that is whole."""
    by_version: dict[int, list[str]] = {}
    for name in names:
        if (found := CHECKPOINT.fullmatch(name)) is not None:
            by_version.setdefault(int(found[1]), []).append(name)
    for version, files in sorted(by_version.items(), reverse=True):
        single = [name for name in files if (CHECKPOINT.fullmatch(name) or [None] * 4)[2] is None]
        if single:
            return version, single[:1]
        whole = int((CHECKPOINT.fullmatch(files[0]) or ["", "", "", "0"])[3])
        if len(files) == whole:
            return version, files
    return -1, []


def _of_checkpoint(file: Path) -> Iterator[dict[str, Any]]:
    if file.suffix == ".json":
        yield from (json.loads(line) for line in file.read_text("utf-8").splitlines())
        return
    from pyarrow import parquet

    with parquet.ParquetFile(file) as whole:
        yield from whole.read(columns=COLUMNS).to_pylist()


def _take(found: TableMemory, action: object) -> None:
    """Other actions are passed over; in a checkpoint the missing ones are null."""
    if not isinstance(action, dict):
        raise ValueError("an action of Delta is an object")
    if (metadata := action.get("metaData")) is not None and metadata.get("id"):
        found.id = str(metadata["id"])
    if (batch := action.get("txn")) is not None and batch.get("appId"):
        stream = str(batch["appId"])
        found.streams[stream] = max(found.streams.get(stream, -1), int(batch["version"]))
