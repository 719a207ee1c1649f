"""The folder where `segment repair` keeps replaced files: one per repair, inside the data folder.

It is in the metadata log's folder: on the same disk as the data, and the only place where Apache
Kafka, which stops at an unknown folder, ignores it.
"""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

from headrace.node.consensus.first_files import METADATA_FOLDER
from headrace.node.process.folders.real_disk import FOLDER_MODE

FOLDER = "set-aside"


class SetAside:
    """Made when the first file is kept."""

    def __init__(self, data: Path, now: datetime | None = None) -> None:
        moment = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
        self._data = data
        folder = data / METADATA_FOLDER / FOLDER
        names = (moment, *(f"{moment}-{number}" for number in range(2, 1_000)))
        # Two repairs within a second must not replace what the first has kept.
        self.folder = next(folder / name for name in names if not (folder / name).exists())

    def move(self, path: Path) -> Path:
        """Move the file here; it is then missing in its place."""
        kept = self._path_for(path)
        os.replace(path, kept)
        return kept

    def copy(self, path: Path) -> Path:
        """Keep a copy of a file that will be changed in place. The kept copy is the state before
        the first repair."""
        kept = self._path_for(path)
        if kept.exists():
            return kept
        shutil.copy2(path, kept)
        with kept.open("rb") as file:
            os.fsync(file.fileno())
        return kept

    def _path_for(self, path: Path) -> Path:
        kept = self.folder / path.relative_to(self._data)
        os.makedirs(kept.parent, mode=FOLDER_MODE, exist_ok=True)
        return kept
