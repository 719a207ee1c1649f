"""The wheel is whole, and its base install is enough: a node, the command line, a client, the
broker for tests. What an extra would bring is asked for with the command that installs it."""

from __future__ import annotations

import os
import subprocess
import sys
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest

from release import base_install
from tests.interop.brokers import HeadraceNode

ROOT = Path(__file__).resolve().parents[2]
# Loads every command and every public name, as far as the base install goes.
LOADED = """
from headrace.cli.failure import Failure
from headrace.cli.main import COMMANDS, command_of
import headrace
for name in COMMANDS:
    try:
        command_of(name)
    except Failure as failure:
        print(f"{name}: {failure}")
for name in headrace.CLIENT_NAMES:
    getattr(headrace, name)
"""
TESTED = """
from headrace.testing import Broker
with Broker() as broker:
    print(broker.bootstrap)
try:
    Broker(delay=True).start()
except RuntimeError as refusal:
    print(refusal)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = tmp_path_factory.mktemp("build")
    pip = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(build), "."], cwd=ROOT, check=True)
    (built,) = build.glob("headrace-*-py3-none-any.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return base_install.make(wheel, tmp_path_factory.mktemp("shop"))


class InstalledNode(HeadraceNode):
    def __init__(self, folder: Path, python: Path) -> None:
        super().__init__(folder)
        self._python = python

    def command(self) -> list[str]:
        return [str(self._python.with_name("headrace")), *super().command()[1:]]


def say(python: Path, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(python), *words], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_a_node_runs_from_the_wheel_alone(tmp_path: Path, python: Path) -> None:
    where = say(python, "-c", "import headrace; print(headrace.__file__)", folder=tmp_path)
    assert where.stdout.startswith(str(python.parents[1]))
    helped = say(python, "-m", "headrace", "--help", folder=tmp_path)
    assert helped.returncode == 0 and "start" in helped.stdout
    with InstalledNode(tmp_path / "node", python) as node:
        headrace = [str(python.with_name("headrace"))]
        at = ["--bootstrap", node.bootstrap]
        subprocess.run([*headrace, "topics", "create", "tea", *at], check=True)
        subprocess.run([*headrace, "produce", "tea", *at], input=b"green\n", check=True)
        read = subprocess.run([*headrace, "consume", "tea", *at], capture_output=True, check=True)
        assert read.stdout == b"green\n"


def test_what_the_base_install_lacks_is_asked_for_with_a_command(
    tmp_path: Path, python: Path
) -> None:
    loaded = say(python, "-c", LOADED, folder=tmp_path)
    assert loaded.returncode == 0, loaded.stderr
    lines = loaded.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["triggers"]
    assert lines[0].endswith("'pydantic>=2.10' 'aiohttp>=3.11' 'opentelemetry-api>=1.30'")
    for words, missing in (
        (["console"], "'aiohttp>=3.11' 'jinja2>=3.1'"),
        (["demo"], "'sqlalchemy[asyncio]>=2.0.30'"),
        (["http"], "'aiohttp>=3.12'"),
        (["security", "init"], "'cryptography>=44' 'pyjwt>=2.10'"),
        (["ship", "metrics", "--topic", "numbers"], "'psutil>=6'"),
        (["delay", "serve", "--bootstrap", "127.0.0.1:1"], "'rocksdict>=0.3.29'"),
    ):
        refused = say(python, "-m", "headrace", *words, folder=tmp_path)
        assert refused.returncode == 1, (words, refused)
        assert "not installed here. To install: " in refused.stderr, (words, refused.stderr)
        assert refused.stderr.strip().endswith(missing), (words, refused.stderr)


def test_the_broker_for_tests_needs_no_extra(tmp_path: Path, python: Path) -> None:
    said = say(python, "-c", TESTED, folder=tmp_path)
    assert said.returncode == 0, said.stderr
    address, refused = said.stdout.splitlines()
    assert address.startswith("127.0.0.1:")
    assert refused.startswith("Broker(delay=True) needs rocksdict, not installed here.")


def test_an_index_can_show_the_page_of_the_wheel(wheel: Path) -> None:
    """Links into the repository would lead nowhere there, and pictures would be missing."""
    with ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        page = HeaderParser().parsestr(archive.read(name).decode())
    assert page["Description-Content-Type"] == "text/markdown"
    text = str(page.get_payload())
    assert text.startswith("# Headrace")
    assert "](" not in text and "<img" not in text and "<!--" not in text
    for extra in page.get_all("Provides-Extra"):
        assert f"| `{extra}` |" in text
