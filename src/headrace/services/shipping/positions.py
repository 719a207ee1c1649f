"""The state folder of a shipper: its positions in one file, written whole, and a lock.

A kill leaves the old file or the new one. A file that cannot be read is never taken for an empty
one: everything would be sent again under other ids.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from headrace.private_files import FILE_MODE, private_folder
from headrace.services.shipping.followed import Position, position_of

FILE, LOCK, VERSION = "positions.json", "lock", 1
NAMES = tuple(one.name for one in fields(Position))
Target = dict[str, str]  # what the lines of the positions were written to: topic and cluster


class StateError(Exception):
    """The folder cannot be used; the text says why and what to do."""


class StateFolder:
    """Held by one process at a time. Positions belong to a topic of a cluster: elsewhere, what they
    say was shipped is not there. `adopts` takes those of another one all the same."""

    def __init__(self, path: Path, target: Target | None = None, *, adopts: bool = False) -> None:
        self.path, self.target, self._adopts = path, target or {}, adopts
        try:
            private_folder(path)
            self._lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as failure:
            raise StateError(
                f"The state folder {path} cannot be used: {failure.strerror}. Name another one "
                "with --state."
            ) from failure
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise StateError(
                f"Another shipper uses the state folder {path}: give each its own with --state."
            ) from None

    def load(self) -> list[Position]:
        file = self.path / FILE
        try:
            document = json.loads(file.read_bytes())
            if document["version"] != VERSION:
                raise ValueError(f"it has version {document['version']}")
            positions = [position_of(one) for one in document["files"]]
            self._must_be_ours(document.get("target", {}))
            return positions
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as failure:
            raise StateError(
                f"{file} cannot be read ({failure}). Move it away to ship all files from their "
                "beginning, under new ids."
            ) from failure

    def _must_be_ours(self, kept: Target) -> None:
        if self._adopts:
            return
        for name, ours in self.target.items():
            if ours and kept.get(name, ours) != ours:
                raise StateError(
                    f"The positions in {self.path} are those of {name} {kept[name]}, and this is "
                    f"{name} {ours}, which does not have what they say is shipped. Name another "
                    "folder with --state to ship all files to it, or give --adopt to continue from "
                    "these positions."
                )

    def save(self, positions: Iterable[Position]) -> None:
        """Writes the positions; they are on disk when it returns."""
        files = [{name: getattr(one, name) for name in NAMES} for one in positions]
        document = {"version": VERSION, "target": self.target, "files": files}
        new = self.path / f"{FILE}.new"
        try:
            with new.open("w") as file:
                json.dump(document, file)
                file.flush()
                os.fsync(file.fileno())
            new.rename(self.path / FILE)
            folder = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as failure:
            raise StateError(
                f"The positions cannot be kept in {self.path}: {failure.strerror}. Nothing is sent "
                "before they are."
            ) from failure

    def close(self) -> None:
        os.close(self._lock)
