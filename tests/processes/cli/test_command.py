"""The command as a person meets it: help, wrong use, failure in one sentence, what it loads."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from headrace.cli.checkup.kcat import kcat_version
from headrace.cli.main import COMMANDS, command_of
from headrace.testing import Broker
from tests.sockets.nobody import nobody


def headrace(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_help_lists_every_command() -> None:
    said = headrace("--help")
    assert said.returncode == 0
    for name, words in COMMANDS.items():
        assert name in said.stdout
        assert words in said.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_module_and_json(name: str) -> None:
    command = command_of(name)
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
    address = nobody()
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
    said = headrace("doctor", "--json", "--bootstrap", nobody())
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
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True
    )
    return set(done.stderr.splitlines())


def test_help_loads_no_command_no_client_and_no_rich() -> None:
    loaded = loaded_by("--help")
    assert "headrace.cli.main" in loaded
    assert not loaded & {
        "confluent_kafka",
        "headrace.cli.records.topics",
        "rich",
        "pydantic",
        "asyncio",
    }


def test_importing_the_package_loads_nothing_else() -> None:
    script = (
        "import sys; before = set(sys.modules); import headrace; print(set(sys.modules)-before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.strip() == "{'headrace'}"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["conusme", "t"], "There is no command conusme. Did you mean consume or console?"),
        (["topic", "list"], "Did you mean topics?"),
        (["topics", "rm", "t"], "Did you mean delete?"),
        (["help"], "headrace --help`."),
        (["topics", "create", "--topic", "t"], "The topic stands by itself"),
        (["groups", "desribe", "g"], "Did you mean describe?"),
        (["topics", "list", "--bootstra", "x"], "There is no option --bootstra. Did you mean"),
    ],
)
def test_a_slip_of_the_finger_is_told_what_was_meant(words: list[str], meant: str) -> None:
    said = headrace(*words)
    assert said.returncode == 2
    assert meant in said.stderr and said.stdout == ""


def test_failures_and_wrong_use_are_json_for_programs() -> None:
    address = nobody()
    failed = headrace("topics", "list", "--json", "-b", address)
    assert (failed.returncode, failed.stdout) == (1, "")
    told = json.loads(failed.stderr)
    assert told["exit_code"] == 1 and told["error"].startswith("No Kafka broker answers")
    misused = headrace("consume", "t", "--json", "--frm", "3")
    assert json.loads(misused.stderr) == {
        "error": "There is no option --frm. Did you mean --from or --format?",
        "exit_code": 2,
    }


def test_a_reader_that_has_seen_enough_is_no_failure() -> None:
    command = f"{sys.executable} -m headrace"
    with Broker() as broker:
        at = f"-b {broker.bootstrap}"
        script = (
            f"seq 100000 | {command} produce long {at} 2>/dev/null; "
            f"{command} consume long {at} | head -n 2; echo ${{PIPESTATUS[0]}}; "
            f"{command} consume long --json {at} | head -n 1 >/dev/null; echo ${{PIPESTATUS[0]}}"
        )
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, timeout=300, check=True
        )
    assert done.stdout.split() == ["1", "2", "0", "0"]
    assert done.stderr == ""


def test_the_shell_completes_names_of_topics_and_groups() -> None:
    with Broker() as broker:
        at = {"HEADRACE_BOOTSTRAP": broker.bootstrap}

        def offered(line: str, **more: str) -> list[str]:
            asked = {**os.environ, **at, "_HEADRACE_COMPLETE": "complete_zsh"}
            done = subprocess.run(
                [
                    sys.executable,
                    "-c",
                    "import sys; sys.argv = ['headrace']; from headrace.cli.main import run; run()",
                ],
                env={**asked, "_TYPER_COMPLETE_ARGS": line, **more},
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.stderr == ""
            return re.findall(r'"([\w.-]+)"', done.stdout)

        headrace("topics", "create", "orders", "-b", broker.bootstrap)
        headrace("topics", "create", "bills", "-b", broker.bootstrap)
        assert offered("headrace consume or") == ["orders"]
        assert sorted(offered("headrace topics describe ")) == ["bills", "orders"]
        assert offered("headrace groups describe ") == []
        assert offered("headrace top") == ["topics"]
        assert offered("headrace consume -b localhost:1 or") == []


def test_a_program_that_does_not_say_its_version() -> None:
    assert kcat_version("/bin/true") is None
    assert kcat_version("/no/such/program") is None
