"""The first start of Spark brings its jars: once, whole, as pinned, or with a reason why not.

Spark's resolver is played by a small program, so that no network and no Java are needed here.
"""

from __future__ import annotations

import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from headrace.pipelines.failure import PipelineError
from headrace.pipelines.spark import jars

# Leaves a trace of each run, and is not quick: others come meanwhile.
RESOLVER = """
import pathlib, sys, time, uuid
aside, runs, text = sys.argv[1:]
(pathlib.Path(runs) / uuid.uuid4().hex).touch()
folder = pathlib.Path(aside) / "jars"
folder.mkdir()
time.sleep(0.3)
(folder / "a.jar").write_text(text)
"""
AWAY = """:: loading settings :: url = jar:file:/ivysettings.xml
:: problems summary ::
:::: WARNINGS
\t\tmodule not found: org.postgresql#postgresql;42.7.8
:::: ERRORS
\tServer access error at url https://maven/a.pom (java.net.UnknownHostException: maven)
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: a#b;1: not found]
"""
NOT_THERE = """:: problems summary ::
\t\tmodule not found: org.postgresql#postgresql;42.7.8
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: a#b;1: not found]
"""


class Resolver:
    """Spark's resolver as a program that writes one jar."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.runs = folder / "runs"
        self.runs.mkdir()
        self.brings("good")
        patch.setattr(jars, "sums", lambda: {"a.jar": hashlib.sha256(b"good").hexdigest()})
        patch.setattr(jars, "resolver", lambda aside: [*self.command(str(aside))])

    def command(self, aside: str) -> list[str]:
        return [sys.executable, "-c", self.program, aside, str(self.runs), self.text]

    def brings(self, text: str, program: str = RESOLVER) -> None:
        self.text, self.program = text, program

    @property
    def ran(self) -> int:
        return len(list(self.runs.iterdir()))


@pytest.fixture
def resolver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resolver:
    return Resolver(tmp_path, monkeypatch)


def test_several_first_starts_bring_the_jars_once(resolver: Resolver, tmp_path: Path) -> None:
    cache, starts = tmp_path / "cache", 4
    together = Barrier(starts)
    notes: list[str] = []

    def start(_: int) -> list[Path]:
        together.wait(60)
        return jars.jars(cache, notes.append)

    with ThreadPoolExecutor(starts) as pool:
        found = list(pool.map(start, range(starts)))
    folder = jars.folder_below(cache)
    assert found == [[folder / "a.jar"]] * starts
    assert [path.name for path in folder.rglob("*")] == ["a.jar"]
    assert resolver.ran == 1
    [note] = notes
    assert str(folder) in note
    left = {path.name for path in cache.iterdir()} - {folder.name}
    assert left == {folder.with_suffix(".lock").name}


def test_what_is_there_is_not_brought_again(resolver: Resolver, tmp_path: Path) -> None:
    for _ in range(2):
        jars.jars(tmp_path / "cache")
    assert resolver.ran == 1


def test_a_wrong_jar_does_not_get_into_the_cache(resolver: Resolver, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    resolver.brings("evil")
    with pytest.raises(PipelineError, match="a.jar is not the file that was pinned"):
        jars.jars(cache)
    assert not jars.folder_below(cache).exists()
    resolver.brings("good")
    assert jars.jars(cache)


def test_what_a_killed_start_left_is_removed(resolver: Resolver, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    half = jars.folder_below(cache).with_suffix(".part")
    (half / "jars").mkdir(parents=True)
    (half / "jars" / "half.jar").touch()
    [jar] = jars.jars(cache)
    assert [path.name for path in jar.parent.iterdir()] == ["a.jar"]
    assert not half.exists()


def test_without_a_network_it_is_said_what_to_do(resolver: Resolver, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    resolver.brings(AWAY, "import sys; sys.exit(sys.argv[3])")
    with pytest.raises(PipelineError, match="the first run needs the network") as failure:
        jars.jars(cache)
    assert "java.net.UnknownHostException: maven" in str(failure.value)
    assert f"copy {jars.folder_below(cache)} from a machine that has it" in str(failure.value)
    resolver.brings(NOT_THERE, "import sys; sys.exit(sys.argv[3])")
    with pytest.raises(PipelineError, match=r"could not bring its jars .*unresolved dependency"):
        jars.jars(cache)
