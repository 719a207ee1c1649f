"""One JVM in which many of Apache Kafka's tools are run, one after the other."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.tools import HERE, compiled_java, java_command, kafka_jars


def session_classes() -> Path:
    """The programs of `java/`, compiled."""
    return compiled_java(sorted((HERE / "java").glob("*.java")), f"{kafka_jars()}/*")


class ToolFailed(AssertionError):
    """A tool ended with another code than it should have."""


class JavaSession:
    """Starts on first use; `run` gives what the tool printed."""

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def run(self, main_class: str, *arguments: str, stdin: str = "", code: int | None = 0) -> str:
        """Standard output of `main_class`; it must end with `code` (None: whatever)."""
        answer = self.ask(main_class, *arguments, stdin=stdin)
        if code is not None and answer["code"] != code:
            raise ToolFailed(
                f"{main_class} {' '.join(arguments)} ended with {answer['code']}\n"
                f"{answer['out']}\n{answer['err']}"
            )
        return str(answer["out"])

    def ask(self, main_class: str, *arguments: str, stdin: str = "") -> dict[str, str | int]:
        """Everything a tool answered: its code, its output and its errors."""
        job = {"main": main_class, "args": list(arguments), "stdin": stdin}
        with self._one_at_a_time:
            process = self._running()
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        assert line, f"the JVM ended while it ran {main_class}"
        answer: dict[str, str | int] = json.loads(line)
        return answer

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        return self._process

    def _command(self) -> list[str]:
        # A 50 MB record is held several times over by producer and consumer.
        return java_command("Session", heap="768m", extra=str(session_classes()))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
