"""An instance of the delay service as a process of its own, ended by its id."""

from __future__ import annotations

import atexit
import contextlib
import http.client
import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.interop.brokers import free_port

# What asking a service may end in that starts, stops or is busy.
NO_ANSWER = (OSError, ValueError, http.client.HTTPException)

_started: set[subprocess.Popen[bytes]] = set()


@atexit.register
def _end_all() -> None:
    for process in _started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


class DelayProcess:
    def __init__(
        self, bootstrap: str, folder: Path, instance: str = "one", group: str = "headrace-delay"
    ) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self.instance = instance
        self.store = folder / f"store-{instance}"
        self.log_path = folder / f"delay-{instance}.log"
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "headrace.services.delay.main"),
            *("--bootstrap", self.bootstrap),
            *("--folder", str(self.store)),
            *("--group", self.group, "--instance", self.instance),
            *("--admin-port", str(self.port)),
        ]

    def start(self) -> DelayProcess:
        assert self.process is None, "already running"
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        _started.add(self.process)
        return self

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._ended()

    def stop(self, within_s: float = 400.0) -> None:
        """SIGTERM, and the clean end that must follow."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(within_s)
        self._ended()
        assert code == 0, f"it ended with {code}:\n{self.log_text()[-3000:]}"

    def halt(self) -> None:
        """As a machine that stands still: SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def wipe_store(self) -> None:
        assert self.process is None, "still running"
        shutil.rmtree(self.store, ignore_errors=True)

    def revive(self) -> None:
        """Start it again if it has ended by itself."""
        if self.process is not None and self.process.poll() is not None:
            self._ended()
            self.start()

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            return json.load(answer)

    def says(self, words: str) -> bool:
        """Whether its numbers hold these words; no while it does not answer."""
        with contextlib.suppress(*NO_ANSWER):
            return words in str(self.ask("/stats"))
        return False

    def wait_for_partitions(self, topic: str, count: int, within_s: float = 400.0) -> None:
        """Until so many partitions of a topic deliver here."""
        deadline = time.monotonic() + within_s
        delivering = -1
        while time.monotonic() < deadline:
            with contextlib.suppress(*NO_ANSWER):
                topics = [each for each in self.ask("/stats")["topics"] if each["topic"] == topic]
                states = [each["state"] for found in topics for each in found["partitions"]]
                delivering = states.count("delivering")
                if delivering == count:
                    return
            time.sleep(0.05)
        raise AssertionError(
            f"{delivering} partitions deliver, not {count}:\n{self.log_text()[-3000:]}"
        )

    def wait_for_a_share(self, within_s: float = 400.0) -> None:
        """Until something delivers here: of which topic is the group's affair."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            with contextlib.suppress(*NO_ANSWER):
                found = [
                    each for topic in self.ask("/stats")["topics"] for each in topic["partitions"]
                ]
                if found and all(each["state"] == "delivering" for each in found):
                    return
            time.sleep(0.05)
        raise AssertionError(f"nothing delivers here:\n{self.log_text()[-3000:]}")

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def _signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def _ended(self) -> None:
        if self.process is not None:
            _started.discard(self.process)
            self.process = None

    def __enter__(self) -> DelayProcess:
        return self.start() if self.process is None else self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, _: object
    ) -> None:
        if failure is not None:
            failure.add_note(self._described())
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.go_on()
            self.kill()

    def _described(self) -> str:
        """For a test that failed: whether it lives, its numbers, and the end of its log."""
        ended = None if self.process is None else self.process.poll()
        numbers: object = None
        with contextlib.suppress(*NO_ANSWER):
            numbers = self.ask("/stats")
        return f"{self.instance}: ended with {ended}, {numbers}\n{self.log_text()[-4000:]}"


class OnAMovedClock(DelayProcess):
    """One whose wall clock is moved by `move_clock`, as somebody sets a machine's clock."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        super().__init__(bootstrap, folder)
        self._moved = folder / "moved-by-ms"
        self.move_clock(timedelta(0))

    def move_clock(self, to: timedelta) -> None:
        """So far from the real time; replaced at once, because it is read all the time."""
        written = self._moved.with_suffix(".new")
        written.write_text(str(to // timedelta(milliseconds=1)))
        written.replace(self._moved)

    def command(self) -> list[str]:
        program = (sys.executable, "-m", "tests.services.delay_on_a_moved_clock")
        return [*program, self.bootstrap, str(self.store), str(self.port), str(self._moved)]
