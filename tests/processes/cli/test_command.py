"""The command as a process: what it loads, how it ends in a pipe, what a shell completes.

What it says is told in tests/unit/cli/test_command.py, in one process.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

from headrace.client import Admin
from headrace.operations.checkup.kcat import kcat_version
from headrace.testing import Broker


def test_the_entry_point_ends_with_the_code_of_the_command() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "headrace", "conusme", "t"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert said.returncode == 2
    assert "Did you mean consume or console?" in said.stderr and said.stdout == ""


def test_help_loads_no_command_no_client_and_no_rich() -> None:
    script = (
        "import sys, headrace.cli.main as m\n"
        "sys.argv = ['headrace', '--help']\n"
        "try:\n    m.run()\n"
        "except SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True
    )
    loaded = set(done.stderr.splitlines())
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


# The shell starts a process for each line that it completes; this one answers all of its lines.
COMPLETES = """
import os, sys
from headrace.cli.main import run
lines, sys.argv = sys.argv[1:], ["headrace"]
for line in lines:
    os.environ["_TYPER_COMPLETE_ARGS"] = line
    try:
        run()
    except SystemExit:
        print("next line", flush=True)
"""


def test_the_shell_completes_names_of_topics_and_groups() -> None:
    with Broker() as broker:
        for name in ("orders", "bills"):
            Admin(broker.bootstrap).topics.create(name, partitions=1)
        lines = (
            "headrace consume or",
            "headrace topics describe ",
            "headrace groups describe ",
            "headrace top",
            "headrace consume -b localhost:1 or",
        )
        asked = {"HEADRACE_BOOTSTRAP": broker.bootstrap, "_HEADRACE_COMPLETE": "complete_zsh"}
        done = subprocess.run(
            [sys.executable, "-c", COMPLETES, *lines],
            env={**os.environ, **asked},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
    assert done.stderr == ""
    offered = [re.findall(r'"([\w.-]+)"', part) for part in done.stdout.split("next line\n")]
    assert [sorted(names) for names in offered] == [
        ["orders"],
        ["bills", "orders"],
        [],
        ["topics"],
        [],
        [],  # behind the last line
    ]


def test_a_program_that_does_not_say_its_version() -> None:
    assert kcat_version("/bin/true") is None
    assert kcat_version("/no/such/program") is None
