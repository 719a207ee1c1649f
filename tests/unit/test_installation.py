"""A missing package is answered with a command that works in this installation."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from headrace.installation import command_to_add, how_to_add

ROOT = Path(__file__).resolve().parents[2]


class Installed(metadata.Distribution):
    """As pip leaves it behind: two files of the dist-info folder."""

    def __init__(self, direct_url: dict[str, object] | None) -> None:
        self._files = {
            "METADATA": "Name: headrace\nVersion: 0.1.0\n"
            "Requires-Dist: crc32c>=2.7\n"
            'Requires-Dist: pydantic>=2.10; extra == "app"\n'
            'Requires-Dist: sqlalchemy[asyncio]>=2.0.30; extra == "sql"\n'
        }
        if direct_url is not None:
            self._files["direct_url.json"] = json.dumps(direct_url)

    def read_text(self, filename: str) -> str | None:
        return self._files.get(filename)

    def locate_file(self, path: object) -> Path:
        raise NotImplementedError


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "my shop").mkdir()
    (tmp_path / "my shop" / "Makefile").touch()
    return tmp_path / "my shop"


def installed_as(monkeypatch: pytest.MonkeyPatch, direct_url: dict[str, object] | None) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda name: Installed(direct_url))


def editable(checkout: Path) -> dict[str, object]:
    return {"url": checkout.as_uri(), "dir_info": {"editable": True}}


def test_in_the_environment_of_make_setup_make_installs_the_locked_versions(
    monkeypatch: pytest.MonkeyPatch, checkout: Path
) -> None:
    installed_as(monkeypatch, editable(checkout))
    monkeypatch.setattr(sys, "prefix", str(checkout / ".venv"))
    assert command_to_add("sql") == f"make -C '{checkout}' setup"
    assert command_to_add("spark") == f"make -C '{checkout}' setup-spark"


def test_in_another_environment_pip_installs_what_the_extra_names(
    monkeypatch: pytest.MonkeyPatch, checkout: Path
) -> None:
    installed_as(monkeypatch, editable(checkout))
    assert command_to_add("sql") == (
        f"{sys.executable} -m pip install 'sqlalchemy[asyncio]>=2.0.30'"
    )


def test_a_wheel_needs_no_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    installed_as(monkeypatch, None)
    assert command_to_add("app") == f"{sys.executable} -m pip install 'pydantic>=2.10'"


def test_where_uv_made_the_environment_uv_installs(monkeypatch: pytest.MonkeyPatch) -> None:
    installed_as(monkeypatch, None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert command_to_add("app") == f"uv pip install --python {sys.executable} 'pydantic>=2.10'"


def test_the_sentence_names_what_needs_the_package_and_ends_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed_as(monkeypatch, None)
    assert how_to_add("Values of type Order need", "pydantic", "app") == (
        "Values of type Order need pydantic, not installed here. "
        f"To install: {sys.executable} -m pip install 'pydantic>=2.10'"
    )


def test_every_extra_that_a_sentence_names_is_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for file in (ROOT / "src" / "headrace").rglob("*.py"):
        for named in re.findall(r'(?s)how_to_add\([^()]*?"(\w+)"\s*\)', file.read_text("utf-8")):
            assert named in declared["optional-dependencies"], (file, named)


def test_the_base_install_stays_small() -> None:
    """Each of these was weighed: docs/guide/install.md. What only some people need is an extra."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [re.split("[<>=]", line)[0] for line in declared["dependencies"]] == [
        *("crc32c", "cramjam", "google-re2", "xxhash"),
        *("confluent-kafka", "typer", "rich"),
        *("cronsim", "tzdata"),
    ]
