"""docs/guide/command-line.md names every command and option, and none that is not there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer.main

from headrace.cli.main import COMMANDS, module_of

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "command-line.md"
# The guide says these once for all, at its beginning.
OF_ALL = {
    "--json",
    "--bootstrap",
    "--client-config",
    "--timeout",
    "--help",
    "--profile",
    "--dry-run",
}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def sections() -> dict[str, str]:
    """A command -> what the guide says in the section that has it in its heading."""
    found: dict[str, str] = {}
    for part in re.split(r"^## ", GUIDE.read_text("utf-8"), flags=re.M)[1:]:
        heading, _, text = part.partition("\n")
        for name in re.split(r", | ", heading):
            if name in COMMANDS:
                found[name] = text
    return found


def commands_of(name: str) -> dict[str, Any]:
    command = typer.main.get_command(import_module(module_of(name)).app)
    return dict(getattr(command, "commands", None) or {"": command})


def options_of(command: Any) -> set[str]:
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    words = {opt for each in shown for opt in (*each.opts, *each.secondary_opts)}
    return {word for word in words if word.startswith("--")}


def test_every_command_has_a_section() -> None:
    assert set(sections()) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_guide_names_every_command_and_option_of(name: str) -> None:
    text = sections()[name]
    for leaf, command in commands_of(name).items():
        assert re.search(rf"\b{leaf}\b", text), leaf
        missing = options_of(command) - OF_ALL - set(OPTION.findall(text))
        assert not missing, (leaf, missing)


def test_the_guide_names_no_option_that_is_not_there() -> None:
    """Of any command that shares the section."""
    by_text: dict[str, set[str]] = {}
    for name, text in sections().items():
        named = {name, *(set(re.findall(r"`headrace ([a-z-]+)", text)) & set(COMMANDS))}
        for each in named:
            known = set().union(*(options_of(leaf) for leaf in commands_of(each).values()))
            by_text[text] = by_text.get(text, set()) | known
    for text, known in by_text.items():
        assert not set(OPTION.findall(text)) - known - OF_ALL, text[:60]
