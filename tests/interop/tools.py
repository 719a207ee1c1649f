"""The programs of other people that these tests run, and Apache Kafka's jars.

A missing tool is a failure with the name of what to install, never a skip: a run that silently left
out half its checks would look the same as a good one. Jars and modules are brought by name through
each language's own package tool into `.cache/`, which git ignores.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
CACHE = PROJECT / ".cache"
KAFKA_VERSION = "4.3.1"

PACKAGES = {
    "java": "openjdk-17-jdk-headless",
    "javac": "openjdk-17-jdk-headless",
    "mvn": "maven",
    "go": "golang (1.26, or an older one that may fetch it)",
    "node": "nodejs",
    "npm": "npm",
    "kcat": "kcat",
}

# Small and quick: the tools run for a second each, so compiling them well costs more than it gives.
# Java's own log would say on standard output that an archive of classes is another JVM's.
JVM_FLAGS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Xlog:disable",
)


class MissingTool(Exception):
    """A program that these tests need is not installed."""


def tool(name: str) -> str:
    """The full path of a program, or a failure that says what to install."""
    path = shutil.which(name)
    if path is None:
        raise MissingTool(f"{name} is not installed; these tests need the package {PACKAGES[name]}")
    return path


def run(command: list[str], *, cwd: Path | None = None, timeout_s: float = 300) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode != 0:
        raise AssertionError(
            f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
    return done.stdout


@functools.cache
def kafka_jars() -> Path:
    """The folder with Apache Kafka's jars; Maven fills it the first time (54 MB)."""
    given = os.environ.get("HEADRACE_KAFKA_JARS")
    folder = Path(given) if given else CACHE / "kafka-jars" / KAFKA_VERSION
    whole = folder / ".whole"  # written last, so that a broken download is not taken for a good one
    if not given and not whole.exists():
        pom = str(HERE / "apache" / "pom.xml")
        goal = "dependency:copy-dependencies"
        run([tool("mvn"), "-q", "-B", "-f", pom, goal, f"-DoutputDirectory={folder}"])
        whole.touch()
    return folder


@functools.cache
def class_archive_path() -> Path:
    """Where `class_archive.py` puts its archive for this Java and these jars."""
    java = Path(tool("java")).resolve()
    made_for = f"{java} {java.stat().st_mtime_ns} {kafka_jars()}"
    return CACHE / "class-archives" / f"{hashlib.sha256(made_for.encode()).hexdigest()[:12]}.jsa"


def built_go_program() -> Path:
    """The program on Go's client; it appears whole, also if others build it at the same time."""
    binary = CACHE / "interop" / "go-client"
    sources = [*(HERE / "go").glob("*.go"), *(HERE / "go").glob("go.*")]
    newest = max(source.stat().st_mtime for source in sources)
    if not binary.exists() or binary.stat().st_mtime < newest:
        part = binary.with_name(f"go-client.{os.getpid()}")
        run([tool("go"), "build", "-o", str(part), "."], cwd=HERE / "go", timeout_s=600)
        part.replace(binary)
    return binary


def compiled_java(sources: list[Path], class_path: str) -> Path:
    """The folder with their classes; compiled once, also if several processes want them at once."""
    made_from = b"".join(path.read_bytes() for path in sources) + class_path.encode()
    folder = CACHE / "interop" / f"java-{hashlib.sha256(made_from).hexdigest()[:12]}"
    if not folder.exists():
        part = folder.with_name(f"{folder.name}.{os.getpid()}")
        part.mkdir(parents=True, exist_ok=True)
        run([tool("javac"), "-cp", class_path, "-d", str(part), *map(str, sources)])
        try:
            part.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(part)
    return folder


def installed_node_program() -> Path:
    """The folder of the program on Node's client, with its modules."""
    folder = HERE / "node"
    installed, wanted = folder / "node_modules/.package-lock.json", folder / "package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < wanted.stat().st_mtime:
        run([tool("npm"), "ci", "--no-audit", "--no-fund"], cwd=folder)
    return folder


def java_command(
    main_class: str, *arguments: str, heap: str = "192m", extra: str = ""
) -> list[str]:
    """A JVM with Kafka's jars that runs `main_class`; quiet unless something is wrong."""
    class_path = f"{kafka_jars()}/*" + (f":{extra}" if extra else "")
    log_settings = HERE / "apache" / "log4j2.xml"
    archive = class_archive_path()
    return [
        tool("java"),
        f"-Xmx{heap}",
        *JVM_FLAGS,
        *([f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []),
        f"-Dlog4j2.configurationFile={log_settings}",
        "-cp",
        class_path,
        main_class,
        *arguments,
    ]
