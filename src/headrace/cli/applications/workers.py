"""Processes that run the same command, watched over: started again when they die or files change.

A worker that dies soon after its start is waited for longer and longer, so a broken app does not
turn in circles. On SIGTERM or SIGINT all are told to stop and waited for.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.cli import output
from headrace.cli.failure import Failure

LOOK_EVERY_S = 0.25
FIRST_REST_S = 0.5
LONGEST_REST_S = 30.0
# A worker that ran for so long had started well: its next rest is short again.
STARTED_WELL_S = 60.0
STOP_S = 60.0
NOT_WATCHED = frozenset({"node_modules", "__pycache__"})


@dataclass(slots=True)
class Worker:
    number: int
    process: subprocess.Popen[bytes]
    started_at: float


class Workers:
    def __init__(
        self, arguments: Sequence[str], *, count: int, parent_variable: str, reload: bool
    ) -> None:
        self._arguments = list(arguments)
        self._count = count
        self._parent_variable = parent_variable
        self._reload = reload
        self._told = threading.Event()
        self._theirs, self._ours = os.pipe()  # ends with this process: workers see that
        self._rest_s = dict.fromkeys(range(count), FIRST_REST_S)
        self._again_at: dict[int, float] = {}
        self._workers: dict[int, Worker] = {}

    def run(self) -> None:
        """Until told to stop."""
        for told in (signal.SIGINT, signal.SIGTERM):
            signal.signal(told, lambda *_: self._told.set())
        seen = self._files()
        for number in range(self._count):
            self._start(number)
        while not self._told.wait(LOOK_EVERY_S):
            self._look_after()
            if self._reload and (now := self._files()) != seen:
                seen = now
                output.note("A file has changed; restarting.")
                self._stop_all()
                for number in range(self._count):
                    self._start(number)
        self._stop_all()

    def _start(self, number: int) -> None:
        self._again_at.pop(number, None)
        environment = {
            **os.environ,
            self._parent_variable: str(self._theirs),
            "HEADRACE_APP_WORKER": str(number),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", *self._arguments],
            env=environment,
            pass_fds=[self._theirs],
            start_new_session=True,  # Ctrl-C comes to us alone, and we pass it on once
        )
        self._workers[number] = Worker(number, process, time.monotonic())

    def _look_after(self) -> None:
        now = time.monotonic()
        for worker in list(self._workers.values()):
            if worker.process.poll() is None:
                continue
            del self._workers[worker.number]
            if now - worker.started_at > STARTED_WELL_S:
                self._rest_s[worker.number] = FIRST_REST_S
            rest_s = self._rest_s[worker.number]
            self._rest_s[worker.number] = min(rest_s * 2, LONGEST_REST_S)
            self._again_at[worker.number] = now + rest_s
            said = f"Worker {worker.number} ended with {worker.process.returncode}"
            output.note(f"{said}; starting it again in {rest_s:g} s.")
        for number, when in list(self._again_at.items()):
            if now >= when:
                self._start(number)

    def _stop_all(self) -> None:
        for worker in self._workers.values():
            if worker.process.poll() is None:
                worker.process.terminate()
        late = [w for w in self._workers.values() if not _ended(w.process, STOP_S)]
        for worker in late:
            worker.process.kill()
            worker.process.wait()
        self._workers.clear()
        if late:
            raise Failure(f"{output.count(len(late), 'worker')} did not stop and had to be killed.")

    def _files(self) -> dict[str, int]:
        if not self._reload:
            return {}
        found = {}
        for path in python_files(Path.cwd()):
            with suppress(FileNotFoundError):  # an editor may be replacing it
                found[str(path)] = path.stat().st_mtime_ns
        return found


def _ended(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def python_files(folder: Path) -> Iterator[Path]:
    """The files of a project, without virtual environments and hidden folders."""
    for root, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in NOT_WATCHED
            and not (Path(root) / name / "pyvenv.cfg").exists()
        ]
        yield from (Path(root) / name for name in files if name.endswith(".py"))
