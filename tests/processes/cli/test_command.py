"""The command as a person meets it: help, wrong use, failure in one sentence, what it loads."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from importlib import import_module

import pytest

from headrace.cli.main import COMMANDS, module_of


def headrace(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


def free_address() -> str:
    """An address at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def test_help_lists_every_command() -> None:
    said = headrace("--help")
    assert said.returncode == 0
    for name, words in COMMANDS.items():
        assert name in said.stdout
        assert words in said.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_module_and_json(name: str) -> None:
    import typer.main

    command = typer.main.get_command(import_module(module_of(name)).app)
    leaves = getattr(command, "commands", {name: command})
    for leaf in leaves.values():
        assert any("--json" in parameter.opts for parameter in leaf.params), leaf.name


def test_wrong_use_ends_with_2_and_says_how() -> None:
    for words in (
        ["no-such-command"],
        ["produce"],
        ["consume", "t", "--from", "nowhere"],
        ["topics", "list", "-X", "linger.ms"],
        ["topics", "create", "t", "--config", "=5"],
        ["produce", "t", "-H", "trace"],
    ):
        said = headrace(*words)
        assert said.returncode == 2
        assert "Usage:" in said.stderr
        assert "Traceback" not in said.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["topics", "list"],
        ["topics", "create", "orders"],
        ["produce", "orders"],
        ["consume", "orders"],
    ],
)
def test_nobody_answers_is_one_sentence(words: list[str]) -> None:
    address = free_address()
    said = headrace(*words, "--bootstrap", address, stdin="x\n")
    assert said.returncode == 1
    assert said.stdout == ""
    assert said.stderr == (
        f"headrace: No Kafka broker answers at {address}. "
        "Start one with `headrace start`, or name yours with --bootstrap.\n"
    )


def test_a_bad_client_setting_is_one_sentence() -> None:
    said = headrace("topics", "list", "-X", "no.such.setting=1")
    assert said.returncode == 1
    assert said.stderr.count("\n") == 1
    assert "no.such.setting" in said.stderr


def test_the_doctor_answers_in_json_and_knows_that_nothing_listens() -> None:
    said = headrace("doctor", "--json", "--bootstrap", free_address())
    findings = {finding["about"]: finding for finding in json.loads(said.stdout)}
    assert said.returncode == 1
    assert findings["cluster"]["state"] == "wrong"
    assert findings["python"]["state"] == "good"


def loaded_by(*words: str) -> set[str]:
    """The modules in memory after a command has shown its help."""
    script = (
        "import sys, headrace.cli.main as m\n"
        f"sys.argv = ['headrace', *{words!r}]\n"
        "try:\n    m.run()\n"
        "except SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stderr.splitlines())


def test_help_loads_no_command_no_client_and_no_rich() -> None:
    loaded = loaded_by("--help")
    assert "headrace.cli.main" in loaded
    assert not loaded & {"confluent_kafka", "headrace.cli.topics", "rich", "pydantic", "asyncio"}


def test_importing_the_package_loads_nothing_else() -> None:
    script = (
        "import sys; before = set(sys.modules); import headrace; print(set(sys.modules)-before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "{'headrace'}"
