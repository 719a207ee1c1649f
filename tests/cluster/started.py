"""`headrace start` as a process for a test: its ready line, its log, its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

START = [sys.executable, "-m", "headrace", "start", "--json"]


class Running:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.ready: dict[str, object] = {}
        self.pids: dict[int, int] = {}
        self.lines: list[str] = []

    def wait_until_ready(self) -> Running:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.rest()
        self.ready = json.loads(line)
        brokers = self.ready.get("brokers", [])
        assert isinstance(brokers, list)
        self.pids = {broker["id"]: broker["pid"] for broker in brokers}
        return self

    @property
    def bootstrap(self) -> str:
        return str(self.ready["address"])

    def until(self, *texts: str) -> None:
        """Until its log has shown each of these, in whichever order."""
        assert self.process.stderr is not None
        missing = set(texts)
        for line in self.process.stderr:
            self.lines.append(line)
            missing -= {text for text in missing if text in line}
            if not missing:
                return
        raise AssertionError(f"it never said {missing}: {''.join(self.lines[-20:])}")

    def rest(self) -> str:
        assert self.process.stderr is not None
        self.lines += list(self.process.stderr)
        return "".join(self.lines[-20:])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.communicate()
        assert self.process.returncode == 0

    def kill_all(self) -> None:
        """kill -9 of the parent and of every node, as when the machine is switched off."""
        os.kill(self.process.pid, signal.SIGSTOP)  # so that it starts none again
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        nodes = [int(pid) for pid in children.read_text().split()]
        for pid in nodes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.communicate()


@contextmanager
def started(data: Path | None, *words: str, listen: str = "127.0.0.1:0") -> Iterator[Running]:
    """Not waited for: `wait_until_ready`. `data` None: the words say where the data lie."""
    where = [] if data is None else ["--data", str(data)]
    command = [*START, *where, "--listen", listen, *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def refusal_of(data: Path, *words: str) -> str:
    """The sentence with which a start refuses."""
    command = [*START, "--listen", "127.0.0.1:0", "--data", str(data), *words]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 1, refused.stdout
    return refused.stderr
