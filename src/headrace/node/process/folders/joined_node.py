"""What a node has learned when it joined a cluster: `headrace-node.json` in its data folder.

`headrace start --join` writes it before it formats the folder, so a start that was interrupted is
continued, and a later start of the folder needs no `--join`. Its settings are the weakest: those of
options and of a file win. It lies beside `meta.properties`, where Apache Kafka ignores it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headrace.environment import Disk
from headrace.node.process.settings.settings import CannotStart

FILE_NAME = "headrace-node.json"
FORMAT = 1


@dataclass(slots=True)
class JoinedNode:
    cluster_id: str
    node_id: int
    settings: dict[str, str] = field(default_factory=dict)


def read_joined(disk: Disk, data: str) -> JoinedNode | None:
    """None: the folder is new, or its node has not joined by `--join`."""
    path = f"{data}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    try:
        found = json.loads(disk.read_file(path))
        if found["format"] != FORMAT:
            raise CannotStart(f"{path} was written by a newer Headrace (format {found['format']}).")
        return JoinedNode(found["cluster_id"], found["node_id"], dict(found["settings"]))
    except OSError as problem:
        raise CannotStart(f"{path} cannot be read: {problem.strerror}.") from None
    except (ValueError, KeyError, TypeError) as fault:
        raise CannotStart(
            f"{path} cannot be understood: {fault}. Start once more with --join HOST:PORT, which "
            "writes it again."
        ) from fault


def write_joined(disk: Disk, data: str, joined: JoinedNode) -> None:
    path = f"{data}/{FILE_NAME}"
    text = json.dumps({"format": FORMAT, **asdict(joined)}, indent=2)
    try:
        os.makedirs(data, mode=0o700, exist_ok=True)
        disk.write_file(path, [text.encode(), b"\n"])
    except OSError as problem:
        raise CannotStart(f"{path} cannot be written: {problem.strerror}.") from None


def has_joined(data: str) -> bool:
    return Path(data, FILE_NAME).exists()
