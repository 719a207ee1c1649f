"""Instances of the delay service as processes that can be killed, halted and robbed of their store.

`OwnProcess` is what `headrace delay serve` runs. `ChildOfNode` is the one that `headrace start`
keeps beside itself: it is found below the node, and the node starts it again when it is killed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests import patience
from tests.interop.brokers import Node, _started

PROGRAM = str(Path(sys.executable).with_name("headrace"))
MODULE = "headrace.services.delay.main"
WITHIN_S = 400.0


def wait_until(true: Callable[[], bool], otherwise: str, within_s: float = WITHIN_S) -> None:
    patience.until(true, otherwise, within_s=within_s, every_s=0.05)


class Instance:
    """One of them; `keep_running` is its supervisor."""

    def __init__(self, name: str, store: Path) -> None:
        self.name = name
        self.store = store

    @property
    def pid(self) -> int | None:
        raise NotImplementedError

    def keep_running(self) -> None:
        """Start it if it does not run."""

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def halt(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def rob(self) -> None:
        """kill -9, and its store is gone when it starts again."""
        self.kill()
        shutil.rmtree(self.store, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class OwnProcess(Instance):
    def __init__(self, node: Node, name: str, folder: Path) -> None:
        super().__init__(name, folder / f"store-{name}")
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._command = [
            *(PROGRAM, "delay", "serve", "--bootstrap", node.bootstrap),
            *("--store", str(self.store), "--instance", name),
        ]

    @property
    def pid(self) -> int | None:
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if running and self._process is not None else None

    def keep_running(self) -> None:
        if self.pid is None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            _started.add(self._process)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            _started.discard(self._process)
            self._process = None

    def log_text(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""


class ChildOfNode(Instance):
    def __init__(self, node: Node) -> None:
        super().__init__("child", Path(f"{node.data}-delay"))
        self._node = node

    @property
    def pid(self) -> int | None:
        if not self._node.is_running():
            return None
        for children in Path(f"/proc/{self._node.pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # a thread or a process that has just ended
                for pid in children.read_text().split():
                    if MODULE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                        return int(pid)
        return None


_numbers = itertools.count(1)


def instances_for(node: Node, folder: Path, count: int) -> list[Instance]:
    """So many, with names of their own; on Headrace the first is the node's own child."""
    found: list[Instance] = [ChildOfNode(node)] if node.name == "headrace" else []
    while len(found) < count:
        found.append(OwnProcess(node, f"instance-{next(_numbers)}", folder))
    return found


def run_cli(node: Node, *words: str) -> str:
    """What the command printed; it must succeed."""
    done = subprocess.run(
        [PROGRAM, *words, "--bootstrap", node.bootstrap], capture_output=True, timeout=WITHIN_S
    )
    assert done.returncode == 0, f"{words}: {(done.stdout + done.stderr).decode()}"
    return done.stdout.decode()
