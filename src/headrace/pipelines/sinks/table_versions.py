"""The version of a table on this machine: the number of the last file of its log.

Delta and Iceberg number the files of their logs one by one, and remove old ones only. So the next
version is found by asking for one file, however long the log is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class _Log:
    folder: str
    name: Callable[[int], str]
    names: re.Pattern[str]


LOGS = (
    _Log("_delta_log", lambda one: f"{one:020d}.json", re.compile(r"(\d{20})\.json")),
    _Log("metadata", lambda one: f"v{one}.metadata.json", re.compile(r"v(\d+)\.metadata\.json")),
)


def last_version(location: str, known: int = -1) -> int:
    """-1: there is none, or the table is not on this machine. `known` is a version of before."""
    if "://" in location:
        return -1
    for log in LOGS:
        folder = Path(location) / log.folder
        if folder.is_dir():
            if known < 0 or not (folder / log.name(known)).exists():
                known = _newest(folder, log)
            while (folder / log.name(known + 1)).exists():
                known += 1
            return known
    return -1


def _newest(folder: Path, log: _Log) -> int:
    with os.scandir(folder) as entries:
        found = [log.names.fullmatch(one.name) for one in entries]
    return max((int(one[1]) for one in found if one is not None), default=-1)
