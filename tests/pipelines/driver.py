"""`headrace pipeline run` as a process that tests start, watch, stop and kill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from headrace.pipelines.stream.folder import Folder
from tests.pipelines.orders import MASTER, QUICK

START_WITHIN_S = 400.0


class Driver:
    """Runs the pipeline `name` of `program` in a folder; what it says is kept."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        program: str,
        name: str,
        *,
        master: str = MASTER,
        settings: Mapping[str, str] = QUICK,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "program.py").write_text(program)
        self.at, self.name, self.bootstrap = folder, name, bootstrap
        self.folder = Folder(folder, name)
        self.log = folder / "driver.log"
        self.environment = dict(os.environ if environment is None else environment)
        self.more = ["--master", master, "--bootstrap", bootstrap]
        for key, value in settings.items():
            self.more += ["--spark", f"{key}={value}"]
        self.process: subprocess.Popen[bytes] | None = None
        self.began_at = -1  # the last batch that was done when it was started

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "headrace", "pipeline", *words, "--data", str(self.at)]

    def start(self, *words: str) -> None:
        self.began_at = self.committed()
        command = self.command("run", f"program.py:{self.name}", *self.more, *words)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.at,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def once(self, *words: str) -> None:
        """Everything that is there, to a good end."""
        self.start("--once", *words)
        assert self.process is not None
        code = self.process.wait(START_WITHIN_S * 2)
        assert code == 0, self.said()
        self.process = None

    def ask(self, *words: str) -> str:
        """Another command about the same pipelines."""
        done = subprocess.run(
            self.command(*words), cwd=self.at, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_WITHIN_S
        while not condition():
            assert self.process is not None
            assert self.process.poll() is None, f"ended before: {what}\n{self.said()}"
            assert time.monotonic() < deadline, f"waited too long: {what}\n{self.said()}"
            time.sleep(0.005)

    def wait_for_batches(self, count: int) -> None:
        """So many are done in this life."""
        wanted = self.began_at + count
        self.wait_for(lambda: self.committed() >= wanted, f"{count} batches")

    def wait_until_it_goes_on_or_ends(self, done: int) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_WITHIN_S
        while self.process.poll() is None and self.committed() <= done:
            assert time.monotonic() < deadline, f"neither goes on nor ends\n{self.said()}"
            time.sleep(0.02)

    # ---- where it is

    def committed(self) -> int:
        return _last(self.folder.checkpoint / "commits")

    def is_in_mid_batch(self) -> bool:
        """A batch has been planned and is not done."""
        return _last(self.folder.checkpoint / "offsets") > self.committed()

    def spark(self) -> int | None:
        with contextlib.suppress(FileNotFoundError):
            found = json.loads((self.folder.state / "spark.json").read_text())
            return int(found["process"])
        return None

    # ---- its ends

    def kill(self) -> None:
        """kill -9. Its Spark sees it and ends by itself."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def kill_spark(self) -> int:
        """kill -9 of Spark alone; the driver must end by itself."""
        spark, process = self.spark(), self.process
        assert spark is not None and process is not None
        os.kill(spark, signal.SIGKILL)
        code = process.wait(START_WITHIN_S)
        self.process = None
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def _last(folder: Path) -> int:
    try:
        return max((int(one.name) for one in folder.iterdir() if one.name.isdecimal()), default=-1)
    except FileNotFoundError:
        return -1
