"""Log files that are written and rotated while a shipper follows them and is killed; what is lost.

Lines carry a number; some are the head of a traceback, which must come with them as one message.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader

TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1, in x\nKeyError: {n}\n'
KEPT = 6  # rotated files of each name


@dataclass
class LogFiles:
    """`files` names in a folder, rotated by renaming or by copying and emptying."""

    folder: Path
    files: int
    chance: Random
    written: set[str] = field(default_factory=set)
    number: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, which: int) -> Path:
        return self.folder / f"app{which}.log"

    def write(self, lines: int) -> None:
        """In small writes, which end in the middle of lines too."""
        texts: dict[int, list[str]] = {}
        for _ in range(lines):
            which = self.chance.randrange(self.files)
            texts.setdefault(which, []).append(self._message(which))
        for which, own in texts.items():
            data = "".join(own).encode()
            half = self.chance.randrange(len(data))
            with self.path(which).open("ab", buffering=0) as file:
                file.write(data[:half])
                file.write(data[half:])

    def _message(self, which: int) -> str:
        n = self.number = self.number + 1
        trace = TRACE.format(n=n) if self.chance.random() < 0.02 else ""
        message = f"{'ERROR' if trace else 'INFO'} app{which}: number {n}\n{trace}"
        self.written.add(message.rstrip())
        return f"2026-01-01 10:00:{n % 60:02d},{n % 1000:03d} {message}"

    def rotate(self, which: int, *, copies: bool) -> None:
        """app.log -> app.log.1 -> app.log.2 ...; what is older than KEPT stays: nothing is lost."""
        path = self.path(which)
        if not path.exists():
            return
        for old in range(self.number_of_rotated(which), 0, -1):
            path.with_name(f"{path.name}.{old}").rename(path.with_name(f"{path.name}.{old + 1}"))
        first = path.with_name(f"{path.name}.1")
        if copies:
            shutil.copyfile(path, first)
            os.truncate(path, 0)
        else:
            path.rename(first)

    def number_of_rotated(self, which: int) -> int:
        path, count = self.path(which), 0
        while path.with_name(f"{path.name}.{count + 1}").exists():
            count += 1
        return count


class ShipperProcess:
    """`headrace ship logs` as a process, ended by its id."""

    def __init__(self, bootstrap: str, patterns: list[str], state: Path, log: Path) -> None:
        self.command = [
            *(sys.executable, "-m", "headrace", "ship", "logs", *patterns),
            *("--bootstrap", bootstrap, "--state", str(state), "--host", "test"),
        ]
        self.state, self.log = state, log
        self.process: subprocess.Popen[bytes] | None = None
        self._kept_before = 0.0

    def start(self, *more: str) -> None:
        self._kept_before = self.kept()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, *more], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def once(self, within_s: float = 300) -> None:
        """To the end of all files, and a good end."""
        self.start("--once")
        assert self.process is not None
        assert self.process.wait(within_s) == 0, self.log.read_text()[-3000:]
        self.process = None

    def kept(self) -> float:
        """When positions were kept last."""
        with contextlib.suppress(FileNotFoundError):
            return (self.state / "positions.json").stat().st_mtime_ns
        return 0

    def wait_until_it_keeps(self, within_s: float = 400) -> None:
        """Positions, since it was started."""
        deadline = time.monotonic() + within_s
        while self.kept() == self._kept_before:
            assert self.process is not None and self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, "positions are not kept"
            time.sleep(0.01)


def shipped(bootstrap: str, topic: str) -> list[tuple[str, str]]:
    """The ids and messages of all records."""
    found = []
    reader = RecordReader(ClientSettings({"bootstrap.servers": bootstrap}), topic)
    for record in reader.records():
        value = json.loads(record.value or b"")
        assert dict(record.headers)["headrace-message-id"] == value["id"].encode()
        found.append((value["id"], value["message"]))
    reader.close()
    return found
