"""What others have built on Kafka's clients, and how these tests start it.

Jars come through Maven and Python packages through pip, each into a folder of its own below
`.cache/`; versions are pinned in `pom.xml` and `requirements.txt` beside this file, and for Spark
in `spark/pom.xml` and the project's `requirements/spark.txt`. `make tools` fills these folders
(`python -m tests.interop.ecosystem`), so that a test finds them whole; a test run on its own fills
what it misses, but for Spark.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.interop.java_session import JavaSession
from tests.interop.tools import (
    CACHE,
    HERE,
    KAFKA_VERSION,
    compiled_java,
    java_command,
    kafka_jars,
    run,
    tool,
)

FOLDER = Path(__file__).parent
FILLED_WITHIN_S = 900.0


@functools.cache
def ecosystem_jars() -> Path:
    """The folder with Kafka Streams, Connect and MirrorMaker."""
    return _jars(FOLDER / "pom.xml", CACHE / "ecosystem-jars" / KAFKA_VERSION)


@functools.cache
def ecosystem_python() -> Path:
    """The Python of an environment that holds the packages of `requirements.txt`."""
    return _environment(FOLDER / "requirements.txt", CACHE / "ecosystem-python")


@functools.cache
def spark_jars() -> Path:
    """The folder with Spark's Kafka connector and what it needs beyond PySpark's own jars."""
    pom = FOLDER / "spark" / "pom.xml"
    return _jars(pom, CACHE / "spark-jars" / _digest(pom))


def spark_python() -> Path:
    """The Python of an environment with PySpark: that of `make pipelines`, for it is large."""
    python = CACHE / "pipelines-python" / "bin" / "python"
    assert python.exists(), "Spark is not there; bring it with: make spark"
    return python


def _jars(pom: Path, folder: Path) -> Path:
    whole = folder / ".whole"  # written last: a broken download is not taken for a good one
    if not whole.exists():
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        run([tool("mvn"), "-q", "-B", "-f", str(pom), *goal], timeout_s=FILLED_WITHIN_S)
        whole.touch()
    return folder


def _environment(wanted: Path, below: Path) -> Path:
    folder = below / f"{sys.version_info.major}.{sys.version_info.minor}-{_digest(wanted)}"
    whole = folder / ".whole"
    if not whole.exists():
        run([sys.executable, "-m", "venv", "--clear", str(folder)])
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input"]
        run([*pip, "-r", str(wanted)], timeout_s=FILLED_WITHIN_S)
        whole.touch()
    return folder / "bin" / "python"


def _digest(wanted: Path) -> str:
    return hashlib.sha256(wanted.read_bytes()).hexdigest()[:12]


def ecosystem_java(main_class: str, *arguments: str, heap: str = "384m") -> list[str]:
    """A JVM that runs a program of Connect or MirrorMaker."""
    return java_command(main_class, *arguments, heap=heap, extra=f"{ecosystem_jars()}/*")


def properties(path: Path, settings: dict[str, str]) -> str:
    """A file of settings as Java's programs read them; its path."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


class EcosystemSession(JavaSession):
    """One JVM that has Kafka Streams and the programs of this folder beside Kafka's tools."""

    def _command(self) -> list[str]:
        extra = f"{ecosystem_classes()}:{ecosystem_jars()}/*"
        return java_command("Session", heap="512m", extra=extra)


def ecosystem_classes() -> Path:
    """The programs of `java/` in this folder, compiled, and what runs them."""
    sources = [HERE / "java" / "Session.java", *sorted((FOLDER / "java").glob("*.java"))]
    return compiled_java(sources, f"{kafka_jars()}/*:{ecosystem_jars()}/*")


@contextlib.contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program in the background, its output in `log`; ended, if need be by force, on leaving."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            # What it has not committed, the next one would do again: by force only if it hangs.
            process.wait(300)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(
    done: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, within_s: float = 300
) -> None:
    """Look again and again until it is done; the program's last words if it never is."""
    deadline = time.monotonic() + within_s
    while not done():
        if process.poll() is not None or time.monotonic() > deadline:
            tail = log.read_text(errors="replace")[-6000:]
            raise AssertionError(f"not done (exit code {process.poll()}):\n{tail}")
        time.sleep(0.1)
