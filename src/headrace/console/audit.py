"""The audit of the console: changes and users, in files of JSON lines, the newest in memory, and
the log.

Every change is noted when it is done, and when it was refused. Values of messages and passwords are
never part of it. A file is bounded: at LARGEST_FILE_BYTES it becomes the one before, `.1`. Logins
have a file of their own: any client can fail to log in as often as it likes, and must not push out
the entries about changes.
"""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headrace.private_files import FILE_MODE, private_folder

log = logging.getLogger("headrace.console.audit")

LARGEST_FILE_BYTES = 8 << 20
READ_AT_START_BYTES = 256 << 10
MOST_REMEMBERED = 1_000
LONGEST_TEXT = 500
LONGEST_NAME = 200  # of a user name, and of a path: any client may send either
CHANGES, LOGINS = "audit.jsonl", "logins.jsonl"
LOGIN_PATH = "/login"


@dataclass(slots=True)
class Change:
    at_ms: int
    person: str
    address: str  # where the browser is
    path: str  # of the form
    what: str  # the text that the page showed, cut
    done: bool
    cluster: str = ""  # its id, or its address if no broker has sent the id; "" in older lines


@dataclass(slots=True)
class Audit:
    wall_ms: Callable[[], int]
    folder: Path | None = None  # None: only in memory and in the log
    problem: str = ""  # why the file could not be written
    _changes: deque[Change] = field(default_factory=lambda: deque(maxlen=MOST_REMEMBERED))
    _logins: deque[Change] = field(default_factory=lambda: deque(maxlen=MOST_REMEMBERED))

    def __post_init__(self) -> None:
        if self.folder is not None:
            self._changes.extend(_read(self.folder / CHANGES))
            self._logins.extend(_read(self.folder / LOGINS))

    @property
    def recent(self) -> list[Change]:
        """Returns the entries, the oldest first."""
        return sorted((*self._logins, *self._changes), key=lambda change: change.at_ms)

    def note(
        self, person: str, address: str, path: str, what: str, *, done: bool, cluster: str
    ) -> None:
        """Notes a change. Never raises: the change has already been made."""
        person, path = person[:LONGEST_NAME], path[:LONGEST_NAME]
        change = Change(self.wall_ms(), person, address, path, what[:LONGEST_TEXT], done, cluster)
        (self._logins if path == LOGIN_PATH else self._changes).append(change)
        line = json.dumps(asdict(change))
        log.info("%s", line)
        if self.folder is not None:
            self._write(self.folder / (LOGINS if path == LOGIN_PATH else CHANGES), line)

    def _write(self, path: Path, line: str) -> None:
        try:
            private_folder(path.parent)
            if path.exists() and path.stat().st_size > LARGEST_FILE_BYTES:
                path.replace(path.with_suffix(".jsonl.1"))
            number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
            with os.fdopen(number, "a", encoding="utf-8") as file:
                file.write(line + "\n")
            self.problem = ""
        except OSError as failure:
            if not self.problem:
                log.warning("the audit cannot be written to %s: %s", path, failure)
            self.problem = f"The audit cannot be written to {path}: {failure.strerror}."


def _read(path: Path) -> list[Change]:
    """Reads the end of the file; lines that cannot be parsed are left out."""
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - READ_AT_START_BYTES, 0))
            lines = file.read().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            found.append(Change(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found
