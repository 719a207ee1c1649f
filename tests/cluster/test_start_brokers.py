"""`headrace start --brokers 3` as a person uses it: the screen, a death, Ctrl-C, the next start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START = [sys.executable, "-m", "headrace", "start", "--listen", "127.0.0.1:0", "--json"]


class Running:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.ready = json.loads(process.stdout.readline())
        self.pids = {broker["id"]: broker["pid"] for broker in self.ready["brokers"]}

    def until(self, *texts: str) -> None:
        """Until its log has shown each of these, in whichever order."""
        assert self.process.stderr is not None
        missing = set(texts)
        for line in self.process.stderr:
            missing -= {text for text in missing if text in line}
            if not missing:
                return
        raise AssertionError(f"it never said {missing}")


@contextmanager
def started(data: Path, *words: str) -> Iterator[Running]:
    command = [*START, "--data", str(data), *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def test_a_killed_broker_is_told_of_and_comes_back_and_ctrl_c_ends_all(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(data, "--brokers", "3") as running:
        assert [broker["id"] for broker in running.ready["brokers"]] == [1, 2, 3]
        refused = subprocess.run([*START, "--data", str(data)], capture_output=True, text=True)
        assert refused.returncode == 1 and "runs already" in refused.stderr
        os.kill(running.pids[2], signal.SIGKILL)
        running.until("broker 2 | was ended by SIGKILL; it is started again")
        running.until("the controller knows that broker 2 has died", "this broker is unfenced")
        running.process.send_signal(signal.SIGINT)
        assert running.process.stderr is not None
        running.process.stderr.read()
        assert running.process.wait() == 0
    for name in ("data", "data-3"):
        assert (tmp_path / name / ".kafka_cleanshutdown").exists()
    with started(data) as again:
        assert len(again.pids) == 3, "the folder knows how many"
        again.process.terminate()
        again.process.communicate()
