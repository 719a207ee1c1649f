"""The command as a person meets it: help, wrong use, failure in one sentence.

Needs no cluster: tests/sockets/cli has what happens without one, tests/processes/cli what a
process of its own shows.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from headrace.cli.main import COMMANDS, PURPOSES, command_of
from tests.command_in_process import run_command


def test_help_lists_every_command() -> None:
    said = run_command("--help")
    assert said.returncode == 0
    for name, words in COMMANDS.items():
        assert name in said.stdout
        assert words in said.stdout


def test_help_groups_every_command_by_purpose_with_an_example() -> None:
    grouped = [name for names, _ in PURPOSES.values() for name in names]
    assert sorted(grouped) == sorted(COMMANDS)
    said = run_command("--help").stdout
    assert said.count("Example: ") == len(PURPOSES)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_summary_is_cut(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    leaves = getattr(command_of(name), "commands", {})
    said = " ".join(run_command(name, "--help").stdout.split())
    for leaf in leaves.values():
        first = " ".join((leaf.help or "").split("\n\n")[0].split()).partition(". ")[0]
        assert first.removesuffix(".") in said


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_module_and_json(name: str) -> None:
    command = command_of(name)
    leaves = getattr(command, "commands", {name: command})
    for leaf in leaves.values():
        assert any("--json" in parameter.opts for parameter in leaf.params), leaf.name


@pytest.mark.parametrize(
    "words",
    [
        ["no-such-command"],
        ["produce"],
        ["consume", "t", "--from", "nowhere"],
        ["topics", "list", "-X", "linger.ms"],
        ["topics", "create", "t", "--config", "=5"],
        ["produce", "t", "-H", "trace"],
    ],
)
def test_wrong_use_ends_with_2_and_says_how(words: list[str]) -> None:
    said = run_command(*words)
    assert said.returncode == 2
    assert "Usage:" in said.stderr
    assert "Traceback" not in said.stderr


def test_a_bad_client_setting_is_one_sentence() -> None:
    said = run_command("topics", "list", "-X", "no.such.setting=1")
    assert said.returncode == 1
    assert said.stderr.count("\n") == 1
    assert "no.such.setting" in said.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["conusme", "t"], "There is no command conusme. Did you mean consume or console?"),
        (["topic", "list"], "Did you mean topics?"),
        (["topics", "rm", "t"], "Did you mean delete?"),
        (["help"], "headrace --help`."),
        (["topics", "create", "--topic", "t"], "Give the topic as an argument"),
        (["groups", "desribe", "g"], "Did you mean describe?"),
        (["topics", "list", "--bootstra", "x"], "There is no option --bootstra. Did you mean"),
    ],
)
def test_a_slip_of_the_finger_is_told_what_was_meant(words: list[str], meant: str) -> None:
    said = run_command(*words)
    assert said.returncode == 2
    assert meant in said.stderr and said.stdout == ""


def test_wrong_use_is_json_for_programs() -> None:
    misused = run_command("consume", "t", "--json", "--frm", "3")
    assert json.loads(misused.stderr) == {
        "error": "There is no option --frm. Did you mean --from or --format?",
        "exit_code": 2,
    }


def test_a_node_that_may_not_start_says_why_in_one_sentence(tmp_path: Path) -> None:
    tiered = "remote.log.storage.system.enable"
    for words, why in (
        (["--listen", "0.0.0.0:0"], "--insecure"),
        (["--set", f"{tiered}=true"], tiered),
        (["--set", "num.partitions=many"], "num.partitions"),
        (["--config", str(tmp_path / "missing")], "cannot be read"),
        (["--console-park-to", str(tmp_path / "parked")], "add --console"),
        (["--secure", "--security", str(tmp_path / "none")], "headrace security init"),
    ):
        listens = [] if "--listen" in words else ["--listen", "127.0.0.1:0"]
        said = run_command("start", *listens, *words, "--data", str(tmp_path / "data"))
        assert said.returncode == 1, said.stderr
        assert said.stderr.count("\n") == 1, said.stderr
        assert why in said.stderr


def test_a_warning_of_a_command_without_a_log_steers_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`headrace delay list` warns of records that others wrote, and sets up no log."""

    def warn() -> None:
        assert logging.lastResort is not None
        logging.lastResort.handle(
            logging.LogRecord("x", logging.WARNING, "", 0, "odd %s", ("\x1b[2J\nFORGED",), None)
        )

    monkeypatch.setattr("headrace.cli.main.app", lambda **_: warn())
    said = run_command("topics", "list")
    assert said.stderr == "odd \\x1b[2J\\nFORGED\n"


def test_a_security_folder_that_cannot_be_made_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = run_command("security", "init", "--folder", str(tmp_path / "file" / "below"))
    assert said.returncode == 1
    assert "cannot be made: Not a directory." in said.stderr.replace("\n", " ")
    assert "Traceback" not in said.stderr
